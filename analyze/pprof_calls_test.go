package analyze

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	pprofpkg "github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	kernelspkg "github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
)

// Two instances of one template, which pprof puts together where it takes their names for mangled ones.
const (
	addKernel = "void at::native::vec_kernel<4, at::native::Add<float>>(int, at::native::Add<float>)"
	mulKernel = "void at::native::vec_kernel<8, at::native::Mul<float>>(int, at::native::Mul<float>)"
)

// workload is a program that calls CUDA from Python through C++, with calls of every fate: captured, failed, nested, open, abandoned,
// without a recorded return.
func workload(t testing.TB) *tape {
	tp := newTape(t)
	for _, pid := range []int32{42, 77} {
		tp.add(format.Row{Kind: format.KindProcess, Name: "python3", Pid: pid, StartNs: epoch, Device: -1, Message: `{"exe":"/usr/bin/python3"}`})
		tp.add(format.Row{Kind: format.KindThread, Name: "main", Pid: pid, Tid: pid, StartNs: epoch, Device: -1})
	}
	tp.add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: epoch})
	for id, call := range map[int32]string{1: "cuLaunchKernel", 2: "cuMemcpyHtoD_v2", 3: "cuStreamSynchronize", 4: "cuGraphLaunch"} {
		tp.add(format.Row{Kind: format.KindStack, StackID: id, StackStatus: format.StackComplete, Device: -1, Frames: []format.Frame{
			{Func: call, SystemName: call, Module: "/usr/lib/libcuda.so.1", BuildID: "c0da", Addr: 0x1000 * int64(id), Type: "native"},
			{Func: "at::add(at::Tensor const&)", SystemName: "_ZN2at3addERKNS_6TensorE", Module: "/lib/libtorch.so", BuildID: "70c4", Addr: 0x77, Type: "native"},
			{Func: "forward", File: "/home/u/model.py", Line: 12, Type: "python"},
			{Func: "train; step", File: "/home/u/train.py", Line: 88, Type: "python"},
			{Func: "_start", SystemName: "_start", Module: "/usr/bin/python3", BuildID: "3333", Addr: 0x10, Type: "native"},
		}})
	}
	call := func(kind, name string, ms int64, stack int32) *format.Row {
		r := tp.call(kind, name, ms*1_000_000, 20*us)
		r.StackID, r.StackStatus, r.Stream = stack, format.StackComplete, 7
		return r
	}
	for i := range int64(40) {
		r := call(format.KindLaunch, "cuLaunchKernel", 10*i, 1)
		if r.Kernel = addKernel; i%4 == 0 {
			r.Kernel = mulKernel
		}
		switch {
		case i == 5:
			r.Flags = format.FlagCaptured
		case i == 6:
			r.Result = 1
		case i >= 30:
			r.Flags, r.DurNs = format.FlagNoReturn, 0
		case i == 7:
			r.Pid, r.Tid, r.Stream = 77, 77, 8
		}
		g := call(format.KindLaunch, "cuGraphLaunch", 10*i+1, 4)
		g.Value = 3
		c := call(format.KindMemcpy, "cuMemcpyHtoD_v2", 10*i+2, 2)
		c.CopyKind, c.Bytes = "HtoD", 1<<20+i
		in := call(format.KindMemcpy, "cuMemcpyHtoDAsync_v2", 10*i+2, 2)
		in.StartNs, in.DurNs, in.ParentStartNs, in.CopyKind, in.Bytes = c.StartNs+1000, 1000, c.StartNs, "HtoD", 1
		call(format.KindSync, "cuStreamSynchronize", 10*i+3, 3).DurNs = ms
		call(format.KindSync, "cuStreamQuery", 10*i+5, 3)
		call(format.KindAPI, "cuFuncGetAttribute", 10*i+6, 0)
	}
	a := call(format.KindSync, "cuStreamSynchronize", 500, 3)
	a.Flags, a.DurNs = format.FlagAbandoned, second
	o := call(format.KindSync, "cuEventSynchronize", 59_000, 3)
	o.Flags, o.DurNs = format.FlagOpen, second
	at(tp.alloc(ms, 30*us, 0x7000, mib), 0, "")
	return tp
}

func profileOf(t *testing.T, tl *timeline.Timeline, opt pprofpkg.Options) *profile.Profile {
	t.Helper()
	p, q, none, err := pprofpkg.Build(tl, opt)
	if err != nil || none != nil || q.Events == 0 {
		t.Fatal(err, none, q)
	}
	return throughFile(t, p)
}

func sums(p *profile.Profile) []int64 {
	got := make([]int64, len(p.SampleType))
	for _, s := range p.Sample {
		for i, v := range s.Value {
			got[i] += v
		}
	}
	return got
}

