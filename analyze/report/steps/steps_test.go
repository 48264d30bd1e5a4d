package steps_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// variant is a way to record a program.
type variant struct {
	name            string
	full, words     bool
	stacks, returns bool
}

var variants = []variant{
	{name: "full", full: true, words: true, stacks: true, returns: true},
	{name: "auto", words: true, stacks: true, returns: false},
	{name: "without GPU times", stacks: true, returns: true},
	{name: "without stacks", returns: true},
}

// record returns the report of a program that is recorded in one way.
func (v *variant) record(t *testing.T, p *program) *report.Report {
	recording := p.job.Recording(t, 0)
	recording.Rows = slices.DeleteFunc(recording.Rows, func(r *format.Row) bool {
		return !v.words && (r.Kind == format.KindProgress || r.Kind == format.KindChannel) ||
			!v.stacks && r.Kind == format.KindStack
	})
	if !v.stacks {
		for _, r := range recording.Rows {
			r.StackID, r.Site, r.StackStatus = 0, "", format.StackNone
		}
	}
	r, err := steps.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// seeds is the number of random variants of each program.
var seeds = gpuprogram.Seeds(2)

// TestStepsFoundAreStepsDone counts the steps of programs whose steps are known.
func TestStepsFoundAreStepsDone(t *testing.T) {
	testclass.Unit(t)
	for _, v := range variants {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			t.Run(v.name+"/"+kind, func(t *testing.T) {
				wrong := 0
				n := seeds
				if v.words { // the words have no part in the search for steps
					n = min(n, 3)
				}
				for seed := range uint64(n) {
					p := newProgram(seed, gpuprogram.Plan{Full: v.full, NoReturns: !v.returns}, 0)
					kinds[kind](p)
					r := v.record(t, p)
					total, cut := number(t, r, "steps"), number(t, r, "cut_steps")
					want := float64(p.steps)
					// Without stacks a step may begin in the middle of the loop, so that the first and the last step
					// are cut.
					isCut := !v.stacks && total == want-1 && cut == 2
					if !v.stacks && kind == "layers of different number" {
						want = 0 // no kernel but two has the same number in each step: nothing is claimed
					}
					if total != want && !isCut {
						wrong++
						t.Logf("seed %d: %v steps and %v cut, want %d: %v", seed, total, cut, p.steps, r.Facts[0].Value)
					}
				}
				if wrong > 0 {
					t.Errorf("%d of %d wrong", wrong, seeds)
				}
			})
		}
	}
}

// TestCausesOfOutliers looks for the slow steps, and for their line and kernel.
func TestCausesOfOutliers(t *testing.T) {
	testclass.Unit(t)
	for _, v := range variants {
		for _, kind := range []string{"slow data loader", "slow code between two kernels", "slow allocation", "slow kernel"} {
			t.Run(v.name+"/"+kind, func(t *testing.T) {
				wrong := 0
				for seed := range uint64(seeds) {
					p := newProgram(seed, gpuprogram.Plan{Full: v.full, NoReturns: !v.returns}, 3)
					kinds[kind](p)
					if text := checkOutliers(t, &v, kind, p, v.record(t, p)); text != "" {
						wrong++
						t.Logf("seed %d: %s", seed, text)
					}
				}
				if wrong > 0 {
					t.Errorf("%d of %d wrong", wrong, seeds)
				}
			})
		}
	}
}

