package analyze

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	timelinepkg "github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// epoch is when test recordings begin.
const epoch = int64(1_790_000_000_000_000_000)

const (
	second = int64(time.Second)
	ms     = int64(time.Millisecond)
	us     = int64(time.Microsecond)
	mib    = int64(1) << 20
)

// tape collects rows of a made-up recording. Its methods return the row, so that a
// test can change what is special about it.
type tape struct {
	t    testing.TB
	meta format.Meta
	rows []*format.Row
	path string
}

func newTape(t testing.TB) *tape {
	return &tape{t: t, path: filepath.Join(t.TempDir(), "run.parquet"), meta: format.Meta{
		GpurecVersion: "v0.0.0-test", Command: []string{"gpurec", "record"}, Host: "box", StartNs: epoch, EndNs: epoch + 60*second,
		ClockOffsetNs: epoch - 1000*second, Stacks: "fp", Attach: "uprobe_multi",
	}}
}

func (tp *tape) add(r format.Row) *format.Row {
	tp.rows = append(tp.rows, &r)
	return &r
}

// call adds a call that starts at (from the beginning of the recording).
func (tp *tape) call(kind, name string, at, dur int64) *format.Row {
	return tp.add(format.Row{Kind: kind, Name: name, StartNs: epoch + at, DurNs: dur, Pid: 42, Tid: 42, StackStatus: format.StackNone})
}

func (tp *tape) alloc(at, dur, ptr, bytes int64) *format.Row {
	r := tp.call(format.KindAlloc, "cuMemAlloc_v2", at, dur)
	r.Ptr, r.Bytes, r.MemoryKind = ptr, bytes, format.MemoryDevice
	return r
}

func (tp *tape) free(at, dur, ptr int64) *format.Row {
	r := tp.call(format.KindFree, "cuMemFree_v2", at, dur)
	r.Ptr, r.MemoryKind = ptr, format.MemoryDevice
	return r
}

// stack adds a stack whose frames are given leaf first, above a frame of libcuda.
func (tp *tape) stack(id int32, functions ...string) {
	r := tp.add(format.Row{Kind: format.KindStack, StackID: id, StackStatus: format.StackComplete, Device: -1})
	r.Frames = []format.Frame{{Func: "cuMemAlloc_v2", SystemName: "cuMemAlloc_v2", Module: "/usr/lib/libcuda.so.1", BuildID: "c0da", Addr: 0x1000, Type: "native"}}
	for i, f := range functions {
		r.Frames = append(r.Frames, format.Frame{
			Func: f, SystemName: f, File: "/src/train.cc", Line: int32(10 * (i + 1)), Module: "/app/train", BuildID: "beef", Addr: int64(0x2000 + 16*i), Type: "native",
		})
	}
	for i := len(r.Frames) - 1; i >= 0; i-- {
		r.Stack += r.Frames[i].Func + ";"
	}
}

// at gives a call its place.
func at(r *format.Row, stack int32, site string) *format.Row {
	r.StackID, r.Site, r.StackStatus = stack, site, format.StackComplete
	return r
}

// record writes the recording and returns it opened.
func (tp *tape) record() *format.Recording {
	tp.t.Helper()
	w, err := format.Create(tp.path, format.Options{Force: true})
	if err != nil {
		tp.t.Fatal(err)
	}
	byClass := make(map[format.Class][]format.Row)
	for _, r := range tp.rows {
		byClass[format.ClassOf(r.Kind)] = append(byClass[format.ClassOf(r.Kind)], *r)
	}
	for class, rows := range byClass {
		if err := w.Write(class, rows); err != nil {
			tp.t.Fatal(err)
		}
	}
	if err := w.Finish(tp.meta); err != nil {
		tp.t.Fatal(err)
	}
	return openRecording(tp.t, tp.path)
}

func openRecording(t testing.TB, path string) *format.Recording {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	return rec
}

