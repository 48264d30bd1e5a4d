package idle_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// program is a job with the truth about why its GPU does not run kernels.
type program struct {
	job        *gpuprogram.Job
	th         *gpuprogram.JobThread
	main, side *gpuprogram.JobStream
	event      int64

	reasons []idle.Reason // one of them is right
	name    string        // driver function
	line    int           // of the cause
	after   int           // line of the call before; 0: any
	bound   idle.Bound    // BoundUnknown: any
}

func newProgram(seed uint64, full bool) *program {
	p := &program{job: gpuprogram.NewJob(seed, gpuprogram.Plan{Full: full, NoReturns: seed%2 == 1})}
	process := p.job.Process(0)
	p.th, p.main, p.side = process.Thread(), process.Stream(), process.Stream()
	p.th.Enter("train.py", "main")
	p.th.Line(5)
	p.event = p.th.NewEvent()
	return p
}

// between returns a random number.
func (p *program) between(low, high int64) int64 { return low + p.job.Random().Int64N(high-low+1) }

// kernels launches kernels at a line, with little time between them.
func (p *program) kernels(line, n int, s *gpuprogram.JobStream, kernel string, gpuNs int64) {
	p.th.Line(line)
	for range n {
		p.th.Launch(s, kernel, 64, gpuNs)
		p.th.Compute(1500)
	}
}

