package gpuprogram

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// HostRecorder says how the rows of class host of a Job are recorded.
type HostRecorder struct {
	SampleHz  float64 // 0 means 49
	MinWaitNs int64   // 0 means 1 ms
	LostShare float64 // share of waits that are lost
	Unsampled bool    // no CPU samples, as where perf events are not allowed
	Uncounted bool    // no counters of threads
}

// HostSpan is the truth about a time of a thread on the host.
type HostSpan struct {
	FromNs, ToNs int64 // Unix ns
	Pid, Tid     int32
	State        string // StateRunning, or why it was on no processor
	Reason       string // of a wait, or HostGC for a garbage collection
	Site         string // innermost line of the program
	fact         format.WaitFact
	stack        int32
}

// HostGC is the HostSpan.Reason of garbage collections.
const HostGC = "gc"

// RecordHost records what the threads of the job do on the host. Call it before the first call.
func (j *Job) RecordHost(r HostRecorder) {
	if r.SampleHz == 0 {
		r.SampleHz = 49
	}
	if r.MinWaitNs == 0 {
		r.MinWaitNs = analyzetest.Ms
	}
	j.hostRecorder = &r
}

// HostSpans returns what the threads did on the host, thread by thread in the order of time.
func (j *Job) HostSpans() []HostSpan { return j.hostSpans }

// Throttle adds a cgroup of the process whose CPU limit holds threads up.
func (p *JobProcess) Throttle(cgroup string, cores float64) { p.cgroup, p.cores = cgroup, cores }

// noteHost notes what the thread does until ns.
func (t *JobThread) noteHost(toNs int64, state string, fact format.WaitFact, stack int32, site string) {
	if t.job.hostRecorder == nil || toNs <= t.NowNs {
		return
	}
	t.job.hostSpans = append(t.job.hostSpans, HostSpan{
		FromNs: t.NowNs, ToNs: toNs, Pid: t.on.sim.pid, Tid: t.tid, State: state, Reason: fact.Reason, Site: site,
		fact: fact, stack: stack,
	})
}

// Work lets the thread run on a processor for ns nanoseconds, at the current line.
func (t *JobThread) Work(ns int64) {
	t.noteHost(t.NowNs+ns, format.StateRunning, format.WaitFact{}, t.hostStack(), t.site())
	t.NowNs += ns
}

// Block is on no processor for ns, at the current line.
func (t *JobThread) Block(ns int64, f format.WaitFact) {
	state := format.StateSleeping
	if f.Reason == format.ReasonRunQueue || f.Reason == format.ReasonThrottled {
		state = format.StateRunnable
	}
	t.noteHost(t.NowNs+ns, state, f, t.hostStack(), t.site())
	t.NowNs += ns
}

// BlockIn is Block below library frames, as "FILE.py:LINE FUNCTION", outermost first.
func (t *JobThread) BlockIn(ns int64, f format.WaitFact, library ...string) {
	site, kept := t.site(), t.frames
	t.frames = append(slices.Clone(t.frames), library...)
	t.noteHost(t.NowNs+ns, format.StateSleeping, f, t.hostStack(), site)
	t.frames = kept
	t.NowNs += ns
}

// Collect collects garbage for ns, at the current line.
func (t *JobThread) Collect(ns int64) {
	t.noteHost(t.NowNs+ns, format.StateRunning, format.WaitFact{Reason: HostGC}, t.hostStack(), t.site())
	t.NowNs += ns
}

// hostStack returns the number of the thread's stack outside of CUDA.
func (t *JobThread) hostStack() int32 {
	j := t.job
	key := "host\n" + strings.Join(t.frames, "\n")
	if id, ok := j.stacks[key]; ok {
		return id
	}
	id := int32(len(j.stacks) + 1)
	j.stacks[key] = id
	lines := slices.Clone(t.frames)
	slices.Reverse(lines)
	j.stackRows = append(j.stackRows, format.Row{
		Kind: format.KindStack, Pid: t.on.sim.pid, StackID: id, StackStatus: format.StackComplete, Device: -1,
		Frames: analyzetest.ParseFrames(append([]string{"libpython3.11.so.1.0 _PyEval_EvalFrameDefault"}, lines...)...),
	})
	return id
}

// addHostRows adds the rows of class host.
func (j *Job) addHostRows(recording *analyzetest.TestRecording) {
	r := j.hostRecorder
	if r == nil {
		return
	}
	fact := format.HostFact{Mode: "auto", SampleHz: r.SampleHz, MinWaitNs: r.MinWaitNs}
	if r.Unsampled {
		fact.SampleHz = 0
	}
	message, _ := json.Marshal(fact)
	recording.AddRow(format.Row{
		Kind: format.KindNote, Name: format.NoteHost, StartNs: startNs, Device: -1, Message: string(message),
	})
	threads := make(map[int32]*hostWriter)
	for i := range j.hostSpans {
		s := &j.hostSpans[i]
		w := threads[s.Tid]
		if w == nil {
			w = &hostWriter{job: j, to: recording, nextNs: startNs, sampleNs: j.random.Int64N(int64(1e9 / r.SampleHz))}
			threads[s.Tid] = w
		}
		w.add(s)
	}
	for _, w := range threads { // the recorder reads the counters again at the end
		w.nextNs = w.last.ToNs
		w.read(&w.last)
	}
}

