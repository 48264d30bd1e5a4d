package pprof

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestHostProfilesHaveTheTotalsOfTheReport compares the sums of the profiles with the report, in the whole
// recording and in a window that cuts waits, and with rows that no recorder writes.
func TestHostProfilesHaveTheTotalsOfTheReport(t *testing.T) {
	testclass.Unit(t)
	whole := query.Options{}
	part := query.Options{}
	part.FromNs, part.ToNs = analyzetest.Epoch+200*analyzetest.Ms, analyzetest.Epoch+3*analyzetest.Second+480*analyzetest.Ms
	recording := analyzetest.HostRecording(t)
	recording.AddWait(42, 20*analyzetest.Ms, 500*analyzetest.Ms, 0, "levitating", 0, format.WaitFact{Reason: "boredom"})
	recording.AddWait(42, 30*analyzetest.Ms, -5, 0, format.StateSleeping, 0, format.WaitFact{}).Message = "{"
	tl := recording.Timeline()
	for _, opt := range []query.Options{whole, part} {
		r, err := cpu.Run(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		number := func(key string) int64 {
			v, ok, _ := r.FindNumber(key)
			if !ok {
				t.Fatalf("no number %s", key)
			}
			return int64(v)
		}
		on, off := number("sampled_ns"), number("wait_ns")
		for name, want := range map[string][]int64{
			"cpu":     {number("samples"), on},
			"off-cpu": {number("waits"), off},
			"host":    {on, off, on + off},
		} {
			if got := sums(
				profileOf(t, tl, Options{Options: opt, Type: name}),
			); !slices.Equal(got, want) ||
				want[1] == 0 {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	}
}

// TestPprofReadsHostProfiles compares what the pprof program prints with golden files.
func TestPprofReadsHostProfiles(t *testing.T) {
	testclass.Browser(t)
	tl := analyzetest.HostRecording(t).Timeline()
	for _, name := range []string{"cpu", "off-cpu", "host"} {
		file := profileFile(t, profileOf(t, tl, Options{Type: name}))
		analyzetest.CompareGolden(t, "pprof."+name+".txt", pprof(t, "-top", file))
		if name == "host" {
			analyzetest.CompareGolden(t, "pprof.host.tags.txt", pprof(t, "-tags", file))
			analyzetest.CompareGolden(t, "pprof.host.traces.txt", pprof(t, "-traces", file))
		}
	}
}

// TestFoldedHostStacks compares the folded stacks of waits with a golden file.
func TestFoldedHostStacks(t *testing.T) {
	testclass.Unit(t)
	p := profileOf(t, analyzetest.HostRecording(t).Timeline(), Options{Type: "off-cpu", RootBy: "thread"})
	var out bytes.Buffer
	if _, err := WriteFoldedStacks(&out, p, ""); err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGolden(t, "folded.off-cpu.txt", out.Bytes())
}

// TestKernelFramesHaveAModule checks that frames of the kernel are in a module of their own.
func TestKernelFramesHaveAModule(t *testing.T) {
	testclass.Unit(t)
	p := profileOf(t, analyzetest.HostRecording(t).Timeline(), Options{Type: "off-cpu"})
	found := 0
	for _, l := range p.Location {
		if l.Mapping.File == "[kernel]" {
			found++
		}
	}
	if found != 4 {
		t.Errorf("%d locations of the kernel, want 4", found)
	}
}

func TestHostProfilesSayTheirError(t *testing.T) {
	testclass.Unit(t)
	p := profileOf(t, analyzetest.HostRecording(t).Timeline(), Options{Type: "host"})
	text := strings.Join(p.Comments, "\n")
	for _, want := range []string{"CPU time: estimated from samples, ±141.4ms", "96% of it has a stack"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

func TestNoHostRowsIsAnError(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.WorkloadRecording(t).Timeline()
	for _, name := range []string{"cpu", "off-cpu", "host"} {
		if _, _, _, err := BuildProfile(tl, Options{Type: name}); !errors.Is(err, NoHostRowsError{}) {
			t.Error(name, fmt.Sprint(err))
		}
	}
}