// programs are programs by the reason for which their GPU does not run kernels.
var programs = map[string]func(p *program){
	"cpu bound": func(p *program) {
		p.reasons, p.line, p.bound = []idle.Reason{idle.ReasonOutside, idle.ReasonLaunch}, 11, idle.BoundCPU
		ns, pauseNs := p.between(4000, 9000), p.between(15_000, 40_000)
		for i := range 4000 {
			p.th.Line(11)
			p.th.Compute(pauseNs)
			p.th.Launch(p.main, "gemm", 64, ns)
			if i%400 == 0 {
				p.th.Line(12)
				p.th.Synchronize(p.main)
			}
		}
	},
	"gpu bound": func(p *program) {
		p.bound = idle.BoundGPU
		ns, n := p.between(100_000, 300_000), int(p.between(40, 80))
		for range 40 {
			p.kernels(20, n, p.main, "gemm", ns)
			p.th.Line(21)
			p.th.Synchronize(p.main)
		}
	},
	"python": func(p *program) {
		p.reasons, p.line, p.after = []idle.Reason{idle.ReasonOutside}, 30, 31
		ns, pauseNs := p.between(5000, 20_000), p.between(1_000_000, 3_000_000)
		for range 60 {
			p.kernels(30, 20, p.main, "gemm", ns)
			p.kernels(31, 20, p.main, "relu", ns/2)
			p.th.Line(32)
			p.th.Compute(pauseNs)
		}
	},
	"python after a wait": func(p *program) {
		p.reasons, p.line, p.after = []idle.Reason{idle.ReasonOutside}, 33, 34
		ns, pauseNs := p.between(5000, 20_000), p.between(1_000_000, 3_000_000)
		for range 60 {
			p.kernels(33, 40, p.main, "gemm", ns)
			p.th.Line(34)
			p.th.Synchronize(p.main)
			p.th.Line(35)
			p.th.Compute(pauseNs)
		}
	},
	"wait": func(p *program) {
		p.reasons, p.name, p.line = []idle.Reason{idle.ReasonWait}, "cuStreamSynchronize", 41
		ns, pauseNs := p.between(10_000, 30_000), p.between(5000, 20_000)
		for range 400 {
			p.kernels(40, 10, p.main, "gemm", ns)
			p.th.Line(41)
			p.th.Synchronize(p.main)
			p.th.Compute(pauseNs)
		}
	},
	"allocation": func(p *program) {
		p.reasons, p.name, p.line = []idle.Reason{idle.ReasonCall}, "cuMemAlloc_v2", 51
		ns, pauseNs := p.between(5000, 20_000), p.between(600_000, 2_000_000)
		for range 100 {
			p.kernels(50, 20, p.main, "gemm", ns)
			p.th.Line(51)
			p.th.Call(format.KindAlloc, "cuMemAlloc_v2", pauseNs+20*ns)
			p.th.Compute(10_000)
		}
	},
	"copy": func(p *program) {
		p.reasons, p.line = []idle.Reason{idle.ReasonCopy}, 60
		ns, copyNs := p.between(20_000, 40_000), p.between(300_000, 900_000)
		for range 150 {
			p.th.Line(60)
			p.th.Copy(p.main, activity.OpCopyToDevice, 8<<20, copyNs)
			p.kernels(61, 30, p.main, "gemm", ns)
			p.th.Line(62)
			p.th.Synchronize(p.main)
		}
	},
	"copy on another stream": func(p *program) {
		p.reasons, p.line = []idle.Reason{idle.ReasonCopy}, 63
		ns, copyNs := p.between(20_000, 40_000), p.between(300_000, 900_000)
		for range 150 {
			p.th.Line(63)
			p.th.Copy(p.side, activity.OpCopyToDevice, 8<<20, copyNs)
			p.th.Line(64)
			p.th.RecordEvent(p.side, p.event)
			p.th.WaitEvent(p.main, p.event)
			p.kernels(65, 30, p.main, "gemm", ns)
			p.th.Line(66)
			p.th.Synchronize(p.main)
		}
	},
	"other stream": func(p *program) {
		p.reasons, p.line = []idle.Reason{idle.ReasonStream}, 71
		ns, bigNs := p.between(20_000, 40_000), p.between(300_000, 600_000)
		for step := range 100 {
			if step%5 == 0 {
				p.th.SynchronizeDevice()
			}
			p.kernels(70, 1, p.side, "big", bigNs)
			p.th.RecordEvent(p.side, p.event)
			p.th.Line(71)
			p.th.WaitEvent(p.main, p.event)
			p.kernels(72, 40, p.main, "gemm", ns)
			p.th.Line(73)
			p.th.RecordEvent(p.main, p.event)
			p.th.WaitEvent(p.side, p.event)
		}
		p.th.SynchronizeDevice()
	},
	"collective": func(p *program) {
		p.reasons, p.line = []idle.Reason{idle.ReasonCollective}, 81
		ns, allNs := p.between(20_000, 40_000), p.between(300_000, 600_000)
		for step := range 100 {
			if step%5 == 0 {
				p.th.SynchronizeDevice()
			}
			p.kernels(80, 20, p.main, "gemm", ns)
			p.th.RecordEvent(p.main, p.event)
			p.th.WaitEvent(p.side, p.event)
			p.kernels(81, 1, p.side, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", allNs)
			p.th.Line(82)
			p.th.RecordEvent(p.side, p.event)
			p.th.WaitEvent(p.main, p.event)
		}
		p.th.SynchronizeDevice()
	},
	"mixed": func(p *program) {
		p.reasons, p.line, p.after = []idle.Reason{idle.ReasonOutside}, 90, 92
		ns, copyNs, pauseNs := p.between(10_000, 30_000), p.between(100_000, 200_000), p.between(1_500_000, 3_000_000)
		for range 60 {
			p.kernels(90, 30, p.main, "gemm", ns)
			p.th.Line(91)
			p.th.Copy(p.main, activity.OpCopyToHost, 1<<20, copyNs)
			p.th.Line(92)
			p.th.Synchronize(p.main)
			p.th.Compute(pauseNs)
		}
	},
}

// TestPhasesAreFound checks the bound in the middle of each phase of programs that alternate.
func TestPhasesAreFound(t *testing.T) {
	testclass.Unit(t)
	const phases = 8
	variants := gpuprogram.Seeds(2)
	for _, full := range []bool{false, true} {
		wrong := 0
		for seed := range uint64(variants) {
			p := newProgram(seed, full)
			ns, bigNs, pauseNs := p.between(4000, 9000), p.between(100_000, 250_000), p.between(20_000, 40_000)
			want := make([]idle.Bound, phases)
			for i := range phases {
				p.th.Step = i
				lengthNs := p.between(60_000_000, 120_000_000)
				if want[i] = idle.BoundCPU; i%2 == 1 {
					want[i] = idle.BoundGPU
					p.kernels(20, int(lengthNs/bigNs), p.main, "big", bigNs)
				} else {
					for range lengthNs / pauseNs {
						p.th.Line(21)
						p.th.Compute(pauseNs)
						p.th.Launch(p.main, "gemm", 64, ns)
					}
				}
				p.th.Line(22)
				p.th.Synchronize(p.main)
			}
			r, err := idle.Compute(p.job.Recording(t, 0).Timeline(), idle.Options{Filter: new(query.Filter)})
			if err != nil {
				t.Fatal(err)
			}
			spans := r.Devices[0].Phases()
			for i, middleNs := range middles(p.job, phases) {
				k := slices.IndexFunc(spans, func(s idle.Span) bool { return s.Window.ToNs > middleNs })
				if spans[k].Bound != want[i] {
					wrong++
					t.Logf(
						"full %t, seed %d: phase %d has bound %d of %d phases",
						full,
						seed,
						i,
						spans[k].Bound,
						len(spans),
					)
					break
				}
			}
		}
		t.Logf("full %t: %d of %d right", full, variants-wrong, variants)
		if wrong > 0 {
			t.Errorf("full %t: %d of %d wrong", full, wrong, variants)
		}
	}
}

// middles returns the middle of each step on the GPU.
func middles(j *gpuprogram.Job, steps int) []int64 {
	first, last := make([]int64, steps), make([]int64, steps)
	for i := range j.Operations {
		w := &j.Operations[i]
		if first[w.Step] == 0 {
			first[w.Step] = w.StartNs
		}
		last[w.Step] = w.EndNs
	}
	for i := range first {
		first[i] += (last[i] - first[i]) / 2
	}
	return first
}

// truth has the times of the states of the simulated GPU, and its gaps.
type truth struct {
	idleNs, copiesNs, collectivesNs, spanNs int64
	gaps                                    [][2]int64
}

func truthOf(j *gpuprogram.Job) (t truth) {
	type edge struct {
		ns   int64
		kind int
		step int
	}
	var edges []edge
	for i := range j.Operations {
		w := &j.Operations[i]
		kind := 0
		if w.Kernel == "" {
			kind = 1
		} else if len(w.Kernel) > 4 && w.Kernel[:4] == "nccl" {
			kind = 2
		}
		edges = append(edges, edge{w.StartNs, kind, 1}, edge{w.EndNs, kind, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(a.ns - b.ns) })
	var counts [3]int
	atNs := edges[0].ns
	for _, e := range edges {
		ns := e.ns - atNs
		t.spanNs += ns
		switch {
		case counts[0] > 0:
		case counts[2] > 0:
			t.collectivesNs += ns
		case counts[1] > 0:
			t.copiesNs += ns
		default:
			t.idleNs += ns
			if ns > 0 {
				t.gaps = append(t.gaps, [2]int64{atNs, e.ns})
			}
		}
		counts[e.kind] += e.step
		atNs = e.ns
	}
	return t
}

// TestCausesAreFound checks cause, line and bound in random variants of each program, and that the true
// times are within their intervals.
func TestCausesAreFound(t *testing.T) {
	testclass.Unit(t)
	variants := gpuprogram.Seeds(2)
	for name, write := range programs {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/full=%t", name, full), func(t *testing.T) {
				wrong, held, values := 0, 0, 0
				var sharedNs, foundNs, trueNs float64
				for seed := range uint64(variants) {
					p := newProgram(seed, full)
					write(p)
					tl := p.job.Recording(t, 0).Timeline()
					r, err := idle.Compute(tl, idle.Options{Filter: new(query.Filter), MaxGaps: 1000})
					if err != nil || len(r.Devices) != 1 {
						t.Fatalf("%d devices, %v", len(r.Devices), err)
					}
					d := r.Devices[0]
					if problem := p.check(d, tl.SiteOfStack); problem != "" {
						wrong++
						t.Logf("seed %d: %s", seed, problem)
					}
					within, all := countHeld(t, seed, d, truthOf(p.job))
					held, values = held+within, values+all
					if truth := truthOf(p.job); !d.IsLimited() {
						shared, found, all := compareGaps(d, truth.gaps)
						sharedNs, foundNs, trueNs = sharedNs+shared, foundNs+found, trueNs+all
					}
				}
				t.Logf("%d of %d right, %d of %d values in their intervals", variants-wrong, variants, held, values)
				if trueNs > 0 {
					t.Logf("gaps of 50 us or more: %.1f%% of the true time found, %.1f%% of the found time true",
						100*sharedNs/trueNs, 100*sharedNs/max(1, foundNs))
					if sharedNs < 0.95*trueNs || sharedNs < 0.95*foundNs {
						t.Errorf("%.2f ms shared, %.2f ms found, %.2f ms true", sharedNs/1e6, foundNs/1e6, trueNs/1e6)
					}
				}
				if wrong > 0 || held < values-1 && held*100 < values*95 {
					t.Errorf("%d of %d wrong, %d of %d values in their intervals", wrong, variants, held, values)
				}
			})
		}
	}
}

