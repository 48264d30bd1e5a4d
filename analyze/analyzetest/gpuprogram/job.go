package gpuprogram

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/format"
)

// Job is a program that a test writes call by call. Its calls have Python stacks, and its GPU operations
// have the times that the simulated GPU gives them. Threads must be advanced in about the order of
// their time, because a call sees only the operations of earlier calls.
type Job struct {
	*Program
	Operations []JobOperation // in the order of their calls

	rows      []format.Row
	stackRows []format.Row
	stacks    map[string]int32
	processes []*JobProcess

	hostRecorder *HostRecorder // nil without rows of class host
	hostSpans    []HostSpan
}

// JobOperation is the truth about one operation.
type JobOperation struct {
	Truth
	CallNs int64 // start of the call, Unix ns
	Pid    int32
	Kernel string // name of the kernel; "" for other operations
	Site   string // innermost Python frame: "function (file.py:line)"
	Stream int64  // handle
	Step   int    // value of Job.Step at the call
	Op     activity.Op
	Bytes  int64 // of copies and fills
}

// JobProcess is a process of a Job on one device.
type JobProcess struct {
	sim *simProcess
	job *Job

	cgroup string // whose CPU limit holds threads up; "" without a limit
	cores  float64
}

// JobStream is a CUDA stream of a process.
type JobStream struct {
	sim *simStream
	// waitNs is when the event happens for which the stream waits, Unix ns.
	waitNs int64
}

// JobThread is a host thread. Its methods advance its clock.
type JobThread struct {
	NowNs  int64 // Unix ns
	Step   int   // copied to the operations of the thread
	job    *Job
	on     *JobProcess
	tid    int32
	frames []string // Python frames as "FILE.py:LINE FUNCTION", outermost first
}

// NewJob returns an empty job. Of the plan it uses Full, NoReturns and TornShare.
func NewJob(seed uint64, p Plan) *Job {
	return &Job{
		Program: &Program{Plan: p, random: rand.New(rand.NewPCG(seed, 11)), torn: make(map[tornSample]bool)},
		stacks:  make(map[string]int32),
	}
}

// Random returns the random numbers of the job, for tests that vary their programs.
func (j *Job) Random() *rand.Rand { return j.random }

// Process adds a process on a device.
func (j *Job) Process(device int32) *JobProcess {
	pid := int32(100 + len(j.processes))
	p := &simProcess{pid: pid, device: device, events: make(map[int64]int64), handles: 0x7000}
	p.legacy = &simStream{handle: activity.LegacyStream, process: p, channel: j.newChannel(pid, device, startNs)}
	p.engines[0] = j.newEngines(p)
	added := &JobProcess{sim: p, job: j}
	j.processes = append(j.processes, added)
	return added
}

// DefaultStream returns the legacy default stream.
func (p *JobProcess) DefaultStream() *JobStream { return &JobStream{sim: p.sim.legacy} }

// Stream adds a stream with a channel of its own.
func (p *JobProcess) Stream() *JobStream {
	p.sim.addStream(p.job.Program, false, startNs)
	return &JobStream{sim: p.sim.streams[len(p.sim.streams)-1]}
}

// Handle returns the handle of the stream, as in the recording.
func (s *JobStream) Handle() int64 {
	if s.sim.handle == activity.LegacyStream {
		return 0
	}
	return s.sim.handle
}

// EndNs returns when the last operation of the stream so far ends, Unix ns.
func (s *JobStream) EndNs() int64 { return s.sim.endNs }

// Thread adds a thread that begins 1 ms after the start of the recording.
func (p *JobProcess) Thread() *JobThread {
	tid := p.sim.pid*10 + int32(p.sim.handles&0xf)
	p.sim.handles++ // of no meaning but to number threads
	return &JobThread{NowNs: startNs + analyzetest.Ms, job: p.job, on: p, tid: tid}
}

// Enter calls a Python function.
func (t *JobThread) Enter(file, function string) {
	t.frames = append(t.frames, fmt.Sprintf("%s:1 %s", file, function))
}

// Line sets the line of the innermost Python function.
func (t *JobThread) Line(line int) {
	last := len(t.frames) - 1
	file, rest, _ := strings.Cut(t.frames[last], ":")
	_, function, _ := strings.Cut(rest, " ")
	t.frames[last] = fmt.Sprintf("%s:%d %s", file, line, function)
}

// Leave returns from the innermost Python function.
func (t *JobThread) Leave() { t.frames = t.frames[:len(t.frames)-1] }

// site returns the innermost Python frame as a call site.
func (t *JobThread) site() string {
	if len(t.frames) == 0 {
		return ""
	}
	place, function, _ := strings.Cut(t.frames[len(t.frames)-1], " ")
	return fmt.Sprintf("%s (%s)", function, place[strings.LastIndexByte(place, '/')+1:])
}

