package leaks_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// verdictSeed is the random seed of the first program.
const verdictSeed = 1

// verdictPrograms is the number of random programs per test; `make verdicts` sets more.
func verdictPrograms() int {
	if os.Getenv("GPUREC_VERDICTS") == "1" {
		return 240
	}
	return 30
}

// madeUpProgram is a random program of one minute with known leaks. It avoids cases that a
// recording cannot show: a cache that is still filling at the end, a leak of three blocks, a ring
// that frees nothing yet.
type madeUpProgram struct {
	recording *analyzetest.TestRecording
	r         *rand.Rand
	next      int64
	grows     map[string]bool
	gaps      []error // errors of unreadable segments
}

// madeUpSite is a call site that allocates in one process during a part of the minute.
type madeUpSite struct {
	*madeUpProgram
	name     string
	pid      int32
	from, to int64
}

const programBegin, programEnd = analyzetest.Second, 59 * analyzetest.Second

func newMadeUpProgram(t testing.TB, seed uint64) *madeUpProgram {
	p := &madeUpProgram{
		recording: analyzetest.NewTestRecording(t),
		r:         rand.New(rand.NewPCG(verdictSeed, seed)),
		next:      0x7f0000000000,
		grows:     make(map[string]bool),
	}
	p.recording.AddRow(format.Row{Kind: format.KindProcess, Pid: 42, StartNs: analyzetest.Epoch})
	quiet := []func(*madeUpSite){
		(*madeUpSite).churn, (*madeUpSite).ring, (*madeUpSite).warmUp, (*madeUpSite).randomKeys, (*madeUpSite).weights,
		(*madeUpSite).sawtooth, (*madeUpSite).lifetimes, (*madeUpSite).longerBuffers, (*madeUpSite).jobs,
	}
	leakReport := []func(*madeUpSite){
		(*madeUpSite).regularLeak,
		(*madeUpSite).randomLeak,
		(*madeUpSite).burstyLeak,
		(*madeUpSite).leakInOneBlock,
		(*madeUpSite).leakOfFew,
	}
	for i := range 2 + p.r.IntN(4) {
		s := &madeUpSite{madeUpProgram: p, name: fmt.Sprint("quiet", i), pid: 42, from: programBegin, to: programEnd}
		quiet[p.r.IntN(len(quiet))](s)
	}
	for i := range p.r.IntN(3) {
		s := &madeUpSite{madeUpProgram: p, name: fmt.Sprint("leak", i), pid: 42, from: programBegin, to: programEnd}
		if p.r.IntN(3) == 0 { // in its own process, which may end
			s.pid = 100 + int32(i)
			if p.r.IntN(2) == 0 {
				s.to = s.within(0.6, 0.9)
				p.recording.AddExit(s.pid, s.to+analyzetest.Ms)
			}
		}
		p.grows[s.name] = true
		leakReport[p.r.IntN(len(leakReport))](s)
	}
	slices.SortStableFunc(p.recording.Rows, func(a, b *format.Row) int { return cmp.Compare(a.StartNs, b.StartNs) })
	return p
}

// within returns a random time between two shares of the site's time.
func (s *madeUpSite) within(from, to float64) int64 {
	return s.from + int64((from+(to-from)*s.r.Float64())*float64(s.to-s.from))
}

// between returns a random number in a range. Small and large magnitudes are equally likely.
func (p *madeUpProgram) between(low, high int64) int64 {
	for high > 2*low && p.r.IntN(2) == 0 {
		high /= 2
	}
	return low + p.r.Int64N(high-low+1)
}

func (s *madeUpSite) alloc(atNs, bytes int64) int64 {
	s.next += bytes + 512
	r := analyzetest.SetStackAndSite(s.recording.AddAlloc(atNs, analyzetest.Us, s.next, bytes), 1, s.name)
	r.Pid, r.Tid = s.pid, s.pid
	return s.next
}

// free frees a block, unless the time is after the end.
func (s *madeUpSite) free(atNs, ptr int64) {
	if atNs >= s.to {
		return
	}
	r := s.recording.AddFree(atNs, analyzetest.Us, ptr)
	r.Pid, r.Tid = s.pid, s.pid
}

// churn frees within the same step or in the next one.
func (s *madeUpSite) churn() {
	step := s.between(100*analyzetest.Ms, analyzetest.Second)
	life := 1 + s.r.Int64N(2*step)
	for ns := s.from; ns+life < s.to; ns += step {
		s.free(ns+life, s.alloc(ns, s.between(4096, 64*analyzetest.Mib)))
	}
}

// ring frees the oldest block when it is full.
func (s *madeUpSite) ring() {
	size := 20 + s.r.IntN(200)
	step := (s.within(0.02, 0.7) - s.from) / int64(size)
	var slots []int64
	for ns := s.from; ns < s.to; ns += max(step, 20*analyzetest.Ms) {
		if slots = append(slots, s.alloc(ns, s.between(analyzetest.Mib/4, analyzetest.Mib))); len(slots) > size {
			s.free(ns+2*analyzetest.Us, slots[0])
			slots = slots[1:]
		}
	}
}

