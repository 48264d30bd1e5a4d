//go:build linux

package torchallocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
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
	for i := range blockLayouts {
		l := &blockLayouts[i]
		t.Run(l.version, func(t *testing.T) {
			a := newFakeAllocator(l, 2)
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
	a := newFakeAllocator(&blockLayouts[0], 1)
	state, err := readFake(t, a, 0)
	if err != nil || len(state.Segments) != 0 || state.CountBlocks() != 0 {
		t.Errorf("an empty allocator: %+v, %v", state, err)
	}
	for name, change := range map[string]func(){
		"no devices":   func() { a.setWord(fakeNative+fakeVectorAt, 0) },
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
	a := newFakeAllocator(&blockLayouts[0], 1)
	a.fill(0, fakeSegments())
	for stat := range numStats {
		for kind := range 3 {
			at := a.objects[0] + statAddress(stat, kind)
			value := a.word(at)
			a.setWord(at, value+1)
			_, err := readFake(t, a, 0)
			var unknown *UnknownLayoutError
			var mismatch *MismatchError
			if !errors.As(err, &unknown) || !errors.As(err, &mismatch) || mismatch.Statistics != value+1 {
				t.Errorf("%s %d: %v", statNames[stat], kind, err)
			}
			a.setWord(at, value)
		}
	}
}

// TestDamagedMemoryIsRefused breaks one thing each.
func TestDamagedMemoryIsRefused(t *testing.T) {
	testclass.Unit(t)
	l := &blockLayouts[0]
	fresh := func() (a *fakeAllocator, first uint64) {
		a = newFakeAllocator(l, 1)
		a.fill(0, fakeSegments())
		active := a.word(a.objects[0] + fakePoolsAt + 2*poolBytes)
		return a, a.word(active + 8) // the first active block
	}
	for name, change := range map[string]func(a *fakeAllocator, first uint64){
		"pool":          func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.pool), 0x1234) },
		"device":        func(a *fakeAllocator, first uint64) { a.set(first, 1) },
		"size":          func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.size), 513) },
		"flag":          func(a *fakeAllocator, first uint64) { a.set(first+uint64(l.allocated), 7) },
		"unmapped":      func(a *fakeAllocator, first uint64) { a.set(first+uint64(l.allocated)+1, 0) },
		"next":          func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.next), 0xdead000) },
		"cycle":         func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.next), first) },
		"address":       func(a *fakeAllocator, first uint64) { a.setWord(first+uint64(l.ptr), 0x7f1000000200) },
		"active count":  func(a *fakeAllocator, _ uint64) { a.setWord(a.objects[0]+fakePoolsAt+2*poolBytes+tableCountOffset, 3) },
		"cached count":  func(a *fakeAllocator, _ uint64) { a.setWord(a.objects[0]+fakePoolsAt+setCountOffset, 9) },
		"private pools": func(a *fakeAllocator, _ uint64) { a.setTable(a.objects[0]+fakeTableAt, poolEntryBytes, nil) },
		"tree of itself": func(a *fakeAllocator, _ uint64) {
			root := a.word(a.objects[0] + fakePoolsAt + setRootOffset)
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
			t.Errorf("%s: %+v, %v", name, state, err)
		}
	}
}

// TestChangesAreReadAgain changes the allocator during the first readings.
func TestChangesAreReadAgain(t *testing.T) {
	testclass.Unit(t)
	a := newFakeAllocator(&blockLayouts[0], 1)
	a.fill(0, fakeSegments()[:2])
	counts := a.objects[0] + statAddress(allocationStat, 0) + 16 // the sum of increases
	a.onRead = func(n int) {
		if n < 60 {
			a.setWord(counts, uint64(n))
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
	a := newFakeAllocator(&blockLayouts[0], 1)
	a.fill(0, fakeSegments())
	for _, offset := range []uint64{lockOffset, ownerOffset} {
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
	a, b := newFakeAllocator(&blockLayouts[0], 2), newFakeAllocator(&blockLayouts[0], 1)
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
	a := newFakeAllocator(&blockLayouts[0], 1)
	a.fill(0, fakeSegments())
	var places []uint64
	for at := range a.pages {
		places = append(places, at)
	}
	slices.Sort(places)
	for seed := range uint64(64) {
		f.Add(seed, uint8(seed%5+1))
	}
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) {
		random := rand.New(rand.NewPCG(seed, 1))
		damaged := &fakeAllocator{fakeMemory: a.clone(), variable: a.variable}
		for range changes {
			at := places[random.IntN(len(places))] + uint64(random.IntN(pageBytes/8))*8
			if damaged.pages[at&^(pageBytes-1)] == nil {
				continue
			}
			switch random.IntN(3) {
			case 0:
				damaged.setWord(at, random.Uint64())
			case 1:
				damaged.setWord(at, damaged.word(at)^1<<random.IntN(64))
			case 2:
				delete(damaged.pages, at&^(pageBytes-1))
			}
		}
		r, err := Open(damaged, damaged.variable)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		state, err := r.Read(ctx, 0)
		if err != nil {
			return
		}
		if err := checkState(state); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkRead reads 10,000 blocks; half of them are cached.
func BenchmarkRead(b *testing.B) {
	a := newFakeAllocator(&blockLayouts[0], 1)
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
