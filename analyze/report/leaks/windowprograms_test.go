package leaks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
)

// steppedProgram is a random program of one minute on PyTorch's allocator that works in steps. Its leaks are known.
type steppedProgram struct {
	*analyzetest.BestFitProgram
	recording *analyzetest.TestRecording
	r         *rand.Rand
	stepNs    int64   // mean length of a step
	starts    []int64 // of the steps
	sizes     []int64 // sizes that several sites use
	leaks     map[string]*knownLeak
	kinds     map[string]string // pattern of each site
}

// knownLeak is a site that leaks.
type knownLeak struct {
	fromNs        int64
	blocks, bytes int64
	times         int64 // blocks, or bursts of blocks
}

// perMinute returns the leaked bytes per minute since the leak began.
func (l *knownLeak) perMinute() float64 {
	return float64(l.bytes) / float64(programEnd-l.fromNs) * float64(60*analyzetest.Second)
}

// steppedSite is a call site of a steppedProgram.
type steppedSite struct {
	*steppedProgram
	name   string
	stack  int32
	size   func() int64
	perRun int   // allocations per step
	stride int32 // the site allocates in each stride-th step
}

// maxPlannedCalls is about the largest number of allocations of one site.
const maxPlannedCalls = 1_500

// sitePattern is the use of memory by a site.
type sitePattern struct {
	name string
	run  func(*steppedSite)
}

var quietPatterns = []sitePattern{
	{"temporary", (*steppedSite).temporary},
	{"temporary", (*steppedSite).temporary},
	{"into the next step", (*steppedSite).intoNextStep},
	{"long in a step", (*steppedSite).longInStep},
	{"ring", (*steppedSite).ring},
	{"random cache", (*steppedSite).randomCache},
	{"drifting ring", (*steppedSite).driftingRing},
	{"warm-up", (*steppedSite).warmUp},
	{"weights", (*steppedSite).weights},
	{"lifetimes", (*steppedSite).lifetimes},
	{"sawtooth", (*steppedSite).sawtooth},
	{"evaluation", (*steppedSite).evaluation},
	{"random keys", (*steppedSite).randomKeys},
}

var leakPatterns = []sitePattern{
	{"leak", (*steppedSite).leak},
	{"leak of few", (*steppedSite).leakOfFew},
	{"late leak", (*steppedSite).lateLeak},
	{"covering leak", (*steppedSite).coveringLeak},
	{"leak of few over a temporary", (*steppedSite).leakOfFewOverTemporary},
	{"bursty leak", (*steppedSite).burstyLeak},
	{"random leak", (*steppedSite).randomLeak},
	{"leak of varying sizes", (*steppedSite).leakOfSizes},
}

// newSteppedProgram returns a program with steps of 5 ms to 2 s. It has 3 to 10 quiet sites and up to two leaks.
func newSteppedProgram(t testing.TB, seed uint64) *steppedProgram {
	r := rand.New(rand.NewPCG(verdictSeed, 7000+seed))
	p := newEmptyProgram(t, r, int64(float64(5*analyzetest.Ms)*math.Pow(400, r.Float64())))
	for i := range 3 + r.IntN(8) {
		p.addSite(fmt.Sprint("quiet", i), quietPatterns[r.IntN(len(quietPatterns))], int32(i+1))
	}
	for i := range r.IntN(3) {
		p.addSite(fmt.Sprint("leak", i), leakPatterns[r.IntN(len(leakPatterns))], int32(i+20))
	}
	p.Run()
	return p
}

// newEmptyProgram returns a program without sites.
func newEmptyProgram(t testing.TB, r *rand.Rand, stepNs int64) *steppedProgram {
	recording := analyzetest.NewTestRecording(t)
	p := &steppedProgram{
		BestFitProgram: analyzetest.NewBestFitProgram(recording), recording: recording, r: r, stepNs: stepNs,
		leaks: make(map[string]*knownLeak), kinds: make(map[string]string),
	}
	p.AddProcess(42)
	for at := programBegin; at < programEnd; at += int64(float64(stepNs) * (0.95 + 0.1*r.Float64())) {
		p.starts = append(p.starts, at)
	}
	for range 2 + r.IntN(3) {
		p.sizes = append(p.sizes, p.between(64<<10, 4*analyzetest.Mib)/512*512)
	}
	return p
}

