package analyze

import (
	"slices"
	"sort"
)

// mapping is a stretch of addresses behind which memory is.
type mapping struct {
	start, end int64   // end is the first address behind it
	handle     *handle // nil: memory from before the recording
	number     int64   // of the handle
}

// mappings are the mappings of a process: in order, none over another. They are kept
// in pieces, so that one comes and goes in the time of a piece: allocators that grow
// in steps of 2 MiB have 70,000 of them.
type mappings struct{ pieces [][]mapping }

// maxPiece is the length at which a piece is cut in two.
const maxPiece = 512

// cut takes out all mappings that lie in [from, to), wholly or in part, and hands
// them to yield.
func (r *mappings) cut(from, to int64, yield func(mapping)) {
	p := sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i][len(r.pieces[i])-1].end > from })
	for p < len(r.pieces) {
		piece := r.pieces[p]
		first := sort.Search(len(piece), func(i int) bool { return piece[i].end > from })
		last := first
		for last < len(piece) && piece[last].start < to {
			yield(piece[last])
			last++
		}
		more := last == len(piece)
		if piece = slices.Delete(piece, first, last); len(piece) > 0 {
			r.pieces[p] = piece
			p++
		} else {
			r.pieces = slices.Delete(r.pieces, p, p+1)
		}
		if !more {
			return
		}
	}
}

// overlapping hands all mappings to yield that lie in [from, to), wholly or in part.
func (r *mappings) overlapping(from, to int64, yield func(mapping)) {
	p := sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i][len(r.pieces[i])-1].end > from })
	for ; p < len(r.pieces); p++ {
		for _, m := range r.pieces[p] {
			if m.start >= to {
				return
			}
			if m.end > from {
				yield(m)
			}
		}
	}
}

// insert adds a mapping; its addresses must be free.
func (r *mappings) insert(m mapping) {
	if len(r.pieces) == 0 {
		r.pieces = append(r.pieces, []mapping{m})
		return
	}
	p := sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i][len(r.pieces[i])-1].end > m.start })
	p = min(p, len(r.pieces)-1)
	piece := r.pieces[p]
	at := sort.Search(len(piece), func(i int) bool { return piece[i].end > m.start })
	piece = slices.Insert(piece, at, m)
	r.pieces[p] = piece
	if len(piece) > maxPiece {
		half := len(piece) / 2
		r.pieces = slices.Insert(r.pieces, p+1, slices.Clone(piece[half:]))
		r.pieces[p] = piece[:half]
	}
}
