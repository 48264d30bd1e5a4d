package pprof

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func profileOf(t *testing.T, tl *timeline.Timeline, opt Options) *profile.Profile {
	t.Helper()
	p, q, none, err := BuildProfile(tl, opt)
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

// TestCallProfilesAddUp compares the sums of each profile with sums over the rows of the recording.
func TestCallProfilesAddUp(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.WorkloadRecording(t)
	tl := recording.Timeline()
	want := make(map[string][]int64)
	for _, name := range callTypesWithoutGPU() {
		want[name] = make([]int64, 2, 3)
	}
	want["copies"] = make([]int64, 3)
	for _, r := range recording.Rows {
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
		if got := sums(profileOf(t, tl, Options{Type: name})); !slices.Equal(got, want) || got[0] == 0 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	kernelReport, err := kernels.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	launches, _, _ := kernelReport.FindNumber("launches")
	graphs, _, _ := kernelReport.FindNumber("graph_launches")
	if got := want["launches"][0]; got != int64(launches+graphs) {
		t.Errorf("%d launches, the report of kernels has %v and %v graphs", got, launches, graphs)
	}
	for f, want := range map[*query.Filter]int64{
		{Pids: []int32{77}}:                              1,
		{Streams: []int64{8}}:                            1,
		{FromNs: analyzetest.Epoch + 391*analyzetest.Ms}: 1,
		{ToNs: analyzetest.Epoch}:                        1,
	} {
		if got := sums(
			profileOf(t, tl, Options{Type: "launches", Options: query.Options{Filter: *f}}),
		); got[0] != want {
			t.Errorf("%+v: %d launches, want %d", f, got[0], want)
		}
	}
	if _, _, none, err := BuildProfile(
		tl,
		Options{Type: "launches", Options: query.Options{Filter: query.Filter{Pids: []int32{5}}}},
	); err != nil || none == nil ||
		none.Filter != "pid" {
		t.Errorf("%v, %v", none, err)
	}
	for _, wrong := range []Options{{Type: "cpu"}, {RootBy: "moon"}} {
		if _, _, _, err := BuildProfile(tl, wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

func TestProfilesBeginWithTheirRoot(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.WorkloadRecording(t).Timeline()
	for by, want := range map[string][]string{
		"thread": {"thread 42/42 main", "thread 77/77 main"},
		"stream": {"stream 7 of process 42", "stream 8 of process 77"},
		"device": {"GPU 0 NVIDIA H200"}, "pid": {"process 42 python3", "process 77 python3"},
	} {
		var got []string
		for _, s := range profileOf(t, tl, Options{Type: "launches", RootBy: by}).Sample {
			got = append(got, s.Location[len(s.Location)-1].Line[0].Function.Name)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("by %s: %q, want %q", by, got, want)
		}
	}
}

// TestHeapProfileAtAMoment compares the memory profile at several moments with the report memory.
func TestHeapProfileAtAMoment(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	recording.AddExit(42, 59*analyzetest.Second+800*analyzetest.Ms)
	tl := recording.Timeline()
	for _, opt := range []memory.Options{
		{At: query.MomentPeak},
		{At: query.MomentGivenTime, AtNs: analyzetest.Epoch + 20*analyzetest.Second},
		{At: query.MomentGivenTime, AtNs: analyzetest.Epoch + 59*analyzetest.Second + 900*analyzetest.Ms},
		{At: query.MomentPeak, Options: query.Options{Filter: query.Filter{ToNs: analyzetest.Epoch + 10*analyzetest.Second, FromNs: analyzetest.Epoch + 5*analyzetest.Second}}},
	} {
		r, err := memory.RunWithOptions(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		heldBytes, _, _ := r.FindNumber("held_bytes")
		var got int64
		p, _, _, err := BuildProfile(tl, Options{Options: opt.Options, At: opt.At, AtNs: opt.AtNs})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range throughFile(t, p).Sample {
			if s.Label["kind"][0] == format.MemoryDevice {
				got += s.Value[3]
			}
		}
		if got != int64(heldBytes) {
			t.Errorf("%+v: %d bytes in use, the report memory has %v", opt, got, heldBytes)
		}
	}
	allocs := profileOf(t, tl, Options{Type: "allocs", At: query.MomentEnd})
	if allocs.DefaultSampleType != "alloc_space" ||
		!slices.Equal(sums(allocs), sums(profileOf(t, tl, Options{Type: "heap", At: query.MomentEnd}))) {
		t.Error("the profile allocs differs from heap in more than the default sample type")
	}
}

// TestFoldedStacksMatchProfile parses folded stacks as flamegraph.pl and speedscope do: semicolons
// separate frames, and the value follows the last space.
func TestFoldedStacksMatchProfile(t *testing.T) {
	testclass.Unit(t)
	p := profileOf(t, analyzetest.WorkloadRecording(t).Timeline(), Options{Type: "launches", RootBy: "thread"})
	for _, sampleType := range []string{"", "launches", "launch_cpu"} {
		var b bytes.Buffer
		lines, err := WriteFoldedStacks(&b, p, sampleType)
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
		if want := sums(p)[max(0, slices.Index(ListSampleTypes(p), sampleType))]; sum != want {
			t.Errorf("%s: %d, want %d", sampleType, sum, want)
		}
		if sampleType == "" {
			analyzetest.CompareGolden(t, "folded.txt", b.Bytes())
		}
	}
	if _, err := WriteFoldedStacks(
		&bytes.Buffer{},
		p,
		"alloc_space",
	); err == nil ||
		!strings.Contains(err.Error(), "launches, launch_cpu") {
		t.Error(err)
	}
}