// between returns a random number in a range. Small and large magnitudes are equally likely.
func (p *steppedProgram) between(low, high int64) int64 {
	return int64(float64(low) * math.Pow(float64(high)/float64(low), p.r.Float64()))
}

// addSite adds a site with one pattern.
func (p *steppedProgram) addSite(name string, pattern sitePattern, stack int32) {
	p.recording.AddStack(stack, name, "main", "_start")
	s := &steppedSite{steppedProgram: p, name: name, stack: stack, perRun: int(p.between(1, 40))}
	p.kinds[name] = pattern.name
	own := p.between(64<<10, 4*analyzetest.Mib) / 512 * 512
	if p.r.IntN(3) > 0 {
		own = p.sizes[p.r.IntN(len(p.sizes))]
	}
	s.size = func() int64 { return own }
	if p.r.IntN(6) == 0 {
		s.size = func() int64 { return p.between(own/2+1, own) }
	}
	s.stride = max(1, int32(len(p.starts)/maxPlannedCalls))
	s.perRun = min(s.perRun, max(1, maxPlannedCalls*int(s.stride)/len(p.starts)))
	pattern.run(s)
}

// at returns a time in step i, by its phase. A phase of 1.5 is in the next step.
func (s *steppedSite) at(i int, phase float64) int64 {
	i += int(phase)
	if i >= len(s.starts) {
		return programEnd + 2*analyzetest.Second
	}
	length := s.stepNs
	if i+1 < len(s.starts) {
		length = s.starts[i+1] - s.starts[i]
	}
	return s.starts[i] + int64((phase-math.Floor(phase))*float64(length))
}

func (s *steppedSite) alloc(at int64) int32 { return s.Alloc(at, s.size(), s.stack, s.name) }

// leakBlock allocates a block for good.
func (s *steppedSite) leakBlock(at int64) {
	l := s.leaks[s.name]
	if l == nil {
		l = &knownLeak{fromNs: at}
		s.leaks[s.name] = l
	}
	l.fromNs = min(l.fromNs, at)
	bytes := s.size()
	s.Alloc(at, bytes, s.stack, s.name)
	l.blocks++
	l.times++
	l.bytes += bytes
}

// every calls f for all allocations of all steps, with the phase of each, which is in a range.
func (s *steppedSite) every(from, to float64, f func(step, k int, phase float64)) {
	for i := s.stack % s.stride; int(i) < len(s.starts); i += s.stride {
		for k := range s.perRun {
			f(int(i), k, from+(to-from)*float64(k)/float64(s.perRun))
		}
	}
}

// phases returns two random phases, with a distance between two limits.
func (s *steppedSite) phases(least, most float64) (from, to float64) {
	length := least + (most-least)*s.r.Float64()
	from = (1 - math.Min(1, length)) * s.r.Float64()
	return from, from + length
}

func (s *steppedSite) temporary() {
	from, to := s.phases(0.001, 0.3)
	s.every(from, from+(to-from)/4, func(i, _ int, phase float64) {
		s.Free(s.at(i, phase+(to-from)*0.7), s.alloc(s.at(i, phase)))
	})
}

func (s *steppedSite) longInStep() {
	from, to := s.phases(0.5, 0.95)
	s.every(from, from+(to-from)/4, func(i, _ int, phase float64) {
		s.Free(s.at(i, phase+(to-from)*0.74), s.alloc(s.at(i, phase)))
	})
}

func (s *steppedSite) intoNextStep() {
	from, _ := s.phases(0.1, 0.9)
	s.every(from*0.9, from*0.9+0.1, func(i, _ int, phase float64) {
		s.Free(s.at(i, phase+0.6+0.3*from), s.alloc(s.at(i, phase)))
	})
}

