package analyze

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	hangpkg "github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/format"
)

// working adds a thread that makes a call of a function every 100 ms.
func (tp *tape) working(pid, tid int32, from, to int64, kind, name string) {
	for at := from; at < to; at += 100 * ms {
		r := tp.call(kind, name, at, us)
		r.Pid, r.Tid, r.Stream, r.Context = pid, tid, 7, 0xc1
		if kind == format.KindLaunch {
			r.Kernel, r.GridX, r.GridY, r.GridZ, r.BlockX, r.BlockY, r.BlockZ = "gemm<float>(int)", 64, 1, 1, 256, 1, 1
		}
	}
}

// opened adds a call of a thread that has not returned at the end.
func (tp *tape) opened(pid, tid int32, at int64, kind, name string) *format.Row {
	r := tp.call(kind, name, at, 60*second-at)
	r.Pid, r.Tid, r.Stream, r.Context, r.Flags = pid, tid, 7, 0xc1, format.FlagOpen
	return r
}

func (tp *tape) counted(at, dur int64, value float64) {
	tp.add(format.Row{Kind: format.KindCount, Name: "cuEventQuery", StartNs: epoch + at, DurNs: dur, Value: value, Device: -1})
}

func hang(t *testing.T, tp *tape, opt hangpkg.Options) *report.Report {
	t.Helper()
	r, err := hangpkg.Run(tp.timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHangVerdicts(t *testing.T) {
	const launch, sync = format.KindLaunch, format.KindSync
	for name, c := range map[string]struct {
		tape func(*tape)
		want string // of threads: verdict confidence
	}{
		"works to the end": {func(tp *tape) { tp.working(42, 42, 0, 60*second, launch, "cuLaunchKernel") }, "alive high"},
		"a call that does not end": {func(tp *tape) {
			tp.working(42, 42, 0, 30*second, launch, "cuLaunchKernel")
			tp.opened(42, 42, 30*second, sync, "cuStreamSynchronize")
		}, "hanging high"},
		"a call that just began": {func(tp *tape) {
			tp.working(42, 42, 0, 60*second, launch, "cuLaunchKernel")
			tp.opened(42, 42, 59900*ms, sync, "cuStreamSynchronize")
		}, "alive high"},
		"such calls take long": {func(tp *tape) {
			tp.call(sync, "cuStreamSynchronize", second, 20*second)
			tp.opened(42, 42, 30*second, sync, "cuStreamSynchronize")
		}, "waiting high"},
		"three times as long": {func(tp *tape) {
			tp.call(sync, "cuStreamSynchronize", second, 10*second)
			tp.opened(42, 42, 30*second, sync, "cuStreamSynchronize")
		}, "hanging high"},
		"another thread goes on": {func(tp *tape) {
			tp.opened(42, 42, 30*second, sync, "cuStreamSynchronize")
			tp.working(42, 43, 0, 60*second, launch, "cuLaunchKernel")
		}, "waiting high, alive high"},
		"calls end": {func(tp *tape) { tp.working(42, 42, 0, 30*second, launch, "cuLaunchKernel") }, "idle high"},
		"pauses are usual": {func(tp *tape) {
			tp.working(42, 42, 0, second, launch, "cuLaunchKernel")
			tp.working(42, 42, 20*second, 50*second, launch, "cuLaunchKernel")
		}, "alive high"},
		"hardly ever did a thing": {func(tp *tape) { tp.working(42, 42, 0, 300*ms, launch, "cuLaunchKernel") }, "idle medium"},
		"the process has ended":   {func(tp *tape) { tp.working(42, 42, 0, 300*ms, launch, "cuLaunchKernel"); tp.exit(42, second) }, "ended high"},
		"asks in a loop": {func(tp *tape) {
			tp.working(42, 42, 0, 30*second, launch, "cuLaunchKernel")
			tp.counted(30*second, 30*second, 30e6)
		}, "polling high"},
		"a watchdog asks": {func(tp *tape) {
			tp.working(42, 42, 0, 30*second, launch, "cuLaunchKernel")
			tp.counted(30*second, 30*second, 300)
		}, "idle high"},
		"asked while it was busy": {func(tp *tape) {
			tp.working(42, 42, 0, 30*second, launch, "cuLaunchKernel")
			tp.counted(0, 30*second, 30e6)
		}, "idle high"},
		"calls were lost meanwhile": {func(tp *tape) {
			tp.opened(42, 42, 30*second, sync, "cuCtxSynchronize")
			tp.add(format.Row{Kind: format.KindLost, Name: "launch", StartNs: epoch + 40*second, DurNs: second, Value: 7})
		}, "hanging low"},
		"calls were lost before": {func(tp *tape) {
			tp.opened(42, 42, 30*second, sync, "cuCtxSynchronize")
			tp.add(format.Row{Kind: format.KindLost, Name: "launch", StartNs: epoch, DurNs: second, Value: 7})
		}, "hanging high"},
		"may be inside of a launch": {func(tp *tape) {
			tp.working(42, 42, 0, 30*second, launch, "cuLaunchKernel")
			r := tp.call(launch, "cuLaunchKernel", 31*second, 0)
			r.Flags = format.FlagNoReturn
		}, "idle medium"},
	} {
		tp := newTape(t)
		tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1})
		c.tape(tp)
		r := hang(t, tp, hangpkg.Options{})
		var got []string
		levels := cells(t, r, "threads", "confidence")
		for i, v := range cells(t, r, "threads", "verdict") {
			got = append(got, v+" "+levels[i])
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: %s, want %s", name, s, c.want)
		}
	}
}

