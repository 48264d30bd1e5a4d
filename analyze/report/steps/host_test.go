package steps_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// hostDelays are delays of single steps, with what the host does in them.
var hostDelays = []struct {
	name, text string
	delay      func(*gpuprogram.JobThread, int64)
}{
	{"gc", "collected garbage", (*gpuprogram.JobThread).Collect},
	{"cpu", "ran on the CPU", (*gpuprogram.JobThread).Work},
	{"dataloader", "waited for the DataLoader", func(t *gpuprogram.JobThread, ns int64) {
		t.BlockIn(ns, format.WaitFact{Reason: format.ReasonPipe}, gpuprogram.DataLoaderFrames()...)
	}},
	{"gil", "waited for the GIL", func(t *gpuprogram.JobThread, ns int64) {
		t.Block(ns, format.WaitFact{Reason: format.ReasonGIL})
	}},
	{"file", "waited for a file", func(t *gpuprogram.JobThread, ns int64) {
		t.Block(ns, format.WaitFact{Reason: format.ReasonFile, Target: "/data/a.bin"})
	}},
}

// hostProgram returns the report of a training loop in which a delay hits some steps; it returns their
// numbers too.
func hostProgram(t *testing.T, seed uint64, delay func(*gpuprogram.JobThread, int64)) (*report.Report, []int) {
	t.Helper()
	p := newProgram(seed, gpuprogram.Plan{Full: true}, 4)
	p.job.RecordHost(gpuprogram.HostRecorder{})
	var slow []int
	p.run(func(i int) {
		p.main.Line(9)
		p.main.Compute(200 * us)
		if p.slow[i] > 0 {
			delay(p.main, p.slow[i])
			slow = append(slow, i+1)
		}
		p.training(i, true)
	})
	r, err := steps.Run(p.job.Recording(t, 0).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r, slow
}

// TestOutliersNameWhatTheHostDid checks the cause on the host of each slow step.
func TestOutliersNameWhatTheHostDid(t *testing.T) {
	testclass.Unit(t)
	for _, d := range hostDelays {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", d.name, seed), func(t *testing.T) {
				r, slow := hostProgram(t, seed, d.delay)
				texts := analyzetest.ColumnTexts(t, r, "outliers", "host")
				if len(texts) != len(slow) {
					t.Fatalf("%d outliers, want %d\n%s", len(texts), len(slow),
						analyzetest.RenderReport(t, r, render.Options{Width: 200}))
				}
				for i, text := range texts {
					want := d.text + " at main (train.py:9), "
					if !strings.HasPrefix(text, want) {
						t.Errorf("outlier %d: the host %s, want %s", i, text, want)
					}
				}
				causes := analyzetest.ColumnTexts(t, r, "host", "cause")
				if !slices.Contains(causes, d.text) {
					t.Errorf("a step has no time of %q: %v", d.text, causes)
				}
			})
		}
	}
}

// TestStepsWithoutHostDelayNameNone checks that a slow kernel is no cause on the host.
func TestStepsWithoutHostDelayNameNone(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(1, gpuprogram.Plan{Full: true}, 4)
	p.job.RecordHost(gpuprogram.HostRecorder{})
	kinds["slow kernel"](p)
	r, err := steps.Run(p.job.Recording(t, 0).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range analyzetest.ColumnTexts(t, r, "outliers", "host") {
		if text != "<nil>" {
			t.Errorf("the host %s", text)
		}
	}
}

// TestHostGolden compares the tables of a program that waits for a DataLoader and for a file.
func TestHostGolden(t *testing.T) {
	testclass.Unit(t)
	r, _ := hostProgram(t, 2, hostDelays[2].delay)
	analyzetest.CompareGolden(t, "host.table", []byte(analyzetest.RenderReport(t, r, render.Options{Width: 200})))
}
