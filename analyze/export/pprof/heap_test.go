package pprof

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// throughFile encodes a profile as in a file, and decodes it again.
func throughFile(t *testing.T, p *profile.Profile) *profile.Profile {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	read, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return read
}

// profileText returns a profile for a golden file: the output of pprof -raw without ids.
func profileText(p *profile.Profile) []byte {
	var b bytes.Buffer
	for _, v := range p.SampleType {
		fmt.Fprintf(&b, "%s/%s ", v.Type, v.Unit)
	}
	fmt.Fprintf(&b, "default %s\nat %d for %d\n", p.DefaultSampleType, p.TimeNanos, p.DurationNanos)
	for _, c := range p.Comments {
		fmt.Fprintf(&b, "comment: %s\n", c)
	}
	for _, m := range p.Mapping {
		fmt.Fprintf(&b, "mapping: %s %s\n", m.File, m.BuildID)
	}
	for _, s := range p.Sample {
		fmt.Fprintf(&b, "%v %v %v\n", s.Value, s.Label, s.NumLabel)
		for _, l := range s.Location {
			for _, line := range l.Line {
				f := line.Function
				fmt.Fprintf(
					&b,
					"    %s (%q) %s:%d in %s\n",
					f.Name,
					f.SystemName,
					f.Filename,
					line.Line,
					l.Mapping.File,
				)
			}
		}
	}
	return b.Bytes()
}

func TestHeapProfileGolden(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	r := recording.AddRow(format.Row{Kind: format.KindStack, StackID: 9, StackStatus: format.StackTruncated})
	r.Frames = []format.Frame{
		{
			Func:       "cuMemAlloc_v2",
			SystemName: "cuMemAlloc_v2",
			Module:     "/usr/lib/libcuda.so.1",
			BuildID:    "c0da",
			Addr:       0x1000,
			Type:       "native",
		},
		{
			Func:       "void alloc<float>(int)",
			SystemName: "_Z5allocIfEvi",
			Module:     "/usr/lib/libtorch.so",
			Addr:       0x77,
			Type:       "native",
		},
		{Func: "step", SystemName: "step", File: "/home/u/train.py", Line: 88, Type: "python"},
		{Module: "/usr/lib/libfoo.so", Addr: 0xabc, Type: "native"},
		{Addr: 0x7fff12345678, Type: "jit"},
	}
	analyzetest.SetStackAndSite(
		recording.AddAlloc(40*analyzetest.Second, analyzetest.Us, 0x6000_0000_0000, 3*analyzetest.Mib),
		9,
		"step (train.py:88)",
	)
	p, q, none, err := BuildHeapProfile(recording.Timeline(), query.Options{})
	if err != nil || none != nil || q.Events == 0 {
		t.Fatal(err, none, q)
	}
	analyzetest.CompareGolden(t, "heap.txt", profileText(throughFile(t, p)))
}

func TestHeapProfileFollowsTheConventions(t *testing.T) {
	testclass.Browser(t)
	p, _, _, err := BuildHeapProfile(analyzetest.TrainingRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p = throughFile(t, p)
	if p.DocURL != "" {
		t.Error("a doc URL makes trace_processor reject the profile")
	}
	if p.Mapping[0].File != "/app/train" {
		t.Errorf("the first mapping is %s, not the program", p.Mapping[0].File)
	}
	for _, f := range p.Function {
		if f.Name == "" || f.Name == f.SystemName {
			t.Errorf("function %q has system name %q", f.Name, f.SystemName)
		}
	}
	for _, m := range p.Mapping {
		if !m.HasFunctions || !m.HasFilenames || !m.HasLineNumbers {
			t.Errorf("pprof would symbolize %s again", m.File)
		}
	}
	for _, l := range p.Location {
		if l.Address < l.Mapping.Start || l.Address >= l.Mapping.Limit {
			t.Errorf("address %x is outside of mapping %s", l.Address, l.Mapping.File)
		}
	}
}

func TestHeapProfileSumsEqualLeaks(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(3, 3))
	recording := analyzetest.NewTestRecording(t)
	analyzetest.AddRandomProgram(recording, r, 3000) // more sizes at one call site than maxExactSizes
	recording.AddExit(77, 50*analyzetest.Ms)
	tl := recording.Timeline()
	for _, f := range []query.Filter{
		{},
		{Pids: []int32{77}},
		{FromNs: analyzetest.Epoch + 20*analyzetest.Us},
		{ToNs: analyzetest.Epoch + 30*analyzetest.Us},
		{MinBytes: 1 << 19},
	} {
		leakReport, err := leaks.Run(tl, query.Options{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		p, _, _, err := BuildHeapProfile(tl, query.Options{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		var got [4]int64
		for _, s := range p.Sample {
			for i, v := range s.Value {
				got[i] += v
			}
		}
		var want [4]int64
		at := func(key string) int {
			return slices.IndexFunc(leakReport.Tables[0].Columns, func(c report.Column) bool { return c.Key == key })
		}
		for _, row := range leakReport.Tables[0].Rows {
			for i, key := range []string{"allocs", "alloc_bytes", "live_count", "live_bytes"} {
				want[i] += row.Cells[at(key)].(int64)
			}
		}
		if got != want {
			t.Errorf("%+v: profile %v, leaks %v", f, got, want)
		}
		if len(p.Sample) > 8*2*(maxExactSizes+64) {
			t.Errorf("%d samples", len(p.Sample))
		}
	}
}

func TestHeapProfileWithoutStacks(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddAlloc(1, 1, 0x1000, 64)
	p, _, _, err := BuildHeapProfile(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(
		profileText(p),
	); !strings.Contains(text, "cuMemAlloc_v2") ||
		!strings.Contains(text, timeline.NoStackSite) {
		t.Error(text)
	}
}