// The sums of a profile are those of the rows that it is about.
func TestCallProfilesAddUp(t *testing.T) {
	tp := workload(t)
	tl := tp.timeline()
	want := make(map[string][]int64)
	for _, name := range pprofpkg.Types()[2:] {
		want[name] = make([]int64, 2, 3)
	}
	want["copies"] = make([]int64, 3)
	for _, r := range tp.rows {
		class := format.ClassOf(r.Kind)
		if class != format.ClassCall && class != format.ClassMemory {
			continue
		}
		ns := r.DurNs
		if r.Flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
			ns = 0
		}
		add := func(name string, values ...int64) {
			for i, v := range values {
				want[name][i] += v
			}
		}
		ran := r.Result == 0 && r.Flags&format.FlagCaptured == 0
		switch {
		case r.Kind == format.KindLaunch && ran:
			add("launches", 1, ns)
		case r.Kind == format.KindMemcpy && ran:
			add("copies", 1, r.Bytes, ns)
		case r.Kind == format.KindSync && !strings.Contains(r.Name, "Query"):
			add("sync-time", 1, ns)
		}
		if r.ParentStartNs == 0 {
			add("api-time", 1, ns)
		}
	}
	for name, want := range want {
		if got := sums(profileOf(t, tl, pprofpkg.Options{Type: name})); !slices.Equal(got, want) || got[0] == 0 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	kernels, err := kernelspkg.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	launches, _, _ := kernels.Number("launches")
	graphs, _, _ := kernels.Number("graph_launches")
	if got := want["launches"][0]; got != int64(launches+graphs) {
		t.Errorf("%d launches, the report of kernels has %v and %v graphs", got, launches, graphs)
	}
	for f, want := range map[*query.Filter]int64{{Pids: []int32{77}}: 1, {Streams: []int64{8}}: 1, {FromNs: epoch + 391*ms}: 1, {ToNs: epoch}: 1} {
		if got := sums(profileOf(t, tl, pprofpkg.Options{Type: "launches", Options: query.Options{Filter: *f}})); got[0] != want {
			t.Errorf("%+v: %d launches, want %d", f, got[0], want)
		}
	}
	if _, _, none, err := pprofpkg.Build(tl, pprofpkg.Options{Type: "launches", Options: query.Options{Filter: query.Filter{Pids: []int32{5}}}}); err != nil || none == nil || none.Filter != "pid" {
		t.Errorf("%v, %v", none, err)
	}
	for _, wrong := range []pprofpkg.Options{{Type: "cpu"}, {RootBy: "moon"}} {
		if _, _, _, err := pprofpkg.Build(tl, wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

func TestProfilesBeginWithTheirRoot(t *testing.T) {
	tl := workload(t).timeline()
	for by, want := range map[string][]string{
		"thread": {"thread 42/42 main", "thread 77/77 main"}, "stream": {"stream 7 of process 42", "stream 8 of process 77"},
		"device": {"GPU 0 NVIDIA H200"}, "pid": {"process 42 python3", "process 77 python3"},
	} {
		var got []string
		for _, s := range profileOf(t, tl, pprofpkg.Options{Type: "launches", RootBy: by}).Sample {
			got = append(got, s.Location[len(s.Location)-1].Line[0].Function.Name)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("by %s: %q, want %q", by, got, want)
		}
	}
}

// At a moment the profile holds what the report of memory says was held then.
func TestHeapProfileAtAMoment(t *testing.T) {
	tp := training(t)
	tp.exit(42, 59*second+800*ms)
	tl := tp.timeline()
	for _, opt := range []memory.Options{
		{At: query.AtPeak}, {At: query.AtTime, AtNs: epoch + 20*second}, {At: query.AtTime, AtNs: epoch + 59*second + 900*ms},
		{At: query.AtPeak, Options: query.Options{Filter: query.Filter{ToNs: epoch + 10*second, FromNs: epoch + 5*second}}},
	} {
		r, err := memory.Run(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		held, _, _ := r.Number("held_bytes")
		var got int64
		p, _, _, err := pprofpkg.Build(tl, pprofpkg.Options{Options: opt.Options, At: opt.At, AtNs: opt.AtNs})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range throughFile(t, p).Sample {
			if s.Label["kind"][0] == format.MemoryDevice {
				got += s.Value[3]
			}
		}
		if got != int64(held) {
			t.Errorf("%+v: %d in use, %v held", opt, got, held)
		}
	}
	allocs := profileOf(t, tl, pprofpkg.Options{Type: "allocs", At: query.AtEnd})
	if allocs.DefaultSampleType != "alloc_space" || !slices.Equal(sums(allocs), sums(profileOf(t, tl, pprofpkg.Options{Type: "heap", At: query.AtEnd}))) {
		t.Error("allocs is not heap with another default")
	}
}

// Folded stacks are read as flamegraph.pl and speedscope do: frames by semicolons, the value behind the last space.
func TestFoldedStacksSayWhatTheProfileDoes(t *testing.T) {
	p := profileOf(t, workload(t).timeline(), pprofpkg.Options{Type: "launches", RootBy: "thread"})
	for _, sampleType := range []string{"", "launches", "launch_cpu"} {
		var b bytes.Buffer
		lines, err := pprofpkg.Folded(&b, p, sampleType)
		if err != nil || lines != bytes.Count(b.Bytes(), []byte("\n")) {
			t.Fatal(lines, err)
		}
		var sum int64
		for line := range strings.Lines(b.String()) { // as flamegraph.pl splits it
			parts := regexp.MustCompile(`^(.*)\s+?(\d+(?:\.\d*)?)\n$`).FindStringSubmatch(line)
			if parts == nil || len(strings.Split(parts[1], ";")) != 7 {
				t.Fatalf("%q cannot be read", line)
			}
			n, err := strconv.ParseInt(parts[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if want := sums(p)[max(0, slices.Index(pprofpkg.SampleTypes(p), sampleType))]; sum != want {
			t.Errorf("%s: %d, want %d", sampleType, sum, want)
		}
		if sampleType == "" {
			golden(t, "folded.txt", b.Bytes())
		}
	}
	if _, err := pprofpkg.Folded(&bytes.Buffer{}, p, "alloc_space"); err == nil || !strings.Contains(err.Error(), "launches, launch_cpu") {
		t.Error(err)
	}
}
