//go:build linux

package torchallocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// readFake reads one device.
func readFake(t testing.TB, a *fakeAllocator, device int) (*State, error) {
	t.Helper()
	r, err := Open(a, a.variable)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return r.Read(ctx, device)
}

func TestReadAllBlocks(t *testing.T) {
	testclass.Unit(t)
	for _, l := range blockLayouts {
		t.Run(l.version, func(t *testing.T) {
			a := newFakeAllocator(newFakeLayout(l), 2)
			a.fill(0, fakeSegments())
			other := []Segment{newSegment(0x7f9000000000, Segment{Pool: PoolID{0, 9}}, 2<<20, 1)}
			a.fill(1, other)
			for device, want := range [][]Segment{fakeSegments(), other} {
				state, err := readFake(t, a, device)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(state.Segments, want) || state.Tries != 1 || state.Version != l.version ||
					state.Device != device {
					t.Errorf("device %d: %+v, want %+v", device, state, want)
				}
				if state.EndNs < state.AtNs {
					t.Errorf("from %d to %d", state.AtNs, state.EndNs)
				}
			}
		})
	}
}

func TestReadNothing(t *testing.T) {
	testclass.Unit(t)
	a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	state, err := readFake(t, a, 0)
	if err != nil || len(state.Segments) != 0 || state.CountBlocks() != 0 {
		t.Errorf("an empty allocator: %+v, %v", state, err)
	}
	for name, change := range map[string]func(){
		"no devices":   func() { a.setWord(fakeNative+0x5838, 0) },
		"no allocator": func() { a.setWord(a.variable, 0) },
	} {
		change()
		if _, err := readFake(t, a, 0); !errors.Is(err, ErrUnused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.err = ErrDenied
	if _, err := readFake(t, a, 0); !errors.Is(err, ErrDenied) {
		t.Errorf("denied: %v", err)
	}
}

// TestEveryStatisticIsCompared changes each statistic by one: the blocks then do not add up.
func TestEveryStatisticIsCompared(t *testing.T) {
	testclass.Unit(t)
	a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	a.fill(0, fakeSegments())
	for stat := range numStats {
		for kind := 1; kind < 3; kind++ {
			add := func(n uint64) {
				for _, k := range []int{0, kind} {
					at := a.objects[0] + a.statAddress(stat, k)
					a.setWord(at, a.word(at)+n)
				}
			}
			add(1)
			_, err := readFake(t, a, 0)
			var unknown *UnknownLayoutError
			var mismatch *MismatchError
			isCompared := errors.As(err, &mismatch) && mismatch.Statistics == mismatch.Blocks+1
			if !errors.As(err, &unknown) || !isCompared && stat != activeStat && stat != activeBytesStat {
				t.Errorf("%s %d: %v", statNames[stat], kind, err)
			}
			add(^uint64(0))
		}
	}
}

// TestRandomLayouts reads allocators whose members have random places. GPUREC_LAYOUTS is their number.
func TestRandomLayouts(t *testing.T) {
	testclass.Unit(t)
	layouts := 200
	if n, err := strconv.Atoi(os.Getenv("GPUREC_LAYOUTS")); err == nil {
		layouts = n
	}
	refused := 0
	for seed := range uint64(layouts) {
		random := rand.New(rand.NewPCG(seed, 7))
		a := newFakeAllocator(newRandomLayout(random), 1)
		segments := randomSegments(random)
		a.fill(0, segments)
		r, err := Open(a, a.variable)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range 2 { // the second time with the layout that was found
			state, err := r.Read(t.Context(), 0)
			if err != nil {
				refused++
				t.Logf("seed %d: %v", seed, err)
			} else if !reflect.DeepEqual(state.Segments, segments) {
				t.Errorf("seed %d: other blocks, layout %+v, found %+v", seed, a.layout.layout, *r.layout)
			}
		}
	}
	t.Logf("%d of %d readings refused", refused, 2*layouts)
	if refused > layouts/20 {
		t.Errorf("%d of %d readings were refused", refused, 2*layouts)
	}
}

// randomSegments returns segments with random blocks. Most have neighbors.
func randomSegments(random *rand.Rand) (list []Segment) {
	pools := []PoolID{{}, {}, {0, 3}, {7, 0}}
	for i := range 2 + random.Uint64N(30) {
		var blocks []uint64
		for range 1 + random.Uint64N(20) {
			use := random.Uint64N(4)
			if n := len(blocks); use == 0 && n > 0 && blocks[n-1] == 0 {
				use = 3 // free neighbors would have been merged
			}
			blocks = append(blocks, 512*(1+random.Uint64N(4000)), use)
		}
		s := Segment{Stream: random.Uint64N(3) << 12, Pool: pools[random.IntN(len(pools))]}
		s.IsSmall, s.IsExpandable = random.IntN(2) == 0, random.IntN(4) == 0
		list = append(list, newSegment(0x7f1000000000+i<<32, s, blocks...))
	}
	return list
}

// TestDamagedMemoryIsRefused breaks one thing each.
func TestDamagedMemoryIsRefused(t *testing.T) {
	testclass.Unit(t)
	l := &blockLayouts[0]
	fresh := func() (a *fakeAllocator, first uint64) {
		a = newFakeAllocator(newFakeLayout(*l), 1)
		a.fill(0, fakeSegments())
		entry := a.word(a.objects[0] + uint64(a.layout.active))
		for int8(a.word(entry)) < 0 {
			entry += blockEntryBytes
		}
		return a, a.word(entry + 8) // the first active block
	}
	for name, change := range map[string]func(a *fakeAllocator, first uint64){
		"pool":         func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.pool), 0x1234) },
		"device":       func(a *fakeAllocator, first uint64) { a.set(first, 1) },
		"size":         func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.size), 513) },
		"flag":         func(a *fakeAllocator, first uint64) { a.set(first+uint64(l.allocated), 7) },
		"unmapped":     func(a *fakeAllocator, first uint64) { a.set(first+uint64(l.allocated)+1, 0) },
		"next":         func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.next), 0xdead000) },
		"cycle":        func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.next), first) },
		"address":      func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.ptr), 0x7f5000000000) },
		"active count": func(a *fakeAllocator, _ uint64) { a.setWord(a.objects[0]+uint64(a.layout.active)+tableCountOffset, 3) },
		"cached count": func(a *fakeAllocator, _ uint64) { a.setWord(a.objects[0]+uint64(a.layout.pools[0])+setCountOffset, 9) },
		"private pools": func(a *fakeAllocator, _ uint64) {
			a.setTable(a.objects[0]+uint64(a.layout.private), poolEntryBytes, nil)
		},
		"tree of itself": func(a *fakeAllocator, _ uint64) {
			root := a.word(a.objects[0] + uint64(a.layout.pools[0]) + setRootOffset)
			a.setWord(root+nodeLeftOffset, root)
		},
	} {
		a, first := fresh()
		change(a, first)
		var unknown *UnknownLayoutError
		if state, err := readFake(
			t,
			a,
			0,
		); !errors.As(err, &unknown) ||
			!strings.Contains(err.Error(), "memory layout") {
			t.Errorf("%s: state %v, %v", name, state != nil, err)
		}
	}
}

