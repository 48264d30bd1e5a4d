package changes

import (
	"github.com/gpurec/gpurec/analyze/changepoint"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// scan has the series of a recording, their changes, and what else happened.
type scan struct {
	t        *timeline.Timeline
	filter   *query.Filter
	window   query.Window
	samples  *metric.DeviceMetrics
	calls    *change.Calls
	memory   *change.Memory
	program  *timeline.ProgramMemory
	findings []*change.Finding
	events   []*change.Event
}

// ignore ignores a change of the program's memory.
func ignore(*timeline.ProgramMemory, *livemem.Change) {}

// Shared has what the caller has read already, with the same filter. The zero value reads everything.
type Shared struct {
	Calls   *change.Calls           // with all row groups; nil: they were not read
	Memory  *change.Memory          // after a replay; nil: it was not read
	Program *timeline.ProgramMemory // of that replay
	Steps   []ProcessSteps          // nil: they were not read
}

// ProcessSteps are the steps of a process, in order of time.
type ProcessSteps struct {
	Pid   int32
	Steps []steps.Step
}

// newScan reads a recording. It returns errors of reading it.
func newScan(t *timeline.Timeline, f *query.Filter, shared Shared) (*scan, error) {
	w := f.NarrowWindow(t.RecordingWindow())
	sc := &scan{t: t, filter: f, window: w, memory: shared.Memory, program: shared.Program}
	var err error
	if sc.memory == nil {
		sc.memory = change.NewMemory(t, f, w)
		sc.program, err = t.ReplayProgram(ignore, sc.memory.OnDriverChange, sc.memory.OnAllocatorChange)
		if err != nil {
			return nil, err
		}
	}
	if sc.calls = shared.Calls; sc.calls == nil {
		if sc.calls, err = change.ReadCalls(t, f); err != nil {
			return nil, err
		}
	}
	sc.samples = &metric.DeviceMetrics{
		T: t, Window: w, Filter: f, Devices: make(map[int32]map[string]*metric.Series),
	}
	sc.samples.CollectSamples()
	s := change.NewSearch(t, w, sc.calls.List())
	s.AddSamples(sc.samples)
	if len(quality.MissingClasses(t, []string{format.RecordLaunch})) == 0 {
		if shared.Steps == nil {
			if shared.Steps, err = readSteps(t, f); err != nil {
				return nil, err
			}
		}
		for _, p := range shared.Steps {
			s.AddSteps(p.Pid, p.Steps)
		}
		s.AddLaunches(sc.calls.Counts)
	}
	s.AddMemory(sc.memory)
	if err := s.AddHost(f); err != nil {
		return nil, err
	}
	sc.findings = s.Find(changepoint.MaxParts, true)
	sc.events = change.Events(sc.findings)
	return sc, nil
}

// readSteps finds the steps of each process. It returns errors of reading the recording.
func readSteps(t *timeline.Timeline, f *query.Filter) (list []ProcessSteps, err error) {
	found, err := steps.Find(steps.NewReader(t, f), steps.Options{})
	if err != nil {
		return nil, err
	}
	for _, p := range found.Processes {
		list = append(list, ProcessSteps{p.Pid, p.Steps})
	}
	return list, nil
}