// keepLast frees the oldest of n blocks before each allocation.
func (s *steppedSite) keepLast(n int) {
	var kept []int32
	s.every(0.2, 0.8, func(i, _ int, phase float64) {
		at := s.at(i, phase)
		if len(kept) == n {
			s.Free(at-analyzetest.Us, kept[0])
			kept = kept[1:]
		}
		kept = append(kept, s.alloc(at))
	})
}

// ringSize returns a number of blocks that the site allocates in at most 40 % of the time.
func (s *steppedSite) ringSize() int {
	return int(s.between(2, max(3, int64(0.4*float64(len(s.starts)/int(s.stride)*s.perRun)))))
}

func (s *steppedSite) ring() { s.keepLast(s.ringSize()) }

// driftingRing changes its size every 5 to 20 s.
func (s *steppedSite) driftingRing() {
	every, own := s.between(5, 20)*analyzetest.Second, s.size()
	var now int64
	s.size = func() int64 { return own + now/every*512 }
	var kept []int32
	n := s.ringSize()
	s.every(0.2, 0.8, func(i, _ int, phase float64) {
		now = s.at(i, phase)
		if len(kept) == n {
			s.Free(now-analyzetest.Us, kept[0])
			kept = kept[1:]
		}
		kept = append(kept, s.alloc(now))
	})
}

// randomCache replaces a random one of n blocks.
func (s *steppedSite) randomCache() {
	n := s.ringSize()
	var kept []int32
	s.every(0.2, 0.8, func(i, _ int, phase float64) {
		at := s.at(i, phase)
		if len(kept) < n {
			kept = append(kept, s.alloc(at))
			return
		}
		k := s.r.IntN(n)
		s.Free(at-analyzetest.Us, kept[k])
		kept[k] = s.alloc(at)
	})
}

func (s *steppedSite) warmUp() {
	end := programBegin + int64((0.05+0.6*s.r.Float64())*float64(programEnd-programBegin))
	s.every(0.1, 0.9, func(i, _ int, phase float64) {
		if at := s.at(i, phase); at < end {
			s.alloc(at)
		}
	})
}

func (s *steppedSite) weights() {
	for i := range s.between(1, 200) {
		s.alloc(programBegin/2 + i*analyzetest.Us)
	}
}

// lifetimes allocates blocks with exponential lifetimes of 5 ms to 5 s.
func (s *steppedSite) lifetimes() {
	mean := float64(s.between(5*analyzetest.Ms, 5*analyzetest.Second))
	s.every(0, 1, func(i, _ int, phase float64) {
		at := s.at(i, phase)
		s.Free(at+analyzetest.Us+int64(mean*s.r.ExpFloat64()), s.alloc(at))
	})
}

// sawtooth frees all of its blocks every 0.5 to 15 s.
func (s *steppedSite) sawtooth() {
	period := s.between(analyzetest.Second/2, 15*analyzetest.Second)
	until := programBegin + period
	var kept []int32
	s.every(0.2, 0.8, func(i, _ int, phase float64) {
		at := s.at(i, phase)
		for ; at >= until; until += period {
			for _, b := range kept {
				s.Free(at-analyzetest.Us, b)
			}
			kept = nil
		}
		kept = append(kept, s.alloc(at))
	})
}

// evaluation allocates for a while every 3 to 10 s.
func (s *steppedSite) evaluation() {
	period := s.between(3*analyzetest.Second, 10*analyzetest.Second)
	from, to := s.phases(0.1, 0.9)
	s.every(from, from+(to-from)/2, func(i, _ int, phase float64) {
		if at := s.at(i, phase); at%period < period/4 {
			s.Free(s.at(i, phase+(to-from)*0.49), s.alloc(at))
		}
	})
}

// randomKeys is a cache with random keys, which has nearly all of them in the end.
func (s *steppedSite) randomKeys() {
	requests := len(s.starts) / int(s.stride) * s.perRun
	seen := make([]bool, max(1, int(float64(requests)/(3.5+4*s.r.Float64()))))
	s.every(0.1, 0.9, func(i, _ int, phase float64) {
		if key := s.r.IntN(len(seen)); !seen[key] {
			seen[key] = true
			s.alloc(s.at(i, phase))
		}
	})
}

