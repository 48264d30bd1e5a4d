package steps_test

import (
	"math/rand/v2"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
)

const us, ms = analyzetest.Us, analyzetest.Ms

// program is a kind of program whose steps are known. The tests write it with random numbers of
// layers, kernels and steps.
type program struct {
	job     *gpuprogram.Job
	process *gpuprogram.JobProcess
	random  *rand.Rand
	main    *gpuprogram.JobThread
	stream  *gpuprogram.JobStream
	steps   int
	layers  int
	// slow has the extra time of some steps, ns.
	slow map[int]int64
	// site and kernel are the expected cause of slow steps.
	site, kernel string
	// gpuNsOf, if not nil, changes the time of a kernel on the GPU.
	gpuNsOf func(line int, kernel string, ns int64) int64
}

// newProgram returns a program of one process with a thread and a stream.
func newProgram(seed uint64, plan gpuprogram.Plan, slowSteps int) *program {
	j := gpuprogram.NewJob(seed, plan)
	p := &program{job: j, process: j.Process(0), random: j.Random(), slow: make(map[int]int64)}
	p.main, p.stream = p.process.Thread(), p.process.Stream()
	p.steps, p.layers = 40+p.random.IntN(40), 3+p.random.IntN(6)
	for len(p.slow) < slowSteps {
		p.slow[5+p.random.IntN(p.steps-10)] = int64(20+p.random.IntN(60)) * ms
	}
	return p
}

// launch launches a kernel from a line of the innermost function.
func (p *program) launch(line int, kernel string, gpuNs int64) {
	p.main.Line(line)
	p.main.Compute(3 * us)
	if p.gpuNsOf != nil {
		gpuNs = p.gpuNsOf(line, kernel, gpuNs)
	}
	p.main.Launch(p.stream, kernel, 64, gpuNs)
}

// forward runs the layers of a model in a function of its own.
func (p *program) forward(layers int) {
	p.main.Enter("model.py", "Model.forward")
	p.launch(45, "embed", 8*us)
	for range layers {
		p.main.Line(47)
		p.main.Enter("model.py", "Block.forward")
		p.launch(20, "gemm", 20*us)
		p.launch(21, "softmax", 5*us)
		p.launch(22, "gemm", 20*us)
		p.main.Leave()
	}
	p.launch(49, "head", 9*us)
	p.main.Leave()
}

// backward runs the backward pass on the same thread.
func (p *program) backward(layers int) {
	p.main.Enter("tensor.py", "backward")
	for range layers {
		p.launch(5, "gemm_backward", 40*us)
		p.launch(6, "softmax_backward", 9*us)
	}
	p.main.Leave()
}

// update runs the optimizer.
func (p *program) update() {
	p.main.Enter("sgd.py", "SGD.step")
	for range p.layers {
		p.launch(80, "axpy", 4*us)
	}
	p.main.Leave()
}

// run runs the steps in a function main of train.py.
func (p *program) run(step func(i int)) {
	p.main.Enter("train.py", "main")
	for i := range p.steps {
		p.main.Step = i
		step(i)
	}
	p.main.Leave()
}

// training is a training loop with forward, backward and update; wait ends a step.
func (p *program) training(i int, wait bool) {
	p.main.Line(10)
	p.forward(p.layers)
	p.main.Line(11)
	p.backward(p.layers)
	p.main.Line(12)
	p.update()
	if wait {
		p.main.Line(13)
		p.main.Synchronize(p.stream)
	}
}

