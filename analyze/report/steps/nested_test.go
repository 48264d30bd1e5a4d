package steps_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// shape has the sizes, names and lines of a program with nested loops.
type shape struct {
	steps, weights, perWeight int
	file, function            string // of the outer loop
	optimizer, update         string // file and function of the loop over weights
	line, updateLine          int    // first lines of the loops
	kernels                   string // prefix of the kernels of the loop over weights
}

var shapes = []shape{
	{12, 100, 7, "train.py", "main", "torch/optim/adam.py", "Adam.step", 10, 400, "elementwise_"},
	{6, 3000, 3, "run.py", "fit", "torch/optim/rmsprop.py", "RMSprop.step", 77, 12, "foreach_"},
	{9, 350, 8, "job.py", "Job.loop", "torch/optim/adamw.py", "AdamW.step", 3, 90, "adamw_"},
	{12, 640, 5, "pretrain.py", "Trainer.fit", "torch/optim/nadam.py", "NAdam.step", 1210, 38, "vec_"},
	{5, 2000, 4, "loop.py", "<module>", "torch/optim/rprop.py", "Rprop.step", 21, 5, "map_"},
}

// updateWeights runs a loop over weights in the innermost function.
func (p *program) updateWeights(s *shape) {
	for range s.weights {
		for n := range s.perWeight {
			p.launch(s.updateLine+2*n, fmt.Sprint(s.kernels, n), 2*us)
		}
	}
}

// runOptimizer calls the optimizer from a line of the outer loop.
func (p *program) runOptimizer(s *shape, line int) {
	p.main.Line(line)
	p.main.Enter(s.optimizer, s.update)
	p.updateWeights(s)
	p.main.Leave()
}

// item copies a number to the host and waits for it.
func (p *program) item(line int) {
	p.main.Line(line)
	p.main.Copy(p.stream, activity.OpCopyToHost, 4, 2*us)
	p.main.Synchronize(p.stream)
}

// pass runs a forward and a backward pass from two lines.
func (p *program) pass(line int) {
	p.main.Line(line)
	p.forward(p.layers)
	p.main.Line(line + 1)
	p.backward(p.layers)
}

// loop runs a function with the outer loop.
func (p *program) loop(s *shape, step func(i int)) {
	p.steps = s.steps
	p.main.Enter(s.file, s.function)
	for i := range p.steps {
		p.main.Step = i
		step(i)
	}
	p.main.Leave()
}

