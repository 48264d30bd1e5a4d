//go:build linux

package cpython

import (
	"encoding/binary"
	"errors"
)

// Offsets in struct _gc_runtime_state of 3.11 to 3.13, in bytes.
const (
	gcYoungest        = 24 // the youngest generation
	gcYoungestPacked  = 20 // the same in builds such as Debian's 3.13.5, which align it to 4 bytes; all else is equal
	gcYoungestAddress = 96 // its address
	gcStatistics      = 128
	gcStatisticsBytes = 24 // of a generation; the first word counts collections
	gcCollecting      = 200
)

// Generations is the number of generations of the garbage collector.
const Generations = 3

// GCBytes is the size of the state of the garbage collection that DecodeGC decodes.
const GCBytes = gcCollecting + 4 - gcStatistics

// ErrGC is the reason if the state of the garbage collection is not as expected.
var ErrGC = errors.New("the layout of its garbage collection is unknown")

// GC is the state of the garbage collection of an interpreter at the time of a reading.
type GC struct {
	Collecting bool
	// Collections counts the collections of each generation that have ended.
	Collections [Generations]uint64
}

// Places are the addresses of the state of an interpreter. They do not change while it lives.
type Places struct {
	Interpreter uint64
	GIL         uint64 // of GILHeadBytes for DecodeGIL
	GC          uint64 // of GCBytes for DecodeGC, 0 if their layout is unknown
}

// MainPlaces returns the places of the main interpreter, after it has checked their contents. An error is
// ErrGIL or that of a reading. A process that starts or ends has no main interpreter: ErrGIL.
func (i *Interpreter) MainPlaces() (Places, error) {
	main, err := i.word(i.runtime + i.layout.mainInterpreter)
	if err != nil {
		return Places{}, err
	}
	gil, err := i.gilAddress(main)
	if err != nil {
		return Places{}, err
	}
	if gil == 0 {
		return Places{}, ErrGIL
	}
	if _, err := i.readGIL(gil); err != nil {
		return Places{}, err
	}
	return Places{Interpreter: main, GIL: gil, GC: i.gcAddress(main)}, nil
}

// gcAddress returns the address of the state for DecodeGC, or 0 if it is not as expected. The state has a
// pointer into itself.
func (i *Interpreter) gcAddress(interpreter uint64) uint64 {
	if i.layout.gc == 0 {
		return 0
	}
	gc := interpreter + i.layout.gc
	youngest, err := i.word(gc + gcYoungestAddress)
	if err != nil || youngest != gc+gcYoungest && youngest != gc+gcYoungestPacked {
		return 0
	}
	return gc + gcStatistics
}

// DecodeGC decodes GCBytes of the state of the garbage collection. The error is ErrGC if they are of none.
func DecodeGC(raw []byte) (GC, error) {
	if len(raw) < GCBytes {
		return GC{}, ErrGC
	}
	collecting := binary.LittleEndian.Uint32(raw[gcCollecting-gcStatistics:])
	if collecting > 1 {
		return GC{}, ErrGC
	}
	g := GC{Collecting: collecting == 1}
	for i := range g.Collections {
		g.Collections[i] = binary.LittleEndian.Uint64(raw[i*gcStatisticsBytes:])
		if g.Collections[i] > 1<<48 {
			return GC{}, ErrGC
		}
	}
	return g, nil
}