// warmUp grows at some rate until a random time.
func (s *madeUpSite) warmUp() {
	end, step := s.within(0.05, 0.7), s.between(50*analyzetest.Ms, analyzetest.Second)
	for ns := s.from; ns < end; ns += step {
		s.alloc(ns, s.between(analyzetest.Mib/4, 4*analyzetest.Mib))
	}
}

// randomKeys is a cache with random keys, which has nearly all of them in the end.
func (s *madeUpSite) randomKeys() {
	seen := make([]bool, 60+s.r.IntN(400))
	requests := int64(float64(len(seen)) * (3.5 + 4*s.r.Float64()))
	for i := range requests {
		if key := s.r.IntN(len(seen)); !seen[key] {
			seen[key] = true
			s.alloc(s.from+i*(s.to-s.from)/requests, s.between(analyzetest.Mib/2, analyzetest.Mib))
		}
	}
}

// weights allocates all blocks at once, up to three times.
func (s *madeUpSite) weights() {
	for range 1 + s.r.IntN(3) {
		ns := s.within(0, 1)
		for i := range s.between(1, 64) {
			s.alloc(ns+i*analyzetest.Us, s.between(analyzetest.Mib, 64*analyzetest.Mib))
		}
	}
}

// sawtooth frees all of its blocks at least once.
func (s *madeUpSite) sawtooth() {
	period, step := s.within(0.02, 0.6)-s.from, s.between(50*analyzetest.Ms, 500*analyzetest.Ms)
	var kept []int64
	for ns, until := s.from, s.from+period; ns < s.to; ns += step {
		kept = append(kept, s.alloc(ns, s.between(analyzetest.Mib/4, analyzetest.Mib)))
		for ; ns >= until; until += period {
			for _, ptr := range kept {
				s.free(ns+2*analyzetest.Us, ptr)
			}
			kept = nil
		}
	}
}

// lifetimes allocates blocks with random lifetimes.
func (s *madeUpSite) lifetimes() {
	step := s.between(50*analyzetest.Ms, 500*analyzetest.Ms)
	for ns := s.from; ns < s.to; ns += step {
		s.free(
			ns+2*analyzetest.Us+s.r.Int64N(10*analyzetest.Second),
			s.alloc(ns, s.between(analyzetest.Mib/4, analyzetest.Mib)),
		)
	}
}

// longerBuffers replaces blocks by longer ones, up to a maximum.
func (s *madeUpSite) longerBuffers() {
	end, step := s.within(0.1, 0.7), s.between(100*analyzetest.Ms, analyzetest.Second)
	var pair [2]int64
	for ns, i := s.from, int64(0); ns < s.to; ns, i = ns+step, i+1 {
		ptr := s.alloc(ns, (min(ns, end)-s.from)/analyzetest.Us+analyzetest.Mib)
		if pair[i%2] != 0 {
			s.free(ns+2*analyzetest.Us, pair[i%2])
		}
		pair[i%2] = ptr
	}
}

// jobs are successive processes that free nothing before they end.
func (s *madeUpSite) jobs() {
	n := 5 + s.r.Int64N(20)
	each := (s.to - s.from) / n
	for i := range n {
		s.pid = 1000 + int32(i) + 100*int32(s.name[len(s.name)-1])
		for k := range s.between(1, 8) {
			s.alloc(s.from+i*each+k*analyzetest.Us, 16*analyzetest.Mib)
		}
		s.recording.AddExit(s.pid, s.from+(i+1)*each-analyzetest.Ms)
	}
}

// start returns the start of a leak: at once, or later.
func (s *madeUpSite) start() int64 {
	if s.r.IntN(2) == 0 {
		return s.from
	}
	return s.within(0, 0.55)
}

func (s *madeUpSite) regularLeak() {
	start := s.start()
	step := (s.to - start) / s.between(30, 400)
	for ns := start; ns < s.to; ns += step {
		s.alloc(ns, s.between(128<<10, analyzetest.Mib))
	}
}

// randomLeak leaks at random, and also allocates and frees blocks in between.
func (s *madeUpSite) randomLeak() {
	start, n := s.start(), s.between(80, 400)
	for range n {
		s.alloc(start+s.r.Int64N(s.to-start), s.between(analyzetest.Mib/2, analyzetest.Mib))
	}
	for range n {
		ns := s.from + s.r.Int64N(s.to-s.from)
		s.free(ns+analyzetest.Ms, s.alloc(ns, s.between(analyzetest.Mib/2, analyzetest.Mib)))
	}
}

// burstyLeak leaks at the end of each epoch.
func (s *madeUpSite) burstyLeak() {
	n := s.between(10, 30)
	for i := range n {
		for k := range s.between(4, 5) {
			s.alloc(s.from+i*(s.to-s.from)/n+k*analyzetest.Us, analyzetest.Mib)
		}
	}
}

// leakInOneBlock replaces its one block by a longer one again and again.
func (s *madeUpSite) leakInOneBlock() {
	start := s.start()
	step := (s.to - start) / s.between(40, 300)
	last := int64(0)
	for ns := start; ns < s.to; ns += step {
		ptr := s.alloc(ns, (ns-start)/analyzetest.Second*analyzetest.Mib+analyzetest.Mib)
		if last != 0 {
			s.free(ns+2*analyzetest.Us, last)
		}
		last = ptr
	}
}