// ranks is a training of four, one of which goes to another place and never comes to the collective.
func ranks(t testing.TB) *tape {
	tp := newTape(t)
	tp.add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: epoch})
	tp.stack(1, "all_reduce", "train_step", "main", "_start")
	for pid := int32(42); pid < 46; pid++ {
		tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: epoch, Device: -1, Message: `{"exe":"/app/train"}`})
		tp.add(format.Row{Kind: format.KindThread, Name: "main", Pid: pid, Tid: pid, StartNs: epoch, Device: -1})
		end := 40 * second
		if pid == 44 {
			end = 38 * second
		}
		tp.working(pid, pid, int64(pid-42)*ms, end, format.KindLaunch, "cuLaunchKernel")
		if pid == 44 {
			continue
		}
		l := tp.call(format.KindLaunch, "cuLaunchKernelEx", end, us)
		l.Pid, l.Tid, l.Stream, l.Context, l.Kernel = pid, pid, 9, 0xc1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
		e := tp.call(format.KindAPI, "cuEventRecord", end+ms, us)
		e.Pid, e.Tid, e.Stream, e.Context, e.Ptr = pid, pid, 9, 0xc1, 0xe1
		w := at(tp.opened(pid, pid, end+2*ms, format.KindSync, "cuEventSynchronize"), 1, "all_reduce (train.cc:10)")
		w.Ptr, w.Stream = 0xe1, 0
	}
	tp.call(format.KindSync, "cuStreamSynchronize", 5*second, 2*second)
	for i := range int64(60) {
		tp.nvml(0, i*second, catalog.MetricGPUBusy, 100)
		tp.nvml(0, i*second, catalog.MetricSMActive, 3)
	}
	tp.xid(37*second, 0, 44, 31, format.XidFact{Process: "train", Text: "MMU Fault", Sources: []string{"kmsg"}})
	tp.counted(0, 60*second, 600)
	return tp
}

func TestTheRankThatIsMissingIsNamed(t *testing.T) {
	r := hang(t, ranks(t), hangpkg.Options{Options: query.Options{Top: 20, MaxFrames: 12}})
	goldens(t, r, "hang", 110)
	if got := fmt.Sprint(cells(t, r, "processes", "verdict"), cells(t, r, "processes", "pid")); got != "[hanging hanging hanging idle] [42 43 45 44]" {
		t.Error(got)
	}
	for i, odd := range cells(t, r, "processes", "odd") {
		if (odd != "<nil>") != (i == 3) {
			t.Errorf("process %d: %s", i, odd)
		}
	}
	if text := string(rendered(t, r, render.Options{})); !strings.Contains(text, "look at    44 train: it launched its last kernel 2.10s before") ||
		!strings.Contains(text, "those spin while a peer is missing") || !strings.Contains(text, "event 0xe1, recorded on stream 9 1.0ms before") {
		t.Error(text)
	}
}