// check compares the main cause and the bound with the truth.
func (p *program) check(d *idle.Device, siteOf func(int32) string) string {
	bounds := make(map[idle.Bound]int)
	for _, s := range d.Slices() {
		bounds[s.Bound]++
	}
	if p.bound != idle.BoundUnknown && bounds[p.bound] < idle.Slices*9/10 {
		return fmt.Sprintf("bounds %v", bounds)
	}
	if p.line == 0 {
		return ""
	}
	c := d.Causes[0]
	if !slices.Contains(p.reasons, c.Reason) || c.Name != p.name ||
		siteOf(c.Stack) != fmt.Sprintf("main (train.py:%d)", p.line) ||
		p.after != 0 && siteOf(c.After) != fmt.Sprintf("main (train.py:%d)", p.after) {
		text := ""
		for _, c := range d.Causes[:min(4, len(d.Causes))] {
			text += fmt.Sprintf(
				"\n\treason %d %s at %s after %s: %d gaps, %.2f ms",
				c.Reason,
				c.Name,
				siteOf(c.Stack),
				siteOf(c.After),
				c.Gaps,
				c.Time.ProbableNs/1e6,
			)
		}
		return fmt.Sprintf("want %d %s at %d, found%s", p.reasons, p.name, p.line, text)
	}
	return ""
}

