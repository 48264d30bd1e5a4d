package analyzetest

import (
	"encoding/json"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// AddWait adds a wait of a thread of process 42, with a stack that may be 0, and a reason. The last queued ns
// of it are spent in a run queue.
func (recording *TestRecording) AddWait(
	tid int32,
	at, dur, queued int64,
	state string,
	stack int32,
	f format.WaitFact,
) *format.Row {
	status := format.StackComplete
	if stack == 0 {
		status = format.StackNone
	}
	return recording.AddRow(format.Row{
		Kind: format.KindWait, StartNs: Epoch + at, DurNs: dur, Pid: 42, Tid: tid, Device: -1, Name: state,
		Value: float64(queued), StackID: stack, StackStatus: status, Message: encodeFact(f),
	})
}

// AddWaker sets the thread that ended a wait, as the waking's system call says.
func (recording *TestRecording) AddWaker(r *format.Row, pid, tid int32, name, call string) {
	var f format.WaitFact
	if r.Message != "" {
		if err := json.Unmarshal([]byte(r.Message), &f); err != nil {
			panic(err) // the message of AddWait
		}
	}
	f.EndedBy, f.Waker, f.WakerCall = format.EndedByThread, name, call
	r.WakerPid, r.WakerTid, r.Message = pid, tid, encodeFact(f)
}

// AddCPUSample adds a CPU sample of a thread of process 42 that represents dur ns.
func (recording *TestRecording) AddCPUSample(tid int32, at, dur int64, stack int32) *format.Row {
	return recording.AddRow(format.Row{
		Kind: format.KindCPUSample, StartNs: Epoch + at, DurNs: dur, Pid: 42, Tid: tid, Device: -1, StackID: stack,
		StackStatus: format.StackComplete,
	})
}

// AddPause adds a garbage collection of process 42. uncertain is the time between two readings in ns, or 0 for a
// pause that a probe measured.
func (recording *TestRecording) AddPause(tid int32, at, dur int64, generation int32, uncertain int64) *format.Row {
	r := format.Row{
		Kind: format.KindGC, StartNs: Epoch + at, DurNs: dur, Pid: 42, Tid: tid, Device: -1, Result: generation,
		Value: float64(uncertain), StackStatus: format.StackNone,
	}
	if uncertain > 0 {
		r.Message = format.SourceSampled
	}
	return recording.AddRow(r)
}

// AddHostCounter adds two samples of a counter of class host: 0 at from, and the increase at to. A thread, process or
// the machine has the counter, as pid and tid say. path is that of a cgroup, or "".
func (recording *TestRecording) AddHostCounter(pid, tid int32, name, path string, from, to int64, increase float64) {
	for at, value := range map[int64]float64{from: 0, to: increase} {
		recording.AddRow(format.Row{
			Kind: format.KindHost, Name: name, StartNs: Epoch + at, Pid: pid, Tid: tid, Device: -1, Value: value,
			Message: path, StackStatus: format.StackNone,
		})
	}
}

// AddThreadTimes adds the counters of a thread's time in each state, in seconds.
func (recording *TestRecording) AddThreadTimes(
	pid, tid int32,
	from, to int64,
	running, runnable, sleeping, uninterruptible float64,
) {
	for name, seconds := range map[string]float64{
		format.HostRunning: running, format.HostRunnable: runnable,
		format.HostSleeping: sleeping, format.HostUninterruptible: uninterruptible,
	} {
		recording.AddHostCounter(pid, tid, name, "", from, to, seconds*float64(Second))
	}
}

// encodeFact returns the message of a wait.
func encodeFact(f format.WaitFact) string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // a WaitFact has only texts and numbers
	}
	return string(text)
}

// Stacks of HostRecording.
const (
	hostStackLoader = 901 + iota
	hostStackLock
	hostStackSync
	hostStackRead
	hostStackPreprocess
	hostStackGather
)

// HostRecording returns a recording of 10 s of a training with class host. Thread 42 launches, waits for data,
// for the GPU and for the GIL, and collects garbage. Thread 43 holds the GIL. Process 77 loads data.
func HostRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.Meta.EndNs = Epoch + 10*Second
	recording.Meta.HostRows = &format.RowCount{Recorded: 100}
	recording.AddRow(format.Row{Kind: format.KindProcess, Name: "python", Pid: 42, Device: -1, StartNs: Epoch})
	recording.AddRow(format.Row{Kind: format.KindProcess, Name: "pt_data_worker", Pid: 77, Device: -1, StartNs: Epoch})
	recording.AddRow(format.Row{Kind: format.KindThread, Name: "python", Pid: 42, Tid: 42, Device: -1, StartNs: Epoch})
	recording.AddRow(format.Row{Kind: format.KindThread, Name: "logger", Pid: 42, Tid: 43, Device: -1, StartNs: Epoch})
	fact, err := json.Marshal(format.HostFact{
		Mode: "auto", SampleHz: 49, MinWaitNs: Ms, InterpreterHz: 200, SwitchNs: 230, TargetSwitchNs: 420,
	})
	if err != nil {
		t.Fatal(err)
	}
	recording.AddRow(format.Row{
		Kind: format.KindNote, Name: format.NoteHost, Device: -1, StartNs: Epoch, Message: string(fact),
	})
	addHostStacks(recording)
	for i := range int64(10) {
		at := i * Second
		recording.AddLaunch(at+600*Ms, 10*Us, "gemm", 0x7000, 0)
		recording.AddWait(42, at+10*Ms, 400*Ms, Ms, format.StateSleeping, hostStackLoader, format.WaitFact{
			Reason: format.ReasonPoll, SystemCall: "poll", OwnerPid: 77, Owner: "pt_data_worker",
		})
		recording.AddWait(42, at+450*Ms, 60*Ms, 0, format.StateSleeping, hostStackLock, format.WaitFact{
			Reason: format.ReasonGIL, SystemCall: "futex", OwnerPid: 42, OwnerTid: 43, Owner: "logger",
		})
		recording.AddWait(42, at+700*Ms, 100*Ms, 5*Ms, format.StateSleeping, hostStackSync, format.WaitFact{
			Reason: format.ReasonCUDA, SystemCall: "ioctl", CUDACall: "cuStreamSynchronize",
		})
		recording.AddWait(42, at+850*Ms, 20*Ms, 0, format.StateUninterruptible, hostStackRead, format.WaitFact{
			Reason: format.ReasonFile, SystemCall: "read", Target: "/data/shard-1.tar",
		})
		recording.AddWait(
			42,
			at+900*Ms,
			15*Ms,
			15*Ms,
			format.StateRunnable,
			0,
			format.WaitFact{Reason: format.ReasonRunQueue},
		)
		for k := range int64(4) {
			recording.AddCPUSample(42, at+520*Ms+k*20*Ms, 20*Ms, hostStackPreprocess)
		}
		recording.AddCPUSample(42, at+950*Ms, 20*Ms, hostStackGather)
	}
	recording.AddWait(42, 9930*Ms, 70*Ms, 0, format.StateSleeping, 0, format.WaitFact{}).Flags = format.FlagOpen
	recording.AddPause(42, 2*Second+520*Ms, 40*Ms, 2, 0)
	recording.AddPause(42, 5*Second+520*Ms, 30*Ms, 2, 5*Ms)
	recording.AddPause(0, 7*Second, 10*Ms, -1, 5*Ms)
	addHostMetrics(recording)
	return recording
}