func (s *steppedSite) leak() {
	from := s.r.Float64() * 0.8
	s.every(from, from+0.1, func(i, _ int, phase float64) { s.leakBlock(s.at(i, phase)) })
}

// leakOfFew leaks one of several blocks.
func (s *steppedSite) leakOfFew() {
	n := int(s.between(2, 60))
	from, to := s.phases(0.01, 0.6)
	count := s.r.IntN(n)
	s.every(from, from+(to-from)/4, func(i, _ int, phase float64) {
		if count++; count%n == 0 {
			s.leakBlock(s.at(i, phase))
		} else {
			s.Free(s.at(i, phase+(to-from)*0.7), s.alloc(s.at(i, phase)))
		}
	})
}

// lateLeak frees its blocks until it begins to leak.
func (s *steppedSite) lateLeak() {
	begin := programBegin + int64((0.1+0.4*s.r.Float64())*float64(programEnd-programBegin))
	from := s.r.Float64() * 0.6
	s.every(from, from+0.1, func(i, _ int, phase float64) {
		if at := s.at(i, phase); at >= begin {
			s.leakBlock(at)
		} else {
			s.Free(s.at(i, phase+0.2), s.alloc(at))
		}
	})
}

// coveringLeak leaks blocks at addresses that another site has just freed.
func (s *steppedSite) coveringLeak() {
	from, to := s.phases(0.05, 0.8)
	s.recording.AddStack(s.stack+10, s.name+" covered", "main", "_start")
	s.kinds[s.name+" covered"] = "covered"
	s.every(from, from+(to-from)/10, func(i, _ int, phase float64) {
		end := s.at(i, phase+(to-from)*0.8)
		s.Free(end, s.Alloc(s.at(i, phase), s.size(), s.stack+10, s.name+" covered"))
		s.leakBlock(end + 10)
	})
}

// leakOfFewOverTemporary leaks one of several blocks, at an address that another site has just freed.
func (s *steppedSite) leakOfFewOverTemporary() {
	from, to := s.phases(0.1, 0.8)
	s.recording.AddStack(s.stack+10, s.name+" covered", "main", "_start")
	s.kinds[s.name+" covered"] = "covered"
	n := int(s.between(2, 30))
	for i := 0; i < len(s.starts); i += int(s.stride) {
		end := s.at(i, to)
		s.Free(end, s.Alloc(s.at(i, from), s.size(), s.stack+10, s.name+" covered"))
		s.leakBlock(end + 10)
		for k := range min(n, maxPlannedCalls*int(s.stride)/len(s.starts)) {
			at := s.at(i, to+0.001*float64(k+1))
			s.Free(s.at(i, to+0.001*float64(k+1)+0.1), s.alloc(at))
		}
	}
}

// burstyLeak leaks at the end of each epoch of 0.5 to 3 s.
func (s *steppedSite) burstyLeak() {
	epoch := s.between(analyzetest.Second/2, 3*analyzetest.Second)
	for at := programBegin + epoch; at < programEnd; at += epoch {
		for k := range s.between(4, 40) {
			s.leakBlock(at + k*100*analyzetest.Us)
		}
		l := s.leaks[s.name]
		l.times = (at - programBegin) / epoch
	}
}

func (s *steppedSite) randomLeak() {
	n := int64(len(s.starts) / int(s.stride) * s.perRun)
	for range n {
		s.leakBlock(programBegin + s.r.Int64N(programEnd-programBegin))
		at := programBegin + s.r.Int64N(programEnd-programBegin)
		s.Free(at+int64(s.r.ExpFloat64()*float64(s.stepNs)), s.alloc(at))
	}
}

func (s *steppedSite) leakOfSizes() {
	own := s.size()
	s.size = func() int64 { return s.between(own/4+1, own) }
	s.leak()
}
