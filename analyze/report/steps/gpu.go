package steps

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	model "github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/symbolize"
)

// gpuTime sums up the durations of operations on the GPU.
type gpuTime struct {
	operations, measured, estimated int64
	measuredNs                      int64
	byLabel                         map[gpuKey]*int64 // operations with an estimated duration
}

// gpuKey identifies operations with the same kernel and grid.
type gpuKey struct {
	op    activity.Op
	label int32
}

// processGPU has the operations of complete steps of a process.
type processGPU struct {
	total      gpuTime
	busy       activity.Interval // of the busiest device, ns
	spanNs     int64             // from its first call to its last end, ns
	operations map[gpuKey]*gpuOperations
	stalls     stalls
	slow       []*slowOperations
}

// addGPUTimes reads the operations of the GPU, if the recording has GPU times. maxCalls is
// query.Options.MaxTimedCalls: with more calls, the steps have no GPU times.
func (sc *scan) addGPUTimes(f *query.Filter, maxCalls int64) error {
	if len(sc.t.Facts.Channels) == 0 {
		return nil
	}
	a, err := activity.OfPart(sc.t, sc.reader.Window, maxCalls)
	if err != nil || a.UntilNs != 0 {
		return err // sums over a part of the steps say nothing
	}
	sc.activity = a
	if err := a.EachOperation(func(w *activity.Operation) { sc.addOperation(f, a, w) }); err != nil {
		return err
	}
	for i := range a.Devices {
		d := &a.Devices[i]
		s := sc.byPid[d.Pid]
		if s != nil && d.Busy.HiNs > s.gpu.busy.HiNs {
			s.gpu.busy, s.gpu.spanNs = d.Busy, d.LastNs-d.FirstNs
		}
	}
	for _, s := range sc.processes {
		s.dropImpossibleTimes(a)
		s.gpu.stalls.finish()
		s.findSlowOperations(a)
		s.assignSlowOperations()
	}
	return nil
}

// dropImpossibleTimes drops GPU times that exceed the time of the steps on all channels: the estimated
// means are wrong then.
func (s *processScan) dropImpossibleTimes(a *activity.Activity) {
	channels := 0
	for i := range a.Channels {
		if c := &a.Channels[i]; c.Pid == s.Pid && len(c.Streams) > 0 {
			channels++
		}
	}
	if ns, _ := s.gpu.total.sum(a, s.Pid); ns <= float64(channels)*float64(s.full.ns) {
		return
	}
	s.gpu.total = gpuTime{}
	for i := range s.phases {
		s.phases[i].gpu = gpuTime{operations: s.phases[i].gpu.operations}
	}
}

// addOperation adds an operation to its step.
func (sc *scan) addOperation(f *query.Filter, a *activity.Activity, w *activity.Operation) {
	s := sc.byPid[w.Call.Pid]
	if s == nil || !s.IsFound() || !passes(f, &w.Call) {
		return
	}
	i := s.stepAt(w.Call.StartNs)
	if i == len(s.Steps) || !s.Steps[i].HasAllCalls() || w.Call.StartNs < s.Steps[i].BeginNs ||
		w.Call.Op == activity.OpRecordEvent {
		return
	}
	p := sc.placeOf(s, w)
	s.phases[p.phase].gpu.add(w, p.inPhase)
	s.gpu.total.add(w, p.inAll)
	if p.durations != nil {
		p.durations.add(w, i)
	}
	s.gpu.stalls.add(s, w, i)
}

// passes reports whether the call of an operation passes the filter.
func passes(f *query.Filter, c *activity.Call) bool {
	return f.PassesCaller(c.Pid, c.Tid, c.Device, activity.RecordedHandle(c.Stream))
}

// labelOf returns the label of an operation's call in the reader.
func (sc *scan) labelOf(c *activity.Call) int32 {
	key := gpuKey{c.Op, c.Label}
	if c.Op != activity.OpKernel || c.Label < 0 {
		return sc.reader.LabelOf(sc.kernelOf(key))
	}
	for int(c.Label) >= len(sc.labels) {
		sc.labels = append(sc.labels, 0)
	}
	if sc.labels[c.Label] == 0 {
		sc.labels[c.Label] = sc.reader.LabelOf(sc.kernelOf(key)) + 1
	}
	return sc.labels[c.Label] - 1
}

// kernelOf returns the label of an operation as in the reader.
func (sc *scan) kernelOf(key gpuKey) string {
	switch key.op {
	case activity.OpGraph:
		return model.GraphLabel
	case activity.OpFill:
		return model.FillLabel
	case activity.OpCopyOnDevice, activity.OpCopyToDevice, activity.OpCopyToHost:
		return key.op.String()
	}
	if key.label < 0 || int(key.label) >= len(sc.activity.Labels) {
		return ""
	}
	return sc.activity.Labels[key.label].Kernel
}

// gpuName is the name of a kernel or another operation, with its grid.
type gpuName struct{ name, grid string }

// gpuLabel returns the name of operations.
func (sc *scan) gpuLabel(key gpuKey) gpuName {
	if key.op != activity.OpKernel || key.label < 0 || int(key.label) >= len(sc.activity.Labels) {
		return gpuName{name: sc.kernelOf(key)}
	}
	return gpuName{
		symbolize.ShortKernel(sc.activity.Labels[key.label].Kernel),
		gridText(sc.activity.Labels[key.label].Grid),
	}
}

// counterOf returns the counter of the operations of a kernel and grid with an estimated duration.
func (g *gpuTime) counterOf(key gpuKey) *int64 {
	n := g.byLabel[key]
	if n == nil {
		if g.byLabel == nil {
			g.byLabel = make(map[gpuKey]*int64)
		}
		n = new(int64)
		g.byLabel[key] = n
	}
	return n
}

// add adds an operation: its measured duration, or else the mean of its kernel and grid, whose operations are counted.
func (g *gpuTime) add(w *activity.Operation, operations *int64) {
	g.operations++
	switch {
	case w.StartQuality == activity.Measured && w.EndQuality == activity.Measured:
		g.measured++
		g.measuredNs += w.Duration.MiddleNs()
	case w.Mean != nil && w.Mean.IsEstimated:
		g.estimated++
		*operations++
	}
}

// sum returns the time of all operations, and its standard error, in ns.
func (g *gpuTime) sum(a *activity.Activity, pid int32) (ns, errorNs float64) {
	ns = float64(g.measuredNs)
	variance := 0.0
	keys := slices.SortedFunc(maps.Keys(g.byLabel), func(a, b gpuKey) int {
		return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.label, b.label))
	})
	for _, key := range keys { // in a fixed order, so that sums do not differ
		n := *g.byLabel[key]
		if d := a.MeanOf(pid, key.op, key.label); d != nil {
			ns += float64(n) * d.MeanNs
			e := float64(n) * d.ErrorNs
			variance += e * e
		}
	}
	return ns, math.Sqrt(variance)
}