// nested are programs with loops inside of loops. Each has s.steps steps, or p.steps if it sets them.
var nested = map[string]func(p *program, s *shape){
	"loop over weights": func(p *program, s *shape) {
		p.loop(s, func(int) {
			p.pass(s.line)
			p.runOptimizer(s, s.line+2)
			p.item(s.line + 3)
		})
	},
	"loop over weights in the outer function": func(p *program, s *shape) {
		p.loop(s, func(int) {
			p.pass(s.line)
			for range s.weights {
				for n := range s.perWeight {
					p.launch(s.line+2+n, fmt.Sprint(s.kernels, n), 2*us)
				}
			}
			p.item(s.line + 2 + s.perWeight)
		})
	},
	"optimizer and a wait only": func(p *program, s *shape) {
		p.loop(s, func(int) {
			p.runOptimizer(s, s.line)
			p.main.Line(s.line + 1)
			p.main.SynchronizeDevice()
		})
	},
	"optimizer and several items": func(p *program, s *shape) {
		p.loop(s, func(int) {
			p.runOptimizer(s, s.line)
			for range 4 {
				p.item(s.line + 1)
			}
		})
	},
	"backward on another thread": func(p *program, s *shape) {
		other := p.process.Thread()
		p.loop(s, func(int) {
			p.main.Line(s.line)
			p.forward(p.layers)
			other.NowNs = p.main.NowNs + 20*us
			for range s.weights {
				other.Compute(3 * us)
				other.Launch(p.stream, "gemm_backward", 64, 4*us)
				other.Launch(p.stream, "accumulate", 64, 2*us)
			}
			p.main.NowNs = other.NowNs + 10*us
			p.runOptimizer(s, s.line+1)
			p.item(s.line + 2)
		})
	},
	"four batches a step": func(p *program, s *shape) {
		p.loop(s, func(int) {
			for range 4 {
				p.pass(s.line)
			}
			p.runOptimizer(s, s.line+2)
			p.item(s.line + 3)
		})
	},
	"epochs with an evaluation": func(p *program, s *shape) {
		const epochs, batches = 3, 50
		p.main.Enter(s.file, s.function)
		for range epochs {
			p.main.Line(s.line)
			p.main.Enter(s.file, "train_epoch")
			for range batches {
				p.pass(s.line + 20)
				p.main.Line(s.line + 22)
				p.update()
				p.item(s.line + 23)
			}
			p.main.Leave()
			p.main.Line(s.line + 1)
			p.main.Enter(s.file, "evaluate")
			for range 10 {
				p.main.Line(s.line + 40)
				p.forward(p.layers)
			}
			p.item(s.line + 41)
			p.main.Leave()
		}
		p.main.Leave()
		p.steps = epochs * batches
	},
	"tokens of requests": func(p *program, s *shape) {
		const tokens = 30
		p.main.Enter(s.file, "serve")
		for range s.steps {
			p.main.Line(s.line + 60)
			p.main.Enter(s.file, s.function)
			for range tokens {
				p.main.Line(s.line)
				p.forward(p.layers)
				p.launch(s.line+1, "argmax", 4*us)
				p.item(s.line + 2)
			}
			p.main.Leave()
			p.main.Compute(300 * us)
		}
		p.main.Leave()
		p.steps = tokens * s.steps
	},
	"replays of a graph": func(p *program, s *shape) {
		const replays = 200
		p.main.Enter(s.file, s.function)
		for i := range replays {
			p.main.Line(s.line)
			p.main.Compute(5 * us)
			p.main.LaunchGraph(p.stream, 0x77, 80*us)
			if i%50 == 49 {
				p.main.Line(s.line + 2)
				p.main.Synchronize(p.stream)
			}
		}
		p.main.Leave()
		p.steps = replays
	},
}

// nestedVariants are the ways to record nested programs.
var nestedVariants = []variant{variants[2], variants[3]}

// TestStepsContainLoops counts the steps of programs with loops inside of steps, and with steps inside of loops.
func TestStepsContainLoops(t *testing.T) {
	testclass.Unit(t)
	for _, v := range nestedVariants {
		for _, kind := range slices.Sorted(maps.Keys(nested)) {
			for i := range shapes {
				t.Run(fmt.Sprint(v.name, "/", kind, "/", i), func(t *testing.T) {
					s := shapes[i]
					p := newProgram(uint64(i), gpuprogram.Plan{}, 0)
					p.steps = s.steps
					nested[kind](p, &s)
					r := v.record(t, p)
					total, cut := number(t, r, "steps"), number(t, r, "cut_steps")
					want, tolerance := float64(p.steps), 0.0
					if !v.stacks { // an evaluation may count as a step, and the first and the last step may be cut
						tolerance = max(1, 0.02*want)
					}
					if total < want-tolerance || total > want+tolerance || total < want && cut != 2 {
						t.Errorf("%v steps and %v cut, want %d: %v", total, cut, p.steps, r.Facts[0].Value)
					}
				})
			}
		}
	}
}