// compareGaps returns the time that found and true idle gaps of at least 50 us share, and their own times.
func compareGaps(d *idle.Device, gaps [][2]int64) (sharedNs, foundNs, trueNs float64) {
	const longNs = 50_000
	var found [][2]int64
	for i := range d.Gaps {
		if g := &d.Gaps[i]; g.Cause.Reason.IsIdle() {
			found = append(found, [2]int64{g.FromNs, g.ToNs})
		}
	}
	slices.SortFunc(found, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	share := func(of, with [][2]int64) (all, shared float64) {
		k := 0
		for _, g := range of {
			if g[1]-g[0] < longNs {
				continue
			}
			all += float64(g[1] - g[0])
			for k < len(with) && with[k][1] <= g[0] {
				k++
			}
			for i := k; i < len(with) && with[i][0] < g[1]; i++ {
				shared += float64(min(g[1], with[i][1]) - max(g[0], with[i][0]))
			}
		}
		return all, shared
	}
	foundNs, a := share(found, gaps)
	trueNs, b := share(gaps, found)
	return min(a, b), foundNs, trueNs
}

// countHeld counts the values that are within their intervals.
func countHeld(t *testing.T, seed uint64, d *idle.Device, truth truth) (held, all int) {
	const slackNs = 20_000
	for _, v := range []struct {
		name string
		ns   int64
		in   idle.Estimate
	}{
		{"idle", truth.idleNs, d.Time.Idle},
		{"copies", truth.copiesNs, d.Time.Copies},
		{"collectives", truth.collectivesNs, d.Time.Collectives},
	} {
		all++
		if float64(v.ns) >= v.in.MinNs-slackNs && float64(v.ns) <= v.in.MaxNs+slackNs {
			held++
		} else {
			t.Logf(
				"seed %d: %s %.3f ms not in %.3f to %.3f, probably %.3f",
				seed,
				v.name,
				float64(v.ns)/1e6,
				v.in.MinNs/1e6,
				v.in.MaxNs/1e6,
				v.in.ProbableNs/1e6,
			)
		}
	}
	return held, all
}