// checkOutliers compares the outliers of a report with the slow steps of a program.
func checkOutliers(t *testing.T, v *variant, kind string, p *program, r *report.Report) string {
	var want []string
	for i := range p.slow {
		want = append(want, fmt.Sprint(i+1))
	}
	got := analyzetest.ColumnTexts(t, r, "outliers", "step")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("outliers %v, want %v", got, want)
	}
	site, cause := p.site, map[string]string{
		"slow data loader": "outside CUDA", "slow code between two kernels": "outside CUDA",
		"slow allocation": "in a call", "slow kernel": "slow kernel",
	}[kind]
	if kind == "slow kernel" && !v.words {
		site, cause = "main (train.py:13)", "waits for GPU"
	}
	for i, got := range analyzetest.ColumnTexts(t, r, "outliers", "cause") {
		detail := analyzetest.ColumnTexts(t, r, "outliers", "detail")[i]
		if got != cause {
			return fmt.Sprintf("cause %q (%s), want %q", got, detail, cause)
		}
		if got := analyzetest.ColumnTexts(t, r, "outliers", "site")[i]; v.stacks && got != site {
			return fmt.Sprintf("site %q (%s), want %q", got, detail, site)
		}
		if got := analyzetest.ColumnTexts(t, r, "outliers", "kernel")[i]; v.words && got != cmp.Or(p.kernel, "<nil>") {
			return fmt.Sprintf("kernel %q (%s), want %q", got, detail, p.kernel)
		}
	}
	return ""
}

func number(t *testing.T, r *report.Report, key string) float64 {
	n, ok, known := r.FindNumber(key)
	if !ok || !known {
		t.Fatalf("no number %q", key)
	}
	return n
}

// TestOneSlowKernelInAHundred looks for single slow operations of a kernel. They make no outlier, because
// the host does not wait for them.
func TestOneSlowKernelInAHundred(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(seeds) {
		p := newProgram(seed, gpuprogram.Plan{Full: true}, 0)
		p.steps = 200
		slow := map[int]bool{20: true, 71 + p.random.IntN(50): true}
		p.run(func(i int) {
			p.main.Line(10)
			p.forward(p.layers)
			ns := 30 * us
			if slow[i] {
				ns *= int64(4 + p.random.IntN(10))
			}
			p.launch(11, "reduce", ns)
			p.main.Line(12)
			p.update()
			p.main.Line(13)
			p.main.Synchronize(p.stream)
			p.main.Compute(300 * us)
		})
		full := variants[0]
		r := full.record(t, p)
		kernels := analyzetest.ColumnTexts(t, r, "slow_operations", "kernel")
		if len(kernels) != 1 || kernels[0] != "reduce" {
			t.Errorf("seed %d: slow kernels %q, want reduce", seed, kernels)
			continue
		}
		var want []string
		for i := range p.steps {
			if slow[i] {
				want = append(want, fmt.Sprint(i+1))
			}
		}
		if got := analyzetest.ColumnTexts(t, r, "slow_operations", "slow_steps")[0]; got != strings.Join(want, ", ") {
			t.Errorf("seed %d: steps %s, want %v", seed, got, want)
		}
		if got := analyzetest.ColumnTexts(t, r, "slow_operations", "site")[0]; got != "main (train.py:11)" {
			t.Errorf("seed %d: site %s", seed, got)
		}
	}
}

// TestNothingRepeats claims no steps for random programs and for recordings without launches.
func TestNothingRepeats(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(seeds) {
		p := newProgram(seed, gpuprogram.Plan{}, 0)
		kernels := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
		p.run(func(int) {
			p.launch(10+p.random.IntN(5), kernels[p.random.IntN(len(kernels))], 10*us)
		})
		for _, v := range variants {
			if n := number(t, v.record(t, p), "steps"); n != 0 {
				t.Errorf("seed %d, %s: %v steps of a random program", seed, v.name, n)
			}
		}
	}
	r, err := steps.Run(analyzetest.NewTestRecording(t).Timeline(), query.Options{})
	if err != nil || r.Facts[0].Value != "no launches in the window" {
		t.Errorf("%v, error %v", r.Facts, err)
	}
}