// TestALoopAloneIsNoStep records a part of a step: a loop over weights, with and without the end of the step
// before.
func TestALoopAloneIsNoStep(t *testing.T) {
	testclass.Unit(t)
	for i := range shapes {
		s := &shapes[i]
		p := newProgram(uint64(i), gpuprogram.Plan{}, 0)
		p.main.Enter(s.file, s.function)
		p.runOptimizer(s, s.line+2)
		p.main.Leave()
		v := variants[2]
		want := fmt.Sprintf(" iterations of %d launches at %s (", s.perWeight, s.update)
		checkNoSteps(t, v.record(t, p), want, "all of them update weights")

		s.optimizer, s.update, s.kernels = "weights.py", "add_gradients", "axpby_"
		p = newProgram(uint64(i), gpuprogram.Plan{}, 0)
		p.main.Enter(s.file, s.function)
		p.runOptimizer(s, s.line+2)
		p.pass(s.line)
		p.runOptimizer(s, s.line+2)
		p.main.Leave()
		checkNoSteps(t, v.record(t, p), "at add_gradients (weights.py:", "too rarely to find their period")
	}
}

// checkNoSteps looks for a result without steps that has some texts.
func checkNoSteps(t *testing.T, r *report.Report, texts ...string) {
	t.Helper()
	result := fmt.Sprint(r.Facts[0].Value)
	for _, text := range append(texts, "no steps: only a loop inside of a step repeats") {
		if !strings.Contains(result, text) {
			t.Errorf("%q lacks %q", result, text)
		}
	}
	if n := number(t, r, "steps"); n != 0 {
		t.Errorf("%v steps", n)
	}
}

// TestStepsLongerThanWindowsOfLaunches records launches for less than a step at a time. Waits and copies are
// always recorded.
func TestStepsLongerThanWindowsOfLaunches(t *testing.T) {
	testclass.Unit(t)
	for _, kind := range []string{"loop over weights", "optimizer and a wait only", "optimizer and several items"} {
		for i := range shapes {
			t.Run(fmt.Sprint(kind, "/", i), func(t *testing.T) {
				s := shapes[i]
				s.steps = 20
				s.weights = min(s.weights, 500)
				p := newProgram(uint64(i), gpuprogram.Plan{}, 0)
				nested[kind](p, &s)
				recording := p.job.Recording(t, 0)
				beginNs := p.job.Operations[0].CallNs
				stepNs := (p.main.NowNs - beginNs) / int64(s.steps)
				dropLaunches(recording, beginNs, stepNs)
				r, err := steps.Run(recording.Timeline(), query.Options{})
				if err != nil {
					t.Fatal(err)
				}
				// The first and the last step have no wait before them or too few launches to compare.
				if n := number(t, r, "steps"); n < float64(s.steps-2) || n > float64(s.steps) {
					t.Fatalf("%v steps, want %d: %v", n, s.steps, r.Facts[0].Value)
				}
				if got := analyzetest.ColumnTexts(t, r, "steps", "operations")[0]; got != "<nil>" {
					t.Errorf("%s launches a step, but no step has all launches", got)
				}
				p50, err := strconv.ParseInt(analyzetest.ColumnTexts(t, r, "steps", "p50_ns")[0], 10, 64)
				if err != nil || p50 < stepNs*95/100 || p50 > stepNs*105/100 {
					t.Errorf("median %v ns, want %d: error %v", p50, stepNs, err)
				}
			})
		}
	}
}

// dropLaunches leaves out the launches of all but a few windows that are shorter than a step.
func dropLaunches(recording *analyzetest.TestRecording, beginNs, stepNs int64) {
	windowNs, everyNs := stepNs*9/10, stepNs*37/10
	isDropped := func(ns int64) bool { return ns >= beginNs && (ns-beginNs)%everyNs >= windowNs }
	recording.Rows = slices.DeleteFunc(recording.Rows, func(r *format.Row) bool {
		return r.Kind == format.KindLaunch && isDropped(r.StartNs)
	})
	for fromNs := beginNs + windowNs; fromNs < recording.Meta.EndNs; fromNs += everyNs {
		recording.AddSamplingGaps(analyzetest.SamplingGap{
			From: fromNs - analyzetest.Epoch, To: fromNs + everyNs - windowNs - analyzetest.Epoch,
		})
	}
}