// hostWriter writes the rows of a thread.
type hostWriter struct {
	job                *Job
	to                 *analyzetest.TestRecording
	last               HostSpan
	nextNs             int64 // of the next reading of counters
	sampleNs           int64 // CPU time until the next sample
	runningNs, queueNs int64 // counters
	throttledNs        int64
}

// add adds the rows of a time of the thread.
func (w *hostWriter) add(s *HostSpan) {
	w.last = *s
	for ; w.nextNs < s.ToNs; w.nextNs += analyzetest.Second {
		w.advance(s, max(0, w.nextNs-s.FromNs))
		w.read(s)
		w.advance(s, -max(0, w.nextNs-s.FromNs))
	}
	lengthNs := s.ToNs - s.FromNs
	w.advance(s, lengthNs)
	if s.State == format.StateRunning {
		w.sample(s)
		if s.Reason == HostGC {
			w.row(format.KindGC, "", s.FromNs, lengthNs, s).Result = 2
		}
		return
	}
	if r := w.job.hostRecorder; lengthNs < r.MinWaitNs || w.job.random.Float64() < r.LostShare {
		return
	}
	f := s.fact
	if f.Reason == format.ReasonThrottled { // the recorder sees only a run queue
		f.Reason = format.ReasonRunQueue
	}
	message, _ := json.Marshal(f)
	row := w.row(format.KindWait, s.State, s.FromNs, lengthNs, s)
	row.Message = string(message)
	if s.State == format.StateRunnable {
		row.Value = float64(lengthNs)
	}
}

// row adds a row of the thread.
func (w *hostWriter) row(kind, name string, atNs, durNs int64, s *HostSpan) *format.Row {
	row := w.to.AddRow(format.Row{
		Kind: kind, Name: name, StartNs: atNs, DurNs: durNs, Pid: s.Pid, Tid: s.Tid, Device: -1,
		StackStatus: format.StackNone,
	})
	if kind == format.KindWait || kind == format.KindCPUSample {
		row.StackID, row.StackStatus, row.Site = s.stack, format.StackComplete, s.Site
	}
	return row
}

// sample adds the CPU samples of a time.
func (w *hostWriter) sample(s *HostSpan) {
	period := int64(1e9 / w.job.hostRecorder.SampleHz)
	atNs := s.FromNs + w.sampleNs
	for ; atNs < s.ToNs; atNs += period {
		if !w.job.hostRecorder.Unsampled {
			w.row(format.KindCPUSample, "", atNs, period, s)
		}
	}
	w.sampleNs = atNs - s.ToNs
}

// advance adds ns of a time to the counters.
func (w *hostWriter) advance(s *HostSpan, ns int64) {
	switch s.State {
	case format.StateRunning:
		w.runningNs += ns
	case format.StateRunnable:
		w.queueNs += ns
	}
	if s.Reason == format.ReasonThrottled {
		w.throttledNs += ns
	}
}

// read adds a reading of the counters at nextNs.
func (w *hostWriter) read(s *HostSpan) {
	add := func(name string, value int64, tid int32, cgroup string) {
		row := w.row(format.KindHost, name, w.nextNs, 0, s)
		row.Value, row.Tid, row.Message = float64(value), tid, cgroup
	}
	if !w.job.hostRecorder.Uncounted {
		add(format.HostRunning, w.runningNs, s.Tid, "")
		add(format.HostRunnable, w.queueNs, s.Tid, "")
	}
	if p := w.job.processes[s.Pid-100]; p.cgroup != "" {
		add(format.HostThrottledNs, w.throttledNs, 0, p.cgroup)
		add(format.HostCPULimit, int64(p.cores), 0, p.cgroup)
	}
}

// DataLoaderFrames are the frames of a main process that waits for the workers of PyTorch's DataLoader.
func DataLoaderFrames() (frames []string) {
	const site = "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
	for _, f := range []struct {
		file, function string
		line           int
	}{
		{site, "__next__", 631},
		{site, "_next_data", 1329},
		{site, "_try_get_data", 1133},
		{"/usr/lib/python3.11/multiprocessing/queues.py", "get", 113},
		{"/usr/lib/python3.11/multiprocessing/connection.py", "poll", 257},
	} {
		frames = append(frames, fmt.Sprintf("%s:%d %s", f.file, f.line, f.function))
	}
	return frames
}
