//go:build linux

package torchallocator

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// modelProgram allocates and frees at random in a modelAllocator, while a reader reads its memory. Between bursts it
// pauses for some reads.
type modelProgram struct {
	*modelAllocator
	young  []*modelBlock // that it frees soon
	old    []*modelBlock
	waits  []*modelBlock
	paused int // reads until it works again
	// isExchanged is set after a change of old blocks with the same sums. A second one in the same reading could undo the
	// first: then no memory differs, and no reading can see it. ADR 39 has this limit.
	isExchanged bool
	undo        func() // makes the memory as it was before the last change of old blocks; nil: nothing does
}

// ReadParts implements Memory. The program works between the parts, too.
func (p *modelProgram) ReadParts(parts []Part) (calls int, err error) {
	for i := range parts {
		p.clock++
		if p.paused--; p.paused <= 0 {
			p.burst()
		}
		if _, err := p.fakeMemory.ReadParts(parts[i : i+1]); err != nil {
			return 1, err
		}
	}
	return 1, nil
}

// burst makes some changes, and begins a pause for a random number of reads: few parts, some, or most of all blocks.
func (p *modelProgram) burst() {
	for range 1 + p.random.IntN(4) {
		p.act()
	}
	p.paused = 1 << p.random.IntN(7)
	p.remember()
}

// remember keeps the segments for comparisons with readings.
func (p *modelProgram) remember() {
	p.history = append(p.history, modelMoment{p.clock, p.segments()})
}

// at returns the segments at a time.
func (p *modelProgram) at(ns int64) []Segment {
	i := len(p.history) - 1
	for p.history[i].ns > ns {
		i--
	}
	return p.history[i].segments
}

// request returns a random size. Two requests are seldom equal.
func (p *modelProgram) request() uint64 { return 1 + p.random.Uint64N(2048) }

// act makes one change.
func (p *modelProgram) act() {
	switch n := p.random.IntN(100); {
	case n < 40 && len(p.young) < 12:
		p.young = append(p.young, p.malloc(&p.pools[p.random.IntN(2)], p.request()))
	case n < 75 && len(p.young) > 0:
		p.free(p.takeFrom(&p.young))
	case n < 80 && len(p.young) > 0:
		b := p.takeFrom(&p.young)
		p.await(b)
		p.waits = append(p.waits, b)
	case n < 86 && len(p.waits) > 0:
		p.free(p.takeFrom(&p.waits))
	case n < 88 && len(p.old) < 60:
		request := p.request()
		if p.random.IntN(8) == 0 {
			request = modelSegment
		}
		p.old = append(p.old, p.malloc(&p.pools[p.random.IntN(2)], request))
	case n < 89 && len(p.old) > 40:
		p.free(p.takeFrom(&p.old))
	case n < 90:
		p.release()
	case p.undo != nil:
		p.undo()
		p.undo = nil
	case n < 95:
		p.move()
	case n < 97 && !p.isExchanged:
		p.exchange()
	case n < 99 && !p.isExchanged:
		p.shift()
	case !p.isExchanged:
		p.relocate()
	}
}

func (p *modelProgram) takeFrom(list *[]*modelBlock) *modelBlock {
	i, last := p.random.IntN(len(*list)), len(*list)-1
	b := (*list)[i]
	(*list)[i] = (*list)[last]
	*list = (*list)[:last]
	return b
}

// replace frees an old block, and gives its number to a new one with a request.
func (p *modelProgram) replace(i int, request uint64) {
	b := p.old[i]
	p.old[i] = p.malloc(b.pool, request)
	p.free(b)
}

// move moves an old block to other memory. Undone, it is where it was, and no memory differs, if the free block has not
// changed meanwhile.
func (p *modelProgram) move() {
	i := p.random.IntN(len(p.old))
	request := p.old[i].Requested
	p.replace(i, request)
	moved := p.old[i]
	p.undo = func() {
		if i < len(p.old) && p.old[i] == moved {
			p.replace(i, request)
		}
	}
}

// exchange exchanges the requests of two old blocks of the same size. Their sums are the same then.
func (p *modelProgram) exchange() {
	i := p.random.IntN(len(p.old))
	for k, b := range p.old {
		a := p.old[i]
		if a == b || a.pool != b.pool || a.Bytes != b.Bytes || a.Requested == b.Requested {
			continue
		}
		p.isExchanged = true
		requests := [2]uint64{b.Requested, a.Requested}
		p.free(a)
		p.old[i] = p.malloc(a.pool, requests[0])
		p.free(b)
		p.old[k] = p.malloc(b.pool, requests[1])
		return
	}
}

