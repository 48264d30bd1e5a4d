package livemem

import (
	"slices"
	"sort"
)

// EachMapping calls yield for all mappings, in order of address.
func (ms *Mappings) EachMapping(yield func(Mapping)) {
	for _, piece := range ms.Pieces {
		for _, m := range piece {
			yield(m)
		}
	}
}

// Mapping is an address range that has physical memory mapped to it.
type Mapping struct {
	Start, End int64           // End is the first address after the range
	Handle     *PhysicalHandle // nil: the handle was created before the recording
	Number     int64           // number of the handle, as in ProcessMemory.Handles
}

// Mappings are the mappings of one process, in order of address and without overlaps. They are kept
// in pieces of bounded length, so that insertion and removal move few entries. An allocator that
// grows in steps of 2 MiB has 70,000 mappings.
type Mappings struct{ Pieces [][]Mapping }

// MaxMappingsPerPiece is the number of mappings above which a piece is split in two.
const MaxMappingsPerPiece = 512

// RemoveOverlapping removes all mappings that overlap [from, to), and calls yield for each.
func (ms *Mappings) RemoveOverlapping(from, to int64, yield func(Mapping)) {
	p := sort.Search(len(ms.Pieces), func(i int) bool { return ms.Pieces[i][len(ms.Pieces[i])-1].End > from })
	for p < len(ms.Pieces) {
		piece := ms.Pieces[p]
		first := sort.Search(len(piece), func(i int) bool { return piece[i].End > from })
		last := first
		for last < len(piece) && piece[last].Start < to {
			yield(piece[last])
			last++
		}
		more := last == len(piece)
		if piece = slices.Delete(piece, first, last); len(piece) > 0 {
			ms.Pieces[p] = piece
			p++
		} else {
			ms.Pieces = slices.Delete(ms.Pieces, p, p+1)
		}
		if !more {
			return
		}
	}
}

// EachOverlapping calls yield for all mappings that overlap [from, to).
func (ms *Mappings) EachOverlapping(from, to int64, yield func(Mapping)) {
	p := sort.Search(len(ms.Pieces), func(i int) bool { return ms.Pieces[i][len(ms.Pieces[i])-1].End > from })
	for ; p < len(ms.Pieces); p++ {
		for _, m := range ms.Pieces[p] {
			if m.Start >= to {
				return
			}
			if m.End > from {
				yield(m)
			}
		}
	}
}

// InsertMapping adds a mapping. No other mapping may overlap its addresses.
func (ms *Mappings) InsertMapping(m Mapping) {
	if len(ms.Pieces) == 0 {
		ms.Pieces = append(ms.Pieces, []Mapping{m})
		return
	}
	p := sort.Search(len(ms.Pieces), func(i int) bool { return ms.Pieces[i][len(ms.Pieces[i])-1].End > m.Start })
	p = min(p, len(ms.Pieces)-1)
	piece := ms.Pieces[p]
	at := sort.Search(len(piece), func(i int) bool { return piece[i].End > m.Start })
	piece = slices.Insert(piece, at, m)
	ms.Pieces[p] = piece
	if len(piece) > MaxMappingsPerPiece {
		half := len(piece) / 2
		ms.Pieces = slices.Insert(ms.Pieces, p+1, slices.Clone(piece[half:]))
		ms.Pieces[p] = piece[:half]
	}
}
