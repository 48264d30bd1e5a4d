package html

import (
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFlameGraphOfThreads compares the sums of the flame graph with those of the report cpu, and its leaves with the
// reasons of waits.
func TestFlameGraphOfThreads(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.HostRecording(t).Timeline()
	host, err := readHostFlame(tl, &query.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var texts textTable
	root, _ := newFlameTree(tl, newFlameScan(tl, &query.Filter{}), newCallsOverTime(tl, &query.Filter{}),
		&gpuFlame{}, host, &query.FrameRules{}, &texts)
	r, err := cpu.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for metric, key := range map[int]string{flameOnCPUNs: "sampled_ns", flameOffCPUNs: "wait_ns"} {
		want, _, _ := r.FindNumber(key)
		if got := float64(root.Values[metric]); math.Abs(got-want) > 1 || got == 0 {
			t.Errorf("%s: %.0f ns, the report has %.0f", flameMetrics[metric].Name, got, want)
		}
	}
	waits := make(map[string]int64)
	kernel := make(map[string]bool)
	var walk func(n *flameNodeJSON)
	walk = func(n *flameNodeJSON) {
		name := texts.List[n.Name]
		if reason, ok := strings.CutPrefix(name, "[off-cpu] "); ok {
			waits[reason] += n.Values[flameOffCPUNs]
		}
		if n.Kind == frameKindOther {
			kernel[name] = true
		}
		for i := range n.Children {
			walk(&n.Children[i])
		}
	}
	walk(&root)
	if waits["gil"] != 600*analyzetest.Ms || waits["poll"] != 4*analyzetest.Second || len(waits) != 6 {
		t.Errorf("leaves %v", waits)
	}
	if !kernel["futex_wait_queue"] {
		t.Errorf("no frame of the kernel: %v", kernel)
	}
}

// TestPageShowsTimesOfThreads checks the section and the metrics of the flame graph.
func TestPageShowsTimesOfThreads(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.HostRecording(t)
	page := pageText(t, recording.Timeline(), Options{})
	for _, want := range []string{
		`id="cpu"`, "CPU of launching threads", "next_batch (train.py:12)", "cuStreamSynchronize",
		"time of threads on a processor, estimated from samples", "time of threads in waits", "/kubepods/pod1",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if pageText(t, recording.Timeline(), Options{}) != page {
		t.Error("pages of one recording differ")
	}
}

// TestPageWithoutClassHost checks that such a page does not mention the class.
func TestPageWithoutClassHost(t *testing.T) {
	testclass.Unit(t)
	page := pageText(t, analyzetest.TrainingRecording(t).Timeline(), Options{})
	for _, text := range []string{`id="cpu"`, "CPU of launching threads", "time of threads in waits", "[off-cpu]"} {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
}

// TestPageOfHostileClassHost checks that texts of a hostile recording are not markup.
func TestPageOfHostileClassHost(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.HostRecording(t)
	recording.AddWait(42, 520*analyzetest.Ms, analyzetest.Ms, 0, "</script><b>", 0, format.WaitFact{
		Reason: "</script><script>alert(1)</script>", Target: "<img src=x onerror=alert(1)>",
	})
	page := pageText(t, recording.Timeline(), Options{})
	for _, text := range []string{"<script>alert", "<img src=x"} {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
}
