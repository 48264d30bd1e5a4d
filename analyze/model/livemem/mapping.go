package livemem

import (
	"slices"
	"sort"
)

// Each calls yield for all mappings in order.
func (r *Mappings) Each(yield func(Mapping)) {
	for _, piece := range r.Pieces {
		for _, m := range piece {
			yield(m)
		}
	}
}

// Mapping is a stretch of addresses behind which memory is.
type Mapping struct {
	Start, End int64   // end is the first address behind it
	Handle     *Handle // nil: memory from before the recording
	Number     int64   // of the handle
}

// Mappings are the mappings of a process: in order, none over another. They are kept
// in pieces, so that one comes and goes in the time of a piece: allocators that grow
// in steps of 2 MiB have 70,000 of them.
type Mappings struct{ Pieces [][]Mapping }

// MaxPiece is the length at which a piece is cut in two.
const MaxPiece = 512

// Cut takes out all mappings that lie in [from, to), wholly or in part, and hands
// them to yield.
func (r *Mappings) Cut(from, to int64, yield func(Mapping)) {
	p := sort.Search(len(r.Pieces), func(i int) bool { return r.Pieces[i][len(r.Pieces[i])-1].End > from })
	for p < len(r.Pieces) {
		piece := r.Pieces[p]
		first := sort.Search(len(piece), func(i int) bool { return piece[i].End > from })
		last := first
		for last < len(piece) && piece[last].Start < to {
			yield(piece[last])
			last++
		}
		more := last == len(piece)
		if piece = slices.Delete(piece, first, last); len(piece) > 0 {
			r.Pieces[p] = piece
			p++
		} else {
			r.Pieces = slices.Delete(r.Pieces, p, p+1)
		}
		if !more {
			return
		}
	}
}

// Overlapping hands all mappings to yield that lie in [from, to), wholly or in part.
func (r *Mappings) Overlapping(from, to int64, yield func(Mapping)) {
	p := sort.Search(len(r.Pieces), func(i int) bool { return r.Pieces[i][len(r.Pieces[i])-1].End > from })
	for ; p < len(r.Pieces); p++ {
		for _, m := range r.Pieces[p] {
			if m.Start >= to {
				return
			}
			if m.End > from {
				yield(m)
			}
		}
	}
}

// Insert adds a mapping; its addresses must be free.
func (r *Mappings) Insert(m Mapping) {
	if len(r.Pieces) == 0 {
		r.Pieces = append(r.Pieces, []Mapping{m})
		return
	}
	p := sort.Search(len(r.Pieces), func(i int) bool { return r.Pieces[i][len(r.Pieces[i])-1].End > m.Start })
	p = min(p, len(r.Pieces)-1)
	piece := r.Pieces[p]
	at := sort.Search(len(piece), func(i int) bool { return piece[i].End > m.Start })
	piece = slices.Insert(piece, at, m)
	r.Pieces[p] = piece
	if len(piece) > MaxPiece {
		half := len(piece) / 2
		r.Pieces = slices.Insert(r.Pieces, p+1, slices.Clone(piece[half:]))
		r.Pieces[p] = piece[:half]
	}
}
