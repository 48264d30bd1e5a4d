package analyze

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
)

func TestAContextAsArenaIsNoLeak(t *testing.T) {
	arena := func(tp *tape, keep int64) {
		for i := range int64(50) {
			context := 0xc0 + i
			for k := range int64(10) {
				in(at(tp.alloc(second+i*second+k*10*ms, us, 0x7f0000000000+k*mib+i<<32, 8*mib), 1, "x"), context, 0)
			}
			if i < keep {
				tp.api("cuCtxDestroy_v2", second+i*second+500*ms, context, 0)
			}
		}
	}
	for name, c := range map[string]struct {
		tape func(*tape)
		want string
	}{
		"a context per step, all destroyed but the last": {func(tp *tape) { arena(tp, 49) }, "churn"},
		"a context per step, none destroyed":             {func(tp *tape) { arena(tp, 0) }, "growing"},
		"one context, reset before the end": {func(tp *tape) {
			tp.api("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
			for i := range int64(500) {
				in(at(tp.alloc(second+i*100*ms, us, 0x7f0000000000+i*mib, mib), 1, "x"), 0xd0, 0)
			}
			tp.api("cuDevicePrimaryCtxReset_v2", 52*second, 0, 0)
			tp.exit(42, 53*second)
		}, "growing"},
		"one block, and a reset before the end": {func(tp *tape) {
			at(tp.alloc(second, us, 0x1000, 8), 1, "y")
			in(at(tp.alloc(30*second, us, 0x2000, mib), 1, "x"), 0xd0, 0)
			tp.api("cuDevicePrimaryCtxReset_v2", 52*second, 0, 0)
		}, "exit leak"},
	} {
		tp := newTape(t)
		c.tape(tp)
		if got := verdicts(t, tp, query.Options{})["x"]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// surface is a recording of a program that uses everything but cuMemAlloc.
func surface(t *testing.T) *tape {
	const va, page = int64(0x300000000), int64(2) << 20
	tp := newTape(t)
	tp.add(format.Row{Kind: format.KindProcess, Name: "server", Pid: 42, StartNs: epoch, Device: -1, Message: `{"exe":"/app/server"}`})
	tp.add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: epoch})
	tp.stack(1, "Segment::map", "Arena::grow", "main", "_start")
	tp.stack(2, "Staging::Staging", "main", "_start")
	tp.api("cuDevicePrimaryCtxRetain", 1*ms, 0xd0, 0)
	tp.api("cuDeviceGetDefaultMemPool", 2*ms, 0xf00, 0)
	for i := range int64(100) {
		begin := second + i*500*ms
		in(at(tp.create(begin, 0x1010+i, page), 1, "Arena::grow (arena.cc:20)"), 0xd0, 0)
		tp.mapAt(begin+ms, va+i*page, page, 0x1010+i)
		tp.release(begin+2*ms, 0x1010+i)
		a := in(tp.memory(format.KindAlloc, format.MemoryAsync, begin+3*ms, 0x7f0000000000, 3*page), 0xd0, 0)
		a.Name, a.Stream = "cuMemAllocAsync", 7
		tp.memory(format.KindFree, format.MemoryAsync, begin+4*ms, 0x7f0000000000, 0).Stream = 7
		for k := range int64(4) {
			l := in(tp.call(format.KindLaunch, "cuLaunchKernel", begin+5*ms+k*us, 500), 0xd0, 0)
			l.Kernel = fmt.Sprintf("at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<c10::complex<%s> >, std::array<char*, 3ul> >", []string{"float", "double"}[k%2])
			if i == 0 {
				l.Flags = format.FlagCaptured
			}
		}
		g := in(tp.call(format.KindLaunch, "cuGraphLaunch_ptsz", begin+6*ms, 900), 0xd0, 0)
		g.Ptr, g.Value = 0x6000, 4
		info := in(tp.api("cuMemGetInfo_v2", begin+7*ms, 0, 0), 0xd0, 0)
		info.Bytes, info.Value = 100<<30-i*page, float64(140<<30)
		pool := in(tp.api("cuMemPoolGetAttribute", begin+8*ms, 0xf00, 0), 0xd0, 0)
		pool.Bytes, pool.Value = 64*mib, timeline.PoolReservedCurrent
	}
	in(at(tp.memory(format.KindAlloc, format.MemoryRegistered, 30*second, 0x550000000000, 32*mib), 2, "Staging::Staging (staging.cc:5)"), 0xd0, 0)
	in(at(tp.memory(format.KindAlloc, format.MemoryArray, 31*second, 0x551000000000, 4*mib), 2, "Staging::Staging (staging.cc:5)"), 0xd0, 0)
	tp.memory(format.KindBorrow, format.MemoryIPC, 32*second, 0x7e0000000000, 0)
	tp.memory(format.KindBorrow, format.MemoryExternal, 33*second, 0x8000, 16*mib)
	tp.memory(format.KindReturn, format.MemoryExternal, 34*second, 0x8000, 0)
	node := tp.api("cuGraphAddMemAllocNode", 35*second, 0x7d0000000000, 0)
	node.MemoryKind, node.Bytes = format.MemoryGraph, 8*mib
	return tp
}

func TestReportsOfTheWholeSurface(t *testing.T) {
	tl := surface(t).timeline()
	for command, make := range map[string]func(query.Options) (*report.Report, error){"leaks": func(p0 query.Options) (*report.Report, error) { return leaks.Run(tl, p0) }, "summary": func(p0 query.Options) (*report.Report, error) { return summary.Run(tl, p0) }} {
		r, err := make(query.Options{Top: 20, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "surface."+command+".table", rendered(t, r, render.Options{Width: 100}))
		golden(t, "surface."+command+".json", rendered(t, r, render.Options{Format: "json"}))
		for name, want := range map[string]float64{"kernels_run": 396 + 400, "captured_launches": 4, "graph_launches": 100, "borrowed_opened": 2, "borrowed_open": 1,
			"borrowed_bytes": float64(16 * mib), "graph_allocs": 1, "growing": 1} {
			if got, _, known := r.Number(name); known && got != want || !known && command == "summary" {
				t.Errorf("%s: %s = %v, want %v", command, name, got, want)
			}
		}
		if oom, ok, _ := r.Number("oom_in_ns"); !ok || oom <= 0 {
			t.Errorf("%s: out of memory in %v, though cuMemGetInfo tells what is free", command, oom)
		}
	}
	d, _ := traced(t, tl, perfetto.Options{})
	counters := make(map[string]int)
	for track, values := range d.counters {
		for _, name := range []string{perfetto.DeviceFree, "live memory (physical)", "live memory (registered)"} {
			if strings.HasSuffix(track, name) {
				counters[name] += len(values)
			}
		}
	}
	if counters[perfetto.DeviceFree] != 100 || counters["live memory (physical)"] != 100 || counters["live memory (registered)"] != 1 {
		t.Errorf("counters %v", counters)
	}
}

func TestStacksOfRowsThatAreNoLeakAreForThoseWhoAsk(t *testing.T) {
	tl := training(t).timeline()
	show := func(opt query.Options) string {
		r, err := leaks.Run(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		if r.Tables[0].Rows[4].Stack == nil {
			t.Error("JSON lacks the stack of a churn row")
		}
		return string(rendered(t, r, render.Options{Width: 100}))
	}
	for name, text := range map[string]string{"by default": show(query.Options{}), "all stacks": show(query.Options{AllStacks: true}), "all frames": show(query.Options{AllFrames: true})} {
		_, evidence, _ := strings.Cut(text, "\n\n")
		if got := strings.Contains(evidence, "churn: train_step"); got != (name != "by default") {
			t.Errorf("%s: a churn row with stack: %v", name, got)
		}
		if !strings.Contains(evidence, "growing: log_metrics") || !strings.Contains(evidence, "retained: Cache::fill") {
			t.Errorf("%s: leaks without stack", name)
		}
	}
}

func TestShortKernelNamesAreDifferent(t *testing.T) {
	stats := make(map[string]*calls.Stats)
	for _, name := range []string{"k<A<long long, double>>", "k<A<int, float, int>>", "k<A<int, float, long>>", "k<B<int>>", "k<B<long>>", "gemm"} {
		stats[name] = new(calls.Stats)
	}
	got := calls.ShortKernels(stats)
	want := map[string]string{"k<A<int, float, int>>": "k<A<...>> #1", "k<A<int, float, long>>": "k<A<...>> #2", "k<A<long long, double>>": "k<A<...>> #3",
		"k<B<int>>": "k<B<int>>", "k<B<long>>": "k<B<long>>", "gemm": "gemm"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCutTextsStayDifferent(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{[]string{"short", "shorter"}, "short|shorter"},
		{[]string{"abcdefghijklmnopqrstuvwxyz", "other"}, "abcdefghijklmno…|other"},
		{[]string{"abcdefghijklmnopqrstuvwxyz #1", "abcdefghijklmnopqrstuvwxyz #2"}, "abcdefghijkl… #1|abcdefghijkl… #2"},
		{[]string{"abcdefghijklmnopqrstuvwx=1=", "abcdefghijklmnopqrstuvwx=2=", "abc"}, "abcdefgh…uvwx=1=|abcdefgh…uvwx=2=|abc"},
		{[]string{"abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"}, "abcdefghijklmno…|abcdefghijklmno…"},
	} {
		var rows [][]string
		for _, text := range c.texts {
			rows = append(rows, []string{text})
		}
		render.CutCells(rows, []int{16})
		var got []string
		for _, row := range rows {
			got = append(got, row[0])
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestWrapped(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three", 0, ">one two three\n"},
		{"one two three", 8, ">one two\n..three\n"},
		{"one two three", 3, ">one\n..two\n..three\n"},
		{"", 8, ">\n"},
	} {
		if got := render.Wrapped(c.text, ">", "..", c.width); got != c.want {
			t.Errorf("%q at %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
	if render.Wrapped("日本語 日本語", "", "", 7) != "日本語 日本語\n" {
		t.Error("width is counted in bytes")
	}
}