// Compute works on the CPU outside of CUDA for about ns.
func (t *JobThread) Compute(ns int64) { t.Work(ns - ns/20 + t.job.random.Int64N(ns/10+1)) }

// Launch launches a kernel that runs for gpuNs.
func (t *JobThread) Launch(s *JobStream, kernel string, grid int32, gpuNs int64) {
	row := t.submit(s, s.sim.channel, activity.OpKernel, gpuNs)
	row.Kernel, row.Name = kernel, "cuLaunchKernel"
	row.GridX, row.GridY, row.GridZ, row.BlockX, row.BlockY, row.BlockZ = grid, 1, 1, 256, 1, 1
	t.job.Operations[len(t.job.Operations)-1].Kernel = kernel
}

// LaunchGraph launches a CUDA graph that runs for gpuNs.
func (t *JobThread) LaunchGraph(s *JobStream, graph int64, gpuNs int64) {
	t.submit(s, s.sim.channel, activity.OpGraph, gpuNs).Ptr = graph
}

// maxShortBytes is the size up to which copies of pageable memory run on the channel of their stream.
const maxShortBytes = 64 << 10

// Copy copies bytes of pageable memory between host and device, or on the device: op is OpCopyToDevice, OpCopyToHost or
// OpCopyOnDevice. The call does not wait.
func (t *JobThread) Copy(s *JobStream, op activity.Op, bytes, gpuNs int64) {
	on := s.sim.channel
	switch op {
	case activity.OpCopyToDevice:
		if bytes > maxShortBytes {
			on = t.job.enginesOf(s.sim).toDevice
		}
	case activity.OpCopyToHost:
		on = t.job.enginesOf(s.sim).toHost
	}
	t.submit(s, on, op, gpuNs).Bytes = bytes
	t.job.Operations[len(t.job.Operations)-1].Bytes = bytes
}

// Fill sets bytes of device memory.
func (t *JobThread) Fill(s *JobStream, bytes, gpuNs int64) {
	t.submit(s, s.sim.channel, activity.OpFill, gpuNs).Bytes = bytes
}

// submit makes the call of one operation, and runs the operation.
func (t *JobThread) submit(s *JobStream, on *gpuChannel, op activity.Op, gpuNs int64) *format.Row {
	g := t.job
	submitNs := t.NowNs + 300 + g.random.Int64N(1500)
	if s.waitNs > s.sim.endNs {
		s.sim.endNs = s.waitNs
	}
	s.waitNs = 0
	from, to := g.runOperation(s.sim, on, submitNs, float64(gpuNs), false)
	if op == activity.OpKernel {
		on.launches = append(on.launches, t.NowNs)
	}
	g.Operations = append(g.Operations, JobOperation{
		Truth:  Truth{from, to, on.number, on.base + int64(len(on.words))},
		CallNs: t.NowNs, Pid: t.on.sim.pid, Site: t.site(), Stream: s.Handle(), Step: t.Step, Op: op,
	})
	row := t.call(functions[op].kind, functions[op].name, submitNs+200+g.random.Int64N(1500))
	row.CopyKind, row.Stream = functions[op].copyKind, s.Handle()
	if op == activity.OpKernel && g.NoReturns {
		row.Flags, row.DurNs = format.FlagNoReturn, 0
	}
	return row
}

// call adds the row of a call that returns at endNs, and advances the clock of the thread.
func (t *JobThread) call(kind, name string, endNs int64) *format.Row {
	t.job.rows = append(t.job.rows, format.Row{
		Kind: kind, Name: name, StartNs: t.NowNs, DurNs: endNs - t.NowNs, Pid: t.on.sim.pid, Tid: t.tid,
		Device: t.on.sim.device, Context: 0xc0, StackID: t.stack(), Site: t.site(), StackStatus: format.StackComplete,
	})
	if kind == format.KindSync {
		t.noteHost(
			endNs,
			format.StateSleeping,
			format.WaitFact{Reason: format.ReasonCUDA, CUDACall: name},
			t.stack(),
			t.site(),
		)
	} else {
		t.noteHost(endNs, format.StateRunning, format.WaitFact{}, t.stack(), t.site())
	}
	t.NowNs = endNs
	return &t.job.rows[len(t.job.rows)-1]
}

// Call makes a call without an effect on the GPU, such as cuMemAlloc_v2, that takes ns.
func (t *JobThread) Call(kind, name string, ns int64) *format.Row {
	return t.call(kind, name, t.NowNs+ns)
}

