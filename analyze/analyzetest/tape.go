package analyzetest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// Epoch is the start of test recordings, Unix ns.
const Epoch = int64(1_790_000_000_000_000_000)

// Units of times in ns and sizes in bytes.
const (
	Second = int64(time.Second)
	Ms     = int64(time.Millisecond)
	Us     = int64(time.Microsecond)
	Mib    = int64(1) << 20
)

// TestRecording collects the rows of a simulated recording. Its methods return the added row, so
// that a test can change it. Times are ns from the start of the recording.
type TestRecording struct {
	t    testing.TB
	Meta format.Meta // metadata that Record writes to the file
	Rows []*format.Row
	Path string // path of the file that Record writes
}

// NewTestRecording returns an empty recording of 60 s.
func NewTestRecording(t testing.TB) *TestRecording {
	return &TestRecording{t: t, Path: filepath.Join(t.TempDir(), "run.parquet"), Meta: format.Meta{
		GpurecVersion: "v0.0.0-test",
		Command:       []string{"gpurec", "record"},
		Host:          "box",
		StartNs:       Epoch,
		EndNs:         Epoch + 60*Second,
		ClockOffsetNs: Epoch - 1000*Second,
		Stacks:        "fp",
		Attach:        "uprobe_multi",
	}}
}

// AddRow adds a row.
func (recording *TestRecording) AddRow(r format.Row) *format.Row {
	recording.Rows = append(recording.Rows, &r)
	return &r
}

// AddCall adds a call of thread 42 in process 42 that starts at `at` and takes dur.
func (recording *TestRecording) AddCall(kind, name string, at, dur int64) *format.Row {
	return recording.AddRow(
		format.Row{
			Kind:        kind,
			Name:        name,
			StartNs:     Epoch + at,
			DurNs:       dur,
			Pid:         42,
			Tid:         42,
			StackStatus: format.StackNone,
		},
	)
}

// AddAlloc adds a successful cuMemAlloc.
func (recording *TestRecording) AddAlloc(at, dur, ptr, bytes int64) *format.Row {
	r := recording.AddCall(format.KindAlloc, "cuMemAlloc_v2", at, dur)
	r.Ptr, r.Bytes, r.MemoryKind = ptr, bytes, format.MemoryDevice
	return r
}

// AddFree adds a cuMemFree.
func (recording *TestRecording) AddFree(at, dur, ptr int64) *format.Row {
	r := recording.AddCall(format.KindFree, "cuMemFree_v2", at, dur)
	r.Ptr, r.MemoryKind = ptr, format.MemoryDevice
	return r
}

// AddStack adds a stack: a frame of libcuda, then the given functions, innermost first.
func (recording *TestRecording) AddStack(id int32, functions ...string) {
	r := recording.AddRow(
		format.Row{Kind: format.KindStack, StackID: id, StackStatus: format.StackComplete, Device: -1},
	)
	r.Frames = []format.Frame{
		{
			Func:       "cuMemAlloc_v2",
			SystemName: "cuMemAlloc_v2",
			Module:     "/usr/lib/libcuda.so.1",
			BuildID:    "c0da",
			Addr:       0x1000,
			Type:       "native",
		},
	}
	for i, f := range functions {
		r.Frames = append(r.Frames, format.Frame{
			Func:       f,
			SystemName: f,
			File:       "/src/train.cc",
			Line:       int32(10 * (i + 1)),
			Module:     "/app/train",
			BuildID:    "beef",
			Addr:       int64(0x2000 + 16*i),
			Type:       "native",
		})
	}
	for i := len(r.Frames) - 1; i >= 0; i-- {
		r.Stack += r.Frames[i].Func + ";"
	}
}

// SetStackAndSite sets the stack and the call site of a call.
func SetStackAndSite(r *format.Row, stack int32, site string) *format.Row {
	r.StackID, r.Site, r.StackStatus = stack, site, format.StackComplete
	return r
}

// WriteAndOpen writes the recording to a file and opens it.
func (recording *TestRecording) WriteAndOpen() *format.Recording {
	recording.t.Helper()
	w, err := format.Create(recording.Path, format.Options{Force: true})
	if err != nil {
		recording.t.Fatal(err)
	}
	byClass := make(map[format.Class][]format.Row)
	for _, r := range recording.Rows {
		byClass[format.ClassOf(r.Kind)] = append(byClass[format.ClassOf(r.Kind)], *r)
	}
	for class, rows := range byClass {
		if err := w.Write(class, rows); err != nil {
			recording.t.Fatal(err)
		}
	}
	if err := w.Finish(recording.Meta); err != nil {
		recording.t.Fatal(err)
	}
	return OpenRecording(recording.t, recording.Path)
}