// TestChangesAreReadAgain changes the allocator during the first readings.
func TestChangesAreReadAgain(t *testing.T) {
	testclass.Unit(t)
	a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	a.fill(0, fakeSegments()[:2])
	a.onRead = func(n int) {
		if n < 60 {
			for kind := range 2 { // the sums of increases
				a.setWord(a.objects[0]+a.statAddress(allocationStat, kind)+16, uint64(n))
			}
		}
	}
	state, err := readFake(t, a, 0)
	if err != nil || len(state.Segments) != 2 {
		t.Fatalf("%+v, %v", state, err)
	}
	if a.reads < 60 {
		t.Errorf("accepted after %d reads", a.reads)
	}
}

// TestLockedAllocatorIsBusy reads an allocator that a thread works on.
func TestLockedAllocatorIsBusy(t *testing.T) {
	testclass.Unit(t)
	a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	a.fill(0, fakeSegments())
	for _, offset := range []uint64{0, ownerOffset} {
		a.setWord(a.objects[0]+offset, 1)
		r, err := Open(a, a.variable)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := r.Read(ctx, 0); !errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
		}
		a.setWord(a.objects[0]+offset, 0)
	}
}

func TestForkHasTheSameObjects(t *testing.T) {
	testclass.Unit(t)
	a, b := newFakeAllocator(newFakeLayout(blockLayouts[0]), 2), newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	parent, err := Open(a, a.variable)
	if err != nil {
		t.Fatal(err)
	}
	child, err := Open(a.clone(), a.variable)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(b, b.variable)
	if err != nil {
		t.Fatal(err)
	}
	if !child.IsCopyOf(parent) || other.IsCopyOf(parent) {
		t.Error("a copy is not told from another allocator")
	}
}