// addHostMetrics adds the metrics of HostRecording.
func addHostMetrics(recording *TestRecording) {
	from, to := int64(0), 10*Second
	recording.AddThreadTimes(42, 42, from, to, 3.98, 0.21, 5.61, 0.2)
	recording.AddThreadTimes(42, 43, from, to, 1, 0, 9, 0)
	recording.AddThreadTimes(77, 77, from, to, 9.5, 0.5, 0, 0)
	for tid, held := range map[int32]float64{42: 900, 43: 1000} {
		recording.AddHostCounter(42, tid, format.HostGILHeld, "", from, to, held)
	}
	recording.AddHostCounter(42, 42, format.HostGILWaited, "", from, to, 120)
	recording.AddHostCounter(42, 42, format.HostSwitches, "", from, to, 5000)
	recording.AddHostCounter(42, 42, format.HostMajorFaults, "", from, to, 7)
	for name, n := range map[string]float64{
		format.HostInterpreterReads: 2000, format.HostCollecting: 16, format.HostCollections0: 800,
		format.HostCollections1: 70, format.HostCollections2: 2, format.HostReadBytes: 3 << 30,
		format.HostWriteBytes: 1 << 20,
	} {
		recording.AddHostCounter(42, 0, name, "", from, to, n)
	}
	for name, n := range map[string]float64{
		format.HostPeriods: 100, format.HostThrottled: 25, format.HostThrottledNs: 1.5e9,
		format.HostMemoryPressure: 2e6,
	} {
		recording.AddHostCounter(42, 0, name, "/kubepods/pod1", from, to, n)
	}
	recording.AddRow(format.Row{
		Kind: format.KindHost, Name: format.HostCPULimit, StartNs: Epoch, Pid: 42, Device: -1, Value: 2.5,
		Message: "/kubepods/pod1", StackStatus: format.StackNone,
	})
	for name, ns := range map[string]float64{
		format.HostMachineCPUPressure: 8e8, format.HostMachineIOPressure: 1e8, format.HostMachineMemoryPressure: 0,
	} {
		recording.AddHostCounter(0, 0, name, "", from, to, ns)
	}
}

// addHostStacks adds the stacks of HostRecording: kernel, native and Python frames, innermost first.
func addHostStacks(recording *TestRecording) {
	kernel := func(name string, addr int64) format.Frame {
		return format.Frame{Func: name, SystemName: name, Addr: addr, Type: format.FrameKernel}
	}
	native := func(name, module string, addr int64) format.Frame {
		return format.Frame{Func: name, SystemName: name, Module: module, BuildID: "c1bc", Addr: addr, Type: "native"}
	}
	python := func(name string, line int32) format.Frame {
		return format.Frame{Func: name, File: "/app/train.py", Line: line, Type: "python"}
	}
	const libc, libcuda = "/usr/lib/libc.so.6", "/usr/lib/libcuda.so.1"
	train := python("train", 40)
	for id, frames := range map[int32][]format.Frame{
		hostStackLoader: {
			kernel("do_sys_poll", 0x10), native("__poll", libc, 0x100), python("next_batch", 12), train,
		},
		hostStackLock: {
			kernel("futex_wait_queue", 0x20), native("pthread_cond_timedwait", libc, 0x200), python("log", 20), train,
		},
		hostStackSync: {
			kernel("schedule_timeout", 0x30), native("ioctl", libc, 0x300),
			native("cuStreamSynchronize", libcuda, 0x400), python("synchronize", 31), train,
		},
		hostStackRead:       {kernel("folio_wait_bit", 0x40), native("read", libc, 0x500), python("read_shard", 25), train},
		hostStackPreprocess: {python("preprocess", 55), train},
		hostStackGather:     {native("gather", "/app/_ops.so", 0x600), python("collate", 61), train},
	} {
		recording.AddStackRow(id, format.StackComplete, "", "", frames)
	}
}