// shift exchanges the sizes of two old neighbors.
func (p *modelProgram) shift() {
	for i, a := range p.old {
		k := slices.Index(p.old, a.next)
		if k < 0 || a.Bytes == a.next.Bytes || p.random.IntN(4) > 0 {
			continue
		}
		p.isExchanged = true
		requests := [2]uint64{a.next.Requested, a.Requested}
		p.free(a)
		p.free(p.old[k])
		p.old[i] = p.malloc(a.pool, requests[0])
		p.old[k] = p.malloc(a.pool, requests[1])
		return
	}
}

// relocate gives an old block that has a segment of its own another segment.
func (p *modelProgram) relocate() {
	for i, b := range p.old {
		if b.Bytes == modelSegment {
			p.isExchanged = true
			p.free(b)
			p.release()
			p.old[i] = p.malloc(b.pool, modelSegment)
			return
		}
	}
}

// readModel makes n readings of a program with a seed.
func readModel(ctx context.Context, seed uint64, n int) (c surveyCounts, err error) {
	p := &modelProgram{modelAllocator: newModelAllocator(seed)}
	for i := range 40 {
		request := p.request()
		if i < 3 {
			request = modelSegment
		}
		p.old = append(p.old, p.malloc(&p.pools[p.random.IntN(2)], request))
	}
	p.remember()
	p.paused = 1 << 30
	r, err := Open(p, p.variable)
	if err != nil {
		return c, err
	}
	r.sleep, r.quiet, r.now = func(time.Duration) {}, 0, func() int64 { p.clock++; return p.clock }
	if _, err := r.Read(ctx, 0); err != nil {
		return c, err
	}
	s := newSurvey(p, &r.objects[0], r.layout)
	p.paused = 0
	for range n {
		p.isExchanged = false
		p.history = p.history[max(0, len(p.history)-1):]
		limited, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		state, err := s.read(limited, r)
		cancel()
		switch {
		case err != nil:
			c.refused++
		case reflect.DeepEqual(state.Segments, p.at(state.AtNs)):
			c.equal++
		default:
			c.wrong++
		}
		if first, last := p.history[0], p.history[len(p.history)-1]; err == nil && first.ns < last.ns {
			c.changed++
		}
		if err == nil && len(s.changed) > 0 {
			c.coldChanged++
		}
	}
	return c, nil
}

// surveyCounts counts readings.
type surveyCounts struct {
	equal, refused, wrong int
	changed               int // accepted ones during which the program changed something
	coldChanged           int // accepted ones with cold blocks that were different behind the pause
}

// TestSurveysEqualTheModel reads a program that changes its blocks during the readings. No accepted reading may differ
// from what the program had in the pause. GPUREC_READINGS is their number.
func TestSurveysEqualTheModel(t *testing.T) {
	testclass.Unit(t)
	readings := 2000
	if n, err := strconv.Atoi(os.Getenv("GPUREC_READINGS")); err == nil {
		readings = n
	}
	const perSeed = 100
	counts := make([]surveyCounts, readings/perSeed)
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for worker := range n {
		workers.Go(func() {
			for seed := worker; seed < len(counts); seed += n {
				var err error
				if counts[seed], err = readModel(t.Context(), uint64(seed), perSeed); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
	workers.Wait()
	var sum surveyCounts
	for seed, c := range counts {
		if c.wrong > 0 {
			t.Errorf("seed %d: %d readings differ from the model", seed, c.wrong)
		}
		sum.equal += c.equal
		sum.refused += c.refused
		sum.wrong += c.wrong
		sum.changed += c.changed
		sum.coldChanged += c.coldChanged
	}
	t.Logf("%d readings: %+v", readings, sum)
	if sum.equal < readings/2 || sum.changed < sum.equal/2 || sum.coldChanged < sum.equal/20 {
		t.Error("too few readings were accepted, or the program changed too little during them")
	}
}

// BenchmarkSurvey reads 60,000 blocks of a program that pauses shortly; 1,000 of them are cached.
func BenchmarkSurvey(b *testing.B) {
	a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	var segments []Segment
	for i := range uint64(600) {
		var blocks []uint64
		for k := range uint64(100) {
			blocks = append(blocks, 1<<20, min(k%60, 1))
		}
		segments = append(segments, newSegment(0x7f0000000000+i<<28, Segment{}, blocks...))
	}
	a.fill(0, segments)
	r, err := Open(a, a.variable)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := r.Read(b.Context(), 0); err != nil {
		b.Fatal(err)
	}
	s := newSurvey(a, &r.objects[0], r.layout)
	for b.Loop() {
		if _, err := s.read(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