// TestStepsWithoutLaunchesAreCut leaves out the launches of some times, as the recorder does for its
// budget.
func TestStepsWithoutLaunchesAreCut(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(seeds) {
		p := newProgram(seed, gpuprogram.Plan{}, 0)
		p.run(func(i int) {
			p.training(i, true)
			p.main.Compute(300 * us)
		})
		recording := p.job.Recording(t, 0)
		fromNs := recording.Rows[0].StartNs + 10*ms
		toNs := fromNs + 5*ms
		touched := make(map[int]bool)
		for _, w := range p.job.Operations {
			if w.CallNs >= fromNs && w.CallNs < toNs {
				touched[w.Step] = true
			}
		}
		recording.Rows = slices.DeleteFunc(recording.Rows, func(r *format.Row) bool {
			return r.Kind == format.KindLaunch && r.StartNs >= fromNs && r.StartNs < toNs
		})
		recording.AddSamplingGaps(
			analyzetest.SamplingGap{From: fromNs - analyzetest.Epoch, To: toNs - analyzetest.Epoch},
		)
		r, err := steps.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		// The gap may touch the time outside CUDA of one more step at each end.
		got := p.steps - int(number(t, r, "steps"))
		if got < len(touched) || got > len(touched)+2 || number(t, r, "outliers") > 0 {
			t.Errorf(
				"seed %d: %d steps are missing, %d have missing launches: %v",
				seed,
				got,
				len(touched),
				r.Facts[0].Value,
			)
		}
	}
}

// TestMarkerBeginsSteps counts the steps from a kernel that the user names.
func TestMarkerBeginsSteps(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(1, gpuprogram.Plan{}, 0)
	kinds["training"](p)
	for marker, want := range map[string]float64{
		"embed": float64(p.steps), "train.py:12": float64(p.steps - 1), "soft": float64(2 * p.layers * p.steps), "nothing": 0,
	} {
		r, err := steps.RunWithOptions(p.job.Recording(t, 0).Timeline(), steps.Options{Marker: marker})
		if err != nil {
			t.Fatal(err)
		}
		if got := number(t, r, "steps") + min(1, number(t, r, "cut_steps")); got < want || got > want+1 {
			t.Errorf("%s: %v steps, want %v", marker, got, want)
		}
	}
}

// TestStepsLookAsBefore compares the report of a program with an evaluation and a slow step.
func TestStepsLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(3, gpuprogram.Plan{Full: true}, 0)
	p.run(func(i int) {
		if i == 17 {
			p.main.Compute(20 * ms)
		}
		p.training(i, true)
		if i == 40 {
			p.main.Line(15)
			p.main.Enter("eval.py", "evaluate")
			p.main.Line(30)
			p.forward(p.layers)
			p.main.Synchronize(p.stream)
			p.main.Leave()
		}
	})
	r, err := steps.Run(p.job.Recording(t, 0).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := analyzetest.ColumnTexts(t, r, "outliers", "site")[1]; got != "main (train.py:15)" {
		t.Errorf("the evaluation is at %s", got)
	}
	analyzetest.CompareGoldenReports(t, r, "steps", 140)
}

// TestSlowKernelAnywhere makes a random kernel of two steps slow, at a random place in the step. The
// report must name the steps, the kernel and its line.
func TestSlowKernelAnywhere(t *testing.T) {
	testclass.Unit(t)
	for _, v := range variants[:2] {
		for seed := range uint64(seeds) {
			p := newProgram(seed, gpuprogram.Plan{Full: v.full, NoReturns: !v.returns}, 0)
			slow := make(map[int]int) // launch by step
			for len(slow) < 2 {
				slow[5+p.random.IntN(p.steps-10)] = p.random.IntN(2 + 6*p.layers)
			}
			extraNs := int64(1+p.random.IntN(20)) * ms
			step, launch := 0, 0
			want := make(map[string]string) // kernel and line by step
			p.gpuNsOf = func(line int, kernel string, ns int64) int64 {
				if at, ok := slow[step]; ok && at == launch {
					want[fmt.Sprint(step+1)] = fmt.Sprintf("%s:%d", kernel, line)
					ns += extraNs
				}
				launch++
				return ns
			}
			p.run(func(i int) {
				step, launch = i, 0
				p.training(i, true)
			})
			r := v.record(t, p)
			got := make(map[string]string)
			for i, number := range analyzetest.ColumnTexts(t, r, "outliers", "step") {
				site := analyzetest.ColumnTexts(t, r, "outliers", "site")[i]
				_, line, _ := strings.Cut(strings.TrimSuffix(site, ")"), ":")
				got[number] = analyzetest.ColumnTexts(t, r, "outliers", "kernel")[i] + ":" + line
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s, seed %d: %v, want %v", v.name, seed, got, want)
			}
		}
	}
}