// NewEvent creates an event without timing, and returns its handle.
func (t *JobThread) NewEvent() int64 {
	event := 0x9000 + int64(len(t.on.sim.events))
	t.on.sim.events[event] = 0
	row := t.call(format.KindAPI, "cuEventCreate", t.NowNs+700)
	row.Ptr, row.Value = event, 2 // CU_EVENT_DISABLE_TIMING
	return event
}

// RecordEvent records an event after the operations of a stream so far.
func (t *JobThread) RecordEvent(s *JobStream, event int64) {
	t.on.sim.events[event] = s.sim.endNs
	row := t.call(format.KindAPI, "cuEventRecord", t.NowNs+900)
	row.Ptr, row.Stream = event, s.Handle()
}

// WaitEvent makes a stream wait for an event, on the GPU.
func (t *JobThread) WaitEvent(s *JobStream, event int64) {
	s.waitNs = max(s.waitNs, t.on.sim.events[event])
	row := t.call(format.KindAPI, "cuStreamWaitEvent", t.NowNs+800)
	row.Ptr, row.Stream = event, s.Handle()
}

// Synchronize waits on the host for a stream.
func (t *JobThread) Synchronize(s *JobStream) {
	t.wait("cuStreamSynchronize", s.sim.doneNs).Stream = s.Handle()
}

// SynchronizeDevice waits on the host for all streams of the process.
func (t *JobThread) SynchronizeDevice() {
	done := t.on.sim.legacy.doneNs
	for _, s := range t.on.sim.streams {
		done = max(done, s.doneNs)
	}
	t.wait("cuCtxSynchronize", done)
}

// wait makes a call that returns after doneNs. At the end of the recording it has not returned.
func (t *JobThread) wait(name string, doneNs int64) *format.Row {
	return t.call(format.KindSync, name, max(t.NowNs+500, doneNs)+1000+t.job.random.Int64N(6000))
}

// stack returns the number of the thread's stack.
func (t *JobThread) stack() int32 {
	j := t.job
	key := strings.Join(t.frames, "\n")
	if id, ok := j.stacks[key]; ok {
		return id
	}
	id := int32(len(j.stacks) + 1)
	j.stacks[key] = id
	lines := slices.Clone(t.frames)
	slices.Reverse(lines)
	j.stackRows = append(j.stackRows, format.Row{
		Kind:        format.KindStack,
		Pid:         t.on.sim.pid,
		StackID:     id,
		StackStatus: format.StackComplete,
		Site:        t.site(),
		Device:      -1,
		Frames:      analyzetest.ParseFrames(append([]string{"libcuda.so.580.95.05 cuLaunchKernel"}, lines...)...),
	})
	return id
}

// Recording ends the job at endNs (Unix ns; 0: after its last call) and returns its recording. Calls
// that have not returned by then are open.
func (j *Job) Recording(t testing.TB, endNs int64) *analyzetest.TestRecording {
	j.EndNs = endNs
	if endNs == 0 {
		for i := range j.rows {
			j.EndNs = max(j.EndNs, j.rows[i].StartNs+j.rows[i].DurNs+2*analyzetest.Ms)
		}
	}
	j.poll()
	slices.SortStableFunc(j.Samples, func(a, b activity.Sample) int { return cmp.Compare(a.SeenNs, b.SeenNs) })
	recording := analyzetest.NewTestRecording(t)
	recording.Meta.EndNs = j.EndNs
	for _, p := range j.processes {
		recording.AddRow(
			format.Row{Kind: format.KindProcess, Name: "python3", Pid: p.sim.pid, StartNs: startNs, Device: -1},
		)
	}
	for _, row := range j.stackRows {
		recording.AddRow(row)
	}
	slices.SortStableFunc(j.rows, func(a, b format.Row) int { return cmp.Compare(a.StartNs, b.StartNs) })
	for _, row := range j.rows {
		if row.StartNs > j.EndNs {
			continue
		}
		if row.StartNs+row.DurNs > j.EndNs {
			row.Flags, row.DurNs = row.Flags|format.FlagOpen, j.EndNs-row.StartNs
		}
		recording.AddRow(row)
	}
	j.addProgressRows(recording)
	j.addHostRows(recording)
	return recording
}

// IdleNs returns how long a device ran no operation between the first start and the last end, ns.
func (j *Job) IdleNs(device int32) (ns int64) {
	var operations [][2]int64
	for _, c := range j.gpus {
		if c.device == device {
			operations = append(operations, c.operations...)
		}
	}
	slices.SortFunc(operations, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for i, doneNs := 1, operations[0][1]; i < len(operations); i++ {
		ns += max(0, operations[i][0]-doneNs)
		doneNs = max(doneNs, operations[i][1])
	}
	return ns
}
