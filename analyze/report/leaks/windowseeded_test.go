package leaks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
)

// busyProgram is a program of examples/verdicts/seeded.py on a simulated allocator, with fewer allocations: it allocates in
// bursts in a part of each step, and pauses for the rest. Windows end after a number of events, as the recorder ends a
// window that has cost its share.
type busyProgram struct {
	*steppedSite
	busy       float64 // part of a step in which it allocates
	hidden     []int64 // sizes of temporary blocks
	kept       []int64 // sizes of leaked blocks
	isRolling  bool    // activations are freed one by one, not at the end of the busy part of a step
	activation []int32
}

// newBusyProgram returns a program with a random length of a step, from 50 ms to 2 s, and random sizes.
func newBusyProgram(t testing.TB, seed uint64) *busyProgram {
	r := rand.New(rand.NewPCG(verdictSeed, 9000+seed))
	stepNs := []int64{50, 100, 250, 500, 1000, 2000}[r.IntN(6)] * analyzetest.Ms
	p := &busyProgram{
		steppedSite: &steppedSite{steppedProgram: newEmptyProgram(t, r, stepNs)},
		busy:        []float64{0.2, 0.5, 1}[r.IntN(3)], isRolling: r.IntN(3) == 0,
	}
	for i, name := range []string{"hidden", "scratch", "kept", "ring"} {
		p.recording.AddStack(int32(i+1), name, "main", "_start")
		p.kinds[name] = fmt.Sprintf("%s, steps of %d ms, %.0f%% busy", name, stepNs/1e6, 100*p.busy)
	}
	for i := range 10 {
		if r.IntN(2) == 0 {
			p.hidden = append(p.hidden, 512<<i)
		}
	}
	p.hidden = append(p.hidden, 1<<20)
	p.kept = p.leakedSizes(r)
	p.plan(0.02 * math.Pow(20, r.Float64()))
	p.Run()
	return p
}

// leakedSizes returns one size, that of temporary blocks, or many sizes.
func (p *busyProgram) leakedSizes(r *rand.Rand) (sizes []int64) {
	switch own := int64(64<<10) << r.IntN(5); r.IntN(4) {
	case 0:
		return []int64{p.hidden[len(p.hidden)-1-r.IntN(min(3, len(p.hidden)))]}
	case 1:
		for range []int{5, 20, 60}[r.IntN(3)] {
			sizes = append(sizes, int64(float64(own)*math.Pow(2, r.Float64()*2.5-1.5)))
		}
		return sizes
	default:
		return []int64{own}
	}
}

// busyRate is the number of allocations per second.
const busyRate = 250

// plan plans all steps. share is the part of the allocations that leak.
func (p *busyProgram) plan(share float64) {
	count := int(busyRate * float64(p.stepNs) / float64(analyzetest.Second))
	credit := 0.0
	leaks := p.r.IntN(4) > 0
	bound := 30
	for i := range p.starts {
		for k := range count {
			at := p.at(i, p.busy*(float64(k)+0.5)/float64(count+1))
			if credit += share; credit >= 1 {
				credit--
				p.keep(at, leaks, &bound)
				continue
			}
			p.allocate(at)
		}
		if !p.isRolling {
			p.free(p.at(i, p.busy), 0)
		}
	}
}

// keep leaks a block. A program without a leak keeps no more than a bound.
func (p *busyProgram) keep(at int64, leaks bool, bound *int) {
	p.name, p.stack = "kept", 3
	size := p.kept[p.r.IntN(len(p.kept))]
	p.size = func() int64 { return size }
	switch {
	case leaks:
		p.leakBlock(at)
	case *bound > 0:
		*bound--
		p.alloc(at)
	default:
		p.Free(at+analyzetest.Second, p.alloc(at))
	}
}

// allocate allocates an activation, or a block that is freed at once.
func (p *busyProgram) allocate(at int64) {
	size := p.hidden[p.r.IntN(len(p.hidden))]
	p.size = func() int64 { return size }
	if p.r.Float64() < 0.4 {
		p.name, p.stack = "scratch", 2
		p.Free(at+100*analyzetest.Us, p.alloc(at))
		return
	}
	p.name, p.stack = "hidden", 1
	p.activation = append(p.activation, p.alloc(at))
	if p.isRolling {
		p.free(at+10*analyzetest.Us, 20)
	}
}

// free frees the oldest activations but a number of them.
func (p *busyProgram) free(at int64, but int) {
	for ; len(p.activation) > but; p.activation = p.activation[1:] {
		p.Free(at, p.activation[0])
	}
}

// TestVerdictsOfBusyPrograms cuts programs that pause in each step into windows that end after a number of events.
func TestVerdictsOfBusyPrograms(t *testing.T) {
	testclass.Unit(t)
	var score windowScore
	for i := range 2 * windowPrograms() {
		p := newBusyProgram(t, i)
		cut := analyzetest.AllocatorWindows{
			Seed: i, WindowNs: 400 * analyzetest.Ms, Share: 0.2, Refused: 0.05, Events: 60,
		}
		score.add(t, fmt.Sprintf("busy program %d", i), p.steppedProgram, cut)
	}
	score.check(t)
}