// silentTape is a recording of a process that makes no call.
func silentTape(t testing.TB) *tape {
	tp := newTape(t)
	tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1})
	return tp
}

func TestHangBeforeTheRecordingIsSilence(t *testing.T) {
	goldens(t, hang(t, silentTape(t), hangpkg.Options{}), "hangsilent", 110)
	for name, c := range map[string]struct {
		tape func(*tape)
		want string
	}{
		"silent": {func(*tape) {}, "silent: process 42 train made no CUDA call in the 1m0s that were recorded"},
		"two": {func(tp *tape) {
			tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 43, StartNs: epoch, Device: -1})
		}, "silent: 2 processes, such as 42 train, made no CUDA call"},
		"asks in a loop":  {func(tp *tape) { tp.counted(0, 60*second, 60e6) }, "polling: process 42 train made no CUDA call but 1,000,000 queries"},
		"a watchdog asks": {func(tp *tape) { tp.counted(0, 60*second, 600) }, "silent: "},
		"has ended":       {func(tp *tape) { tp.exit(42, second) }, "no call was recorded, and no process is known that runs on"},
		"calls were lost": {func(tp *tape) {
			tp.meta.Calls = map[string]format.CallCount{"launch": {Seen: 7, Lost: 7}}
		}, "not known: no call was recorded, with 7 calls lost"},
	} {
		tp := silentTape(t)
		c.tape(tp)
		r := hang(t, tp, hangpkg.Options{})
		result := fmt.Sprint(r.Facts[0].Value)
		if !strings.HasPrefix(result, c.want) {
			t.Errorf("%s: %s", name, result)
		}
		if advice := fmt.Sprint(r.Facts[1].Value); strings.Contains(advice, "py-spy dump -p 42 ") == (name == "has ended") {
			t.Errorf("%s: advice %q", name, advice)
		}
	}
}

func TestHangOfOneSilentProcess(t *testing.T) {
	tp := silentTape(t)
	tp.add(format.Row{Kind: format.KindProcess, Name: "eval", Pid: 43, StartNs: epoch, Device: -1})
	tp.working(44, 44, 0, 60*second, format.KindLaunch, "cuLaunchKernel")
	r := hang(t, tp, hangpkg.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{43}}}})
	if result := fmt.Sprint(r.Facts[0].Value); r.NoMatch != nil || !strings.HasPrefix(result, "silent: process 43 eval made no CUDA call") {
		t.Errorf("%v, %s", r.NoMatch, result)
	}
	if r = hang(t, tp, hangpkg.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{45}}}}); r.NoMatch == nil {
		t.Error("a process that nobody recorded matches")
	}
}

func TestHangLooksAtAnyMoment(t *testing.T) {
	tp := newTape(t)
	tp.working(42, 42, 0, 10*second, format.KindLaunch, "cuLaunchKernel")
	tp.call(format.KindSync, "cuStreamSynchronize", 10*second, 20*second)
	tp.working(42, 42, 30*second, 60*second, format.KindLaunch, "cuLaunchKernel")
	for to, want := range map[int64]string{5 * second: "alive", 25 * second: "hanging", 60 * second: "alive"} {
		r := hang(t, tp, hangpkg.Options{Options: query.Options{Filter: query.Filter{ToNs: epoch + to}}})
		if got := cells(t, r, "threads", "verdict")[0]; got != want {
			t.Errorf("at %v: %s, want %s", to/second, got, want)
		}
	}
	r := hang(t, tp, hangpkg.Options{})
	if got := cells(t, r, "long_calls", "dur_ns"); fmt.Sprint(got) != "[20000000000]" {
		t.Error(got)
	}
	if n := len(cells(t, hang(t, tp, hangpkg.Options{LongNs: 21 * second}), "long_calls", "dur_ns")); n != 0 {
		t.Errorf("%d long calls", n)
	}
}

func TestHangIsSafeAndFits(t *testing.T) {
	for _, tp := range []*tape{hostileTape(t), ranks(t), newTape(t)} {
		r := hang(t, tp, hangpkg.Options{})
		safe(t, r)
	}
}