func (tp *tape) timeline() *timelinepkg.Timeline {
	tp.t.Helper()
	tl, err := timelinepkg.Open(tp.record())
	if err != nil {
		tp.t.Fatal(err)
	}
	return tl
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./analyze -update writes it", err)
	}
	if string(want) != string(got) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

// skip skips a test that lacks a tool, or fails it where everything must run.
func skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("GPUREC_MUST_RUN") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// training is a recording with everything in it: 60 s of steps of 100 ms.
func training(t testing.TB) *tape {
	tp := newTape(t)
	tp.meta.Calls = map[string]format.CallCount{"memory": {Seen: 1, Recorded: 1}}
	tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1, Message: `{"exe":"/app/train"}`})
	tp.add(format.Row{Kind: format.KindThread, Name: "main", Pid: 42, Tid: 42, StartNs: epoch, Device: -1})
	tp.add(format.Row{Kind: format.KindThread, Name: "loader", Pid: 42, Tid: 43, StartNs: epoch, Device: -1})
	tp.add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: epoch})
	tp.stack(1, "load_weights", "main", "_start")
	tp.stack(2, "train_step", "main", "_start")
	tp.stack(3, "Cache::fill(int)", "train_step", "main", "_start")
	tp.stack(4, "log_metrics", "train_step", "main", "_start")
	next := int64(0x7f00_0000_0000)
	ptr := func(bytes int64) int64 { next += bytes + 512; return next }
	for i := range int64(8) {
		at(tp.alloc(500*ms+i*10*ms, 300*us, ptr(512*mib), 512*mib), 1, "load_weights (train.cc:10)")
	}
	for step := range int64(580) {
		begin := 1500*ms + step*100*ms
		work := ptr(64 * mib)
		at(tp.alloc(begin, 200*us, work, 64*mib), 2, "train_step (train.cc:10)")
		for k := range int64(3) {
			l := tp.call(format.KindLaunch, "cuLaunchKernel", begin+ms+k*ms, 8*us)
			l.Kernel, l.Stream, l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = "gemm<float>(int)", 7, 128, 1, 1, 256, 1, 1
		}
		tp.call(format.KindSync, "cuStreamSynchronize", begin+5*ms, 60*ms)
		tp.free(begin+70*ms, 100*us, work)
		if step < 100 {
			at(tp.alloc(begin+75*ms, 100*us, ptr(8*mib), 8*mib), 3, "Cache::fill(int) (train.cc:10)")
		}
		at(tp.alloc(begin+80*ms, 50*us, ptr(4*mib), 4*mib), 4, "log_metrics (train.cc:10)") // leaks
	}
	tp.free(2*second, 10*us, 0x6f00_0000_0000) // from before the recording
	failed := tp.alloc(30*second, 20*us, 0, 200<<30)
	failed.Result = calls.ResultOutOfMemory
	h := tp.alloc(700*ms, 500*us, 0x5555_0000_0000, 16*mib)
	h.Name, h.MemoryKind, h.Tid = "cuMemHostAlloc", format.MemoryHost, 43
	open := tp.call(format.KindSync, "cuStreamSynchronize", 59900*ms, 100*ms)
	open.Flags = format.FlagOpen
	for i := range int64(6) {
		for name, v := range map[string]float64{catalog.MetricMemoryUsed: float64(10<<30 + i*240*mib), catalog.MetricMemoryTotal: 140 << 30, "utilization_pct": 91.5} {
			tp.add(format.Row{Kind: format.KindNVML, Name: name, StartNs: epoch + i*10*second, Value: v})
		}
	}
	tp.add(format.Row{Kind: format.KindXid, StartNs: epoch + 31*second, Pid: 42, Value: 31, Message: "MMU fault"})
	return tp
}

func (tp *tape) exit(pid int32, at int64) {
	tp.add(format.Row{Kind: format.KindProcess, Pid: pid, StartNs: epoch, Device: -1, Message: fmt.Sprintf(`{"exit_ns":%d}`, epoch+at)})
}