// leakOfFew leaks one of several blocks.
func (s *madeUpSite) leakOfFew() {
	start, every := s.start(), int(s.between(2, 16))
	step := (s.to - start) / (s.between(40, 60) * int64(every))
	for ns, i := start, 0; ns < s.to; ns, i = ns+step, i+1 {
		ptr := s.alloc(ns, analyzetest.Mib)
		if i%every > 0 {
			s.free(ns+step/2, ptr)
		}
	}
}

// judge compares the verdicts with the known leaks.
func (p *madeUpProgram) judge(t *testing.T, what string, damaged bool) (right, wrong, missed int) {
	t.Helper()
	tl := p.recording.Timeline()
	tl.Rec.Damaged = p.gaps
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Tables[0].Rows {
		site, verdict := analyzetest.CellValue(t, r, i, "site").(string), analyzetest.CellValue(t, r, i, "verdict").(string)
		is, says := p.grows[site], verdict == "growing"
		switch {
		case is && says:
			right++
		case says:
			wrong++
			t.Errorf("%s: %s does not grow: %s", what, site, r.Tables[0].Rows[i].Evidence)
		case is:
			missed++
			if !damaged {
				t.Errorf("%s: %s grows: %s, %s", what, site, verdict, r.Tables[0].Rows[i].Evidence)
			}
		}
	}
	return right, wrong, missed
}

func TestVerdictsOfRandomPrograms(t *testing.T) {
	testclass.Unit(t)
	var right, wrong, missed int
	for i := range uint64(verdictPrograms()) {
		p := newMadeUpProgram(t, i)
		a, b, c := p.judge(t, fmt.Sprint("program ", i), false)
		right, wrong, missed = right+a, wrong+b, missed+c
	}
	t.Logf(
		"%d random programs: precision %.3f, recall %.3f of %d leaks",
		verdictPrograms(),
		ratio(right, right+wrong),
		ratio(right, right+missed),
		right+missed,
	)
}

// TestVerdictsOfDamagedRandomPrograms removes calls from recordings: single calls or bursts, with
// their number noted, or whole segments of unknown content.
func TestVerdictsOfDamagedRandomPrograms(t *testing.T) {
	testclass.Unit(t)
	var right, missed int
	for i := range uint64(verdictPrograms()) {
		p := newMadeUpProgram(t, 1000+i)
		what := []func() string{p.loseSome, p.loseFrees, p.loseHeaps, p.loseSegments}[i%4]()
		a, _, c := p.judge(t, fmt.Sprintf("program %d, %s", 1000+i, what), true)
		right, missed = right+a, missed+c
	}
	t.Logf("%d damaged programs: %d leaks found, %d not", verdictPrograms(), right, missed)
}

// lose removes calls and notes their number.
func (p *madeUpProgram) lose(is func(*format.Row) bool) {
	before := len(p.recording.Rows)
	p.recording.Rows = slices.DeleteFunc(p.recording.Rows, func(r *format.Row) bool {
		return (r.Kind == format.KindAlloc || r.Kind == format.KindFree) && is(r)
	})
	p.recording.AddRow(
		format.Row{
			Kind:    format.KindLost,
			Name:    report.LostMemoryClass,
			StartNs: analyzetest.Epoch,
			Value:   float64(before - len(p.recording.Rows)),
		},
	)
}

func (p *madeUpProgram) loseSome() string {
	share := 0.3 * p.r.Float64()
	p.lose(func(*format.Row) bool { return p.r.Float64() < share })
	return fmt.Sprintf("%.0f%% lost", 100*share)
}

// loseFrees removes frees of one call site, which may look like a leak.
func (p *madeUpProgram) loseFrees() string {
	share := p.r.Float64()
	p.lose(func(r *format.Row) bool { return r.Kind == format.KindFree && p.r.Float64() < share })
	return fmt.Sprintf("%.0f%% of the frees lost", 100*share)
}

func (p *madeUpProgram) loseHeaps() string {
	left := 0
	p.lose(func(*format.Row) bool {
		if left--; left < -300 && p.r.IntN(50) == 0 {
			left = 200
		}
		return left > 0
	})
	return "heaps lost"
}

func (p *madeUpProgram) loseSegments() string {
	for range 1 + p.r.IntN(3) {
		from := analyzetest.Epoch + p.r.Int64N(programEnd)
		to := from + p.between(analyzetest.Second, 8*analyzetest.Second)
		p.recording.Rows = slices.DeleteFunc(p.recording.Rows, func(r *format.Row) bool {
			return (r.Kind == format.KindAlloc || r.Kind == format.KindFree) && r.StartNs >= from && r.StartNs < to
		})
		p.gaps = append(p.gaps, fmt.Errorf("a gap of %s", units.FormatDuration(to-from)))
	}
	return fmt.Sprint(p.gaps)
}

func ratio(n, of int) float64 { return float64(n) / float64(max(1, of)) }