// kinds are the kinds of programs. Each runs p.steps steps.
var kinds = map[string]func(p *program){
	"training": func(p *program) {
		p.run(func(i int) { p.training(i, true) })
	},
	"training without waits": func(p *program) {
		p.run(func(i int) { p.training(i, false) })
	},
	"slow data loader": func(p *program) {
		p.site = "Model.forward (model.py:45)"
		p.run(func(i int) {
			p.main.Line(9)
			p.main.Compute(200*us + p.slow[i])
			p.training(i, true)
		})
	},
	"slow code between two kernels": func(p *program) {
		p.site = "SGD.step (sgd.py:80)"
		p.run(func(i int) {
			p.main.Line(10)
			p.forward(p.layers)
			p.main.Line(12)
			p.main.Compute(10*us + p.slow[i])
			p.update()
			p.main.Line(13)
			p.main.Synchronize(p.stream)
		})
	},
	"slow allocation": func(p *program) {
		p.site = "main (train.py:8)"
		p.run(func(i int) {
			p.main.Line(8)
			p.main.Call("alloc", "cuMemAlloc_v2", 5*us+p.slow[i]).Bytes = 4096
			p.training(i, true)
		})
	},
	"slow kernel": func(p *program) {
		p.site, p.kernel = "main (train.py:11)", "reduce"
		p.run(func(i int) {
			p.main.Line(10)
			p.forward(p.layers)
			p.launch(11, "reduce", 30*us+p.slow[i])
			p.main.Line(12)
			p.update()
			p.main.Line(13)
			p.main.Synchronize(p.stream)
		})
	},
	"gradient accumulation": func(p *program) {
		k := 2 + p.random.IntN(5)
		p.run(func(i int) {
			for range k {
				p.main.Line(10)
				p.forward(p.layers)
				p.main.Line(11)
				p.backward(p.layers)
			}
			p.main.Line(12)
			p.update()
			p.main.Line(13)
			p.main.Synchronize(p.stream)
		})
	},
	"logging every ten steps": func(p *program) {
		p.run(func(i int) {
			p.training(i, false)
			if i%10 == 9 {
				p.launch(14, "mean", 3*us)
				p.main.Copy(p.stream, activity.OpCopyToHost, 4, 2*us)
				p.main.Synchronize(p.stream)
			}
		})
	},
	"evaluation now and then": func(p *program) {
		p.run(func(i int) {
			p.training(i, true)
			if i%25 == 20 {
				p.main.Line(15)
				p.main.Enter("eval.py", "evaluate")
				for range 10 {
					p.main.Line(30)
					p.forward(p.layers)
				}
				p.main.Line(31)
				p.main.Synchronize(p.stream)
				p.main.Leave()
			}
		})
	},
	"layers of different number": func(p *program) {
		p.run(func(i int) {
			n := p.layers + p.random.IntN(p.layers)
			p.main.Line(10)
			p.forward(n)
			p.main.Line(11)
			p.backward(n)
			p.main.Line(12)
			p.update()
			p.main.Synchronize(p.stream)
		})
	},
	"backward on another thread": func(p *program) {
		other := p.process.Thread()
		p.run(func(i int) {
			p.main.Line(10)
			p.forward(p.layers)
			other.NowNs = p.main.NowNs + 20*us
			for range p.layers {
				other.Compute(3 * us)
				other.Launch(p.stream, "gemm_backward", 64, 40*us)
			}
			p.main.NowNs = other.NowNs + 10*us
			p.main.Line(12)
			p.update()
			p.main.Synchronize(p.stream)
		})
	},
	"decode": func(p *program) {
		p.run(func(i int) {
			p.main.Line(10)
			p.forward(p.layers)
			p.launch(11, "argmax", 4*us)
			p.main.Copy(p.stream, activity.OpCopyToHost, 4, 2*us)
			p.main.Synchronize(p.stream)
		})
	},
	"decode with a graph": func(p *program) {
		p.run(func(i int) {
			p.main.Line(10)
			p.main.Compute(5 * us)
			p.main.LaunchGraph(p.stream, 0x77, 800*us)
			p.main.Line(11)
			p.main.Copy(p.stream, activity.OpCopyToHost, 4, 2*us)
			p.main.Synchronize(p.stream)
		})
	},
	"three streams": func(p *program) {
		side, third := p.process.Stream(), p.process.Stream()
		p.run(func(i int) {
			p.main.Line(10)
			p.main.Copy(side, activity.OpCopyToDevice, 1<<20, 50*us)
			for n, s := range []*gpuprogram.JobStream{p.stream, side, third} {
				p.main.Line(11)
				for range 3 + n {
					p.main.Compute(3 * us)
					p.main.Launch(s, "mm", int32(64<<n), int64(10*(n+1))*us)
					p.main.Launch(s, "add", int32(64<<n), 3*us)
				}
			}
			p.main.Line(13)
			p.main.SynchronizeDevice()
		})
	},
}
