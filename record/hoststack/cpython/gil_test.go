//go:build linux

package cpython

import (
	"encoding/binary"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// newLockedProcess returns an interpreter of a version with one thread, which holds the GIL, and the memory
// of its process.
func newLockedProcess(v version) (*Interpreter, fakeMemory) {
	m := make(fakeMemory, 0x8000)
	put := func(at, value uint64) { binary.LittleEndian.PutUint64(m[at:], value) }
	p := &Interpreter{memory: m, layout: layouts[v], version: v, runtime: 0x100}
	const main, state, own = 0x1000, 0x3000, 0x4000
	put(p.runtime+p.layout.interpreters, main)
	put(p.runtime+p.layout.mainInterpreter, main)
	gil := p.runtime + p.layout.gil
	if !p.layout.isGILInRuntime {
		gil = own
		put(main+p.layout.gil, gil)
	}
	put(gil+gilInterval, 5000)
	put(gil+gilHolder, state)
	put(gil+gilLocked, 1)
	put(gil+gilSwitches, 42)
	put(state+p.layout.interpreter, main)
	put(state+p.layout.nativeID, 77)
	gc := main + p.layout.gc
	put(gc+gcYoungestAddress, gc+gcYoungest)
	put(gc+gcStatistics+gcStatisticsBytes, 9)
	put(gc+gcCollecting, 1)
	return p, m
}

func TestGIL(t *testing.T) {
	testclass.Unit(t)
	for v := range layouts {
		p, m := newLockedProcess(v)
		gils, err := p.GILs()
		if err != nil || len(gils) != 1 {
			t.Fatalf("%v: %v, %v", v, gils, err)
		}
		g := gils[0]
		if !g.Locked || g.Switches != 42 || g.Holder.NativeID != 77 || !g.Contains(g.Start+32) || g.Contains(g.End) {
			t.Errorf("%v: %+v", v, g)
		}
		at, err := p.MainPlaces()
		if err != nil || at.GIL != g.Start || at.GC == 0 {
			t.Fatalf("%v: %+v, %v", v, at, err)
		}
		gc, err := DecodeGC(m[at.GC : at.GC+GCBytes])
		if err != nil || !gc.Collecting || gc.Collections != [Generations]uint64{0, 9, 0} {
			t.Errorf("%v: %+v, %v", v, gc, err)
		}
	}
}

// TestUnknownGIL checks that structures which are not as expected are refused.
func TestUnknownGIL(t *testing.T) {
	testclass.Unit(t)
	for v := range layouts {
		for name, change := range map[string]func(m fakeMemory, at Places){
			"no interval":  func(m fakeMemory, at Places) { clear(m[at.GIL : at.GIL+8]) },
			"lock of 2":    func(m fakeMemory, at Places) { m[at.GIL+gilLocked] = 2 },
			"huge time":    func(m fakeMemory, at Places) { m[at.GIL+7] = 1 },
			"no main":      func(m fakeMemory, _ Places) { clear(m[0x100+layouts[v].mainInterpreter:][:8]) },
			"lost main":    func(m fakeMemory, _ Places) { m[0x100+layouts[v].mainInterpreter+7] = 1 },
			"moved memory": func(m fakeMemory, at Places) { copy(m[at.GIL:at.GIL+64], m[at.GIL+8:]) },
		} {
			p, m := newLockedProcess(v)
			at, err := p.MainPlaces()
			if err != nil {
				t.Fatal(err)
			}
			change(m, at)
			if at, err := p.MainPlaces(); err == nil {
				t.Errorf("%v, %s: %+v", v, name, at)
			}
			if gils, err := p.GILs(); err == nil {
				t.Errorf("%v, %s: %+v", v, name, gils)
			}
		}
		p, m := newLockedProcess(v)
		m[0x1000+layouts[v].gc+gcYoungestAddress]++
		if at, err := p.MainPlaces(); err != nil || at.GC != 0 {
			t.Errorf("%v: garbage collection at %#x, %v", v, at.GC, err)
		}
	}
}

// FuzzGIL reads GIL and garbage collection in hostile memory.
func FuzzGIL(f *testing.F) {
	_, m := newLockedProcess(version{3, 12})
	f.Add([]byte(m[:0x2000]), byte(12))
	f.Fuzz(func(t *testing.T, raw []byte, minor byte) {
		v := version{3, 11 + minor%2}
		p := &Interpreter{memory: fakeMemory(raw), layout: layouts[v], version: v, runtime: 0x100}
		gils, err := p.GILs()
		if (err == nil) != (len(gils) > 0) || len(gils) > maxInterpreters+1 {
			t.Errorf("%d GILs, %v", len(gils), err)
		}
		if at, err := p.MainPlaces(); err == nil && (at.GIL == 0 || at.Interpreter == 0) {
			t.Errorf("%+v", at)
		}
		_, _, _ = DecodeGIL(0, raw) // errors are expected
		_, _ = DecodeGC(raw)
		_, _, _ = p.DecodeThread(0, raw)
	})
}