// OpenRecording opens a recording. It is closed when the test ends.
func OpenRecording(t testing.TB, path string) *format.Recording {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	return rec
}

// Timeline writes the recording and opens it as a Timeline.
func (recording *TestRecording) Timeline() *timeline.Timeline {
	recording.t.Helper()
	rec := recording.WriteAndOpen()
	tl, err := timeline.Open(rec)
	if err != nil {
		recording.t.Fatal(err)
	}
	rec.Path = "run.parquet" // reports print it
	return tl
}

// TrainingRecording returns a recording of a training with a leak, a cache, a failed allocation,
// NVML samples and an Xid. It has 60 s of steps of 100 ms.
func TrainingRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.Meta.Calls = map[string]format.CallCount{"memory": {Seen: 1, Recorded: 1}}
	recording.AddRow(
		format.Row{
			Kind:    format.KindProcess,
			Name:    "train",
			Pid:     42,
			StartNs: Epoch,
			Device:  -1,
			Message: `{"exe":"/app/train"}`,
		},
	)
	recording.AddRow(format.Row{Kind: format.KindThread, Name: "main", Pid: 42, Tid: 42, StartNs: Epoch, Device: -1})
	recording.AddRow(format.Row{Kind: format.KindThread, Name: "loader", Pid: 42, Tid: 43, StartNs: Epoch, Device: -1})
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: Epoch})
	recording.AddStack(1, "load_weights", "main", "_start")
	recording.AddStack(2, "train_step", "main", "_start")
	recording.AddStack(3, "Cache::fill(int)", "train_step", "main", "_start")
	recording.AddStack(4, "log_metrics", "train_step", "main", "_start")
	next := int64(0x7f00_0000_0000)
	ptr := func(bytes int64) int64 { next += bytes + 512; return next }
	for i := range int64(8) {
		SetStackAndSite(
			recording.AddAlloc(500*Ms+i*10*Ms, 300*Us, ptr(512*Mib), 512*Mib),
			1,
			"load_weights (train.cc:10)",
		)
	}
	for step := range int64(580) {
		begin := 1500*Ms + step*100*Ms
		work := ptr(64 * Mib)
		SetStackAndSite(recording.AddAlloc(begin, 200*Us, work, 64*Mib), 2, "train_step (train.cc:10)")
		for k := range int64(3) {
			l := recording.AddCall(format.KindLaunch, "cuLaunchKernel", begin+Ms+k*Ms, 8*Us)
			l.Kernel, l.Stream, l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = "gemm<float>(int)", 7, 128, 1, 1, 256, 1, 1
		}
		recording.AddCall(format.KindSync, "cuStreamSynchronize", begin+5*Ms, 60*Ms)
		recording.AddFree(begin+70*Ms, 100*Us, work)
		if step < 100 {
			SetStackAndSite(
				recording.AddAlloc(begin+75*Ms, 100*Us, ptr(8*Mib), 8*Mib),
				3,
				"Cache::fill(int) (train.cc:10)",
			)
		}
		// never freed: the leak
		SetStackAndSite(recording.AddAlloc(begin+80*Ms, 50*Us, ptr(4*Mib), 4*Mib), 4, "log_metrics (train.cc:10)")
	}
	recording.AddFree(2*Second, 10*Us, 0x6f00_0000_0000) // a free of memory allocated before the recording
	failed := recording.AddAlloc(30*Second, 20*Us, 0, 200<<30)
	failed.Result = calls.ResultOutOfMemory
	h := recording.AddAlloc(700*Ms, 500*Us, 0x5555_0000_0000, 16*Mib)
	h.Name, h.MemoryKind, h.Tid = "cuMemHostAlloc", format.MemoryHost, 43
	open := recording.AddCall(format.KindSync, "cuStreamSynchronize", 59900*Ms, 100*Ms)
	open.Flags = format.FlagOpen
	for i := range int64(6) {
		for name, v := range map[string]float64{
			catalog.MetricMemoryUsed:  float64(10<<30 + i*240*Mib),
			catalog.MetricMemoryTotal: 140 << 30,
			"utilization_pct":         91.5,
		} {
			recording.AddRow(format.Row{Kind: format.KindNVML, Name: name, StartNs: Epoch + i*10*Second, Value: v})
		}
	}
	recording.AddRow(
		format.Row{Kind: format.KindXid, StartNs: Epoch + 31*Second, Pid: 42, Value: 31, Message: "MMU fault"},
	)
	return recording
}

// AddExit adds the end of a process.
func (recording *TestRecording) AddExit(pid int32, at int64) {
	recording.AddRow(
		format.Row{
			Kind:    format.KindProcess,
			Pid:     pid,
			StartNs: Epoch,
			Device:  -1,
			Message: fmt.Sprintf(`{"exit_ns":%d}`, Epoch+at),
		},
	)
}