// checkState fails if a state contradicts itself.
func checkState(s *State) error {
	var allocated, reserved, end uint64
	for i := range s.Segments {
		g := &s.Segments[i]
		if g.Address < end {
			return errors.New("segments overlap")
		}
		at := g.Address
		for _, b := range g.Blocks {
			if b.Address != at || b.Bytes == 0 {
				return fmt.Errorf("a gap at %#x", at)
			}
			at += b.Bytes
			if b.Use == Allocated {
				allocated += b.Bytes
			}
		}
		if end = g.Address + g.Bytes; at != end {
			return errors.New("blocks do not cover their segment")
		}
		reserved += g.Bytes
	}
	if allocated != s.AllocatedBytes || reserved != s.ReservedBytes {
		return errors.New("the sums differ from the statistics")
	}
	return nil
}

// FuzzDamagedMemory reads damaged memory. A reading ends, and a state that it accepts adds up.
func FuzzDamagedMemory(f *testing.F) {
	a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	a.fill(0, fakeSegments())
	for seed := range uint64(64) {
		f.Add(seed, uint8(seed%5+1))
	}
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) {
		if _, err := readDamaged(t.Context(), a, rand.New(rand.NewPCG(seed, 1)), int(changes)); err != nil {
			t.Error(err)
		}
	})
}

// TestDamagedMemories reads many damaged memories, of known and of random layouts. GPUREC_DAMAGES is their number.
func TestDamagedMemories(t *testing.T) {
	testclass.Unit(t)
	damages := 2000
	if n, err := strconv.Atoi(os.Getenv("GPUREC_DAMAGES")); err == nil {
		damages = n
	}
	var accepted atomic.Int64
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for worker := range n {
		workers.Go(func() {
			for i := worker; i < damages; i += n {
				random := rand.New(rand.NewPCG(uint64(i), 3))
				ok, err := readDamaged(t.Context(), damageTargets[i%len(damageTargets)](), random, 1+random.IntN(5))
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
				if ok {
					accepted.Add(1)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d memories, %d readings accepted", damages, accepted.Load())
}

// damageTargets return allocators.
var damageTargets = []func() *fakeAllocator{
	sync.OnceValue(func() *fakeAllocator {
		a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
		a.fill(0, fakeSegments())
		return a
	}),
	sync.OnceValue(func() *fakeAllocator {
		a := newFakeAllocator(newRandomLayout(rand.New(rand.NewPCG(1, 7))), 2)
		a.fill(0, randomSegments(rand.New(rand.NewPCG(1, 8))))
		return a
	}),
}

// readDamaged changes an allocator's memory at random places, most of them where it is used, and reads it. ok is true if
// a reading was accepted.
func readDamaged(ctx context.Context, a *fakeAllocator, random *rand.Rand, changes int) (ok bool, err error) {
	damaged := &fakeMemory{pages: maps.Clone(a.pages)}
	list := slices.Sorted(maps.Keys(a.pages))
	for range changes {
		page := list[random.IntN(len(list))]
		if damaged.pages[page] == nil {
			continue
		}
		damaged.pages[page] = new(*damaged.pages[page])
		at := page + uint64(random.IntN(pageBytes/8))*8
		for try := 0; try < 20 && damaged.word(at) == 0; try++ {
			at = page + uint64(random.IntN(pageBytes/8))*8
		}
		switch random.IntN(8) {
		case 0:
			damaged.setWord(at, random.Uint64())
		case 1:
			delete(damaged.pages, page)
		case 2, 3:
			other := list[random.IntN(len(list))]
			damaged.setWord(at, a.word(other+uint64(random.IntN(pageBytes/8))*8))
		case 4:
			damaged.setWord(at, damaged.word(at)+uint64(random.IntN(33)-16)*8)
		default:
			damaged.setWord(at, damaged.word(at)^1<<random.IntN(64))
		}
	}
	r, err := Open(damaged, a.variable)
	if err != nil {
		return false, nil
	}
	r.sleep, r.quiet = func(time.Duration) {}, 0
	ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	for device := range r.Devices() {
		if state, err := r.Read(ctx, device); err == nil {
			ok = true
			if err := checkState(state); err != nil {
				return ok, err
			}
		}
	}
	return ok, nil
}

// BenchmarkRead reads 10,000 blocks; half of them are cached.
func BenchmarkRead(b *testing.B) {
	a := newFakeAllocator(newFakeLayout(blockLayouts[0]), 1)
	var segments []Segment
	for i := range uint64(100) {
		var blocks []uint64
		for k := range uint64(100) {
			blocks = append(blocks, 1<<20, k%2)
		}
		segments = append(segments, newSegment(0x7f0000000000+i<<28, Segment{}, blocks...))
	}
	a.fill(0, segments)
	r, err := Open(a, a.variable)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if state, err := r.Read(b.Context(), 0); err != nil || state.CountBlocks() != 5000 {
			b.Fatal(err)
		}
	}
}
