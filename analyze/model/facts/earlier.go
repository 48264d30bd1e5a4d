package facts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/format"
)

// earlierKey identifies a state of a caching allocator.
type earlierKey struct {
	pid, device int32
	atNs        int64
}

// maxBlockBytes bounds sizes, so that their sums stay in range.
const maxBlockBytes = 1 << 48

// earlierStateOf returns the state that a row is about.
func (f *Facts) earlierStateOf(r *format.Row) *caching.EarlierState {
	key := earlierKey{r.Pid, r.Device, r.StartNs}
	s := f.earlier[key]
	if s == nil {
		s = &caching.EarlierState{Pid: r.Pid, Device: r.Device, AtNs: r.StartNs}
		f.earlier[key] = s
		f.readStates = append(f.readStates, s)
	}
	return s
}

// addEarlierBlock adds a segment, or a block of the segment before it.
func (f *Facts) addEarlierBlock(r *format.Row) {
	s := f.earlierStateOf(r)
	s.DurNs, s.Allocated, s.Reserved = r.DurNs, r.AllocatedBytes, r.ReservedBytes
	ptr, bytes := r.Ptr&(1<<56-1), min(max(0, r.Bytes), maxBlockBytes)
	switch r.Name {
	case format.BlockSegment, format.BlockMappedRange:
		s.Segments = append(s.Segments, caching.EarlierSegment{
			Ptr: ptr, Bytes: bytes, Pool: r.SrcPtr, Stream: r.Stream,
			IsSmall: r.Message == format.BlocksSmall, IsExpandable: r.Name == format.BlockMappedRange,
		})
		return
	}
	if len(s.Segments) == 0 {
		return // only a damaged recording has a block without a segment
	}
	b := caching.EarlierBlock{Ptr: ptr, Bytes: bytes}
	switch r.Name {
	case format.BlockAllocated:
		b.State = caching.PieceBlock
	case format.BlockAwaitsStream:
		b.State = caching.PieceAwaitsStream
	}
	if b.State != caching.PieceHole {
		b.Requested = int64(min(max(0, r.Value), float64(bytes)))
	}
	segment := &s.Segments[len(s.Segments)-1]
	segment.Blocks = append(segment.Blocks, b)
}

// addEarlierNote reads the note about a state.
func (f *Facts) addEarlierNote(r *format.Row) {
	var fact format.AllocatorStateFact
	if json.Unmarshal([]byte(r.Message), &fact) != nil {
		return
	}
	s := f.earlierStateOf(r)
	s.Refused, s.Tries = fact.Refused, fact.Tries
	s.LimitBytes = min(max(0, fact.LimitBytes), maxBlockBytes)
	if n := len(s.Segments); s.Refused == "" && n != fact.Segments {
		s.Refused = fmt.Sprintf("%d of %d segments are in the recording", n, fact.Segments)
	}
}

// checkEarlierStates sets EarlierStates to the states that were read, in order of time. It refuses those that
// contradict themselves, or whose next events a ring has dropped.
func (f *Facts) checkEarlierStates(meta *format.Meta) {
	f.EarlierStates = nil
	for _, read := range f.readStates {
		s := *read
		switch {
		case s.Refused != "":
		case s.AtNs < meta.StartNs:
			s.Refused = "the ring has dropped events that followed the reading"
		case !addsUp(&s):
			s.Refused = "the blocks in the recording do not add up to the allocator's statistics"
		}
		if s.Refused != "" {
			s.Segments, s.Allocated, s.Reserved, s.DurNs, s.LimitBytes = nil, 0, 0, 0, 0
		}
		s.IsReported = slices.ContainsFunc(f.Allocators, func(a AllocatorFact) bool {
			return a.Pid == s.Pid && a.Source == format.SourceReports
		})
		f.EarlierStates = append(f.EarlierStates, &s)
	}
	slices.SortStableFunc(f.EarlierStates, func(a, b *caching.EarlierState) int {
		return cmp.Or(cmp.Compare(a.AtNs, b.AtNs), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
}

// addsUp reports whether the blocks of a state cover its segments, and sum up to its totals.
func addsUp(s *caching.EarlierState) bool {
	var allocated, reserved, end int64
	for i := range s.Segments {
		segment := &s.Segments[i]
		if segment.Ptr < end {
			return false
		}
		at := segment.Ptr
		for _, b := range segment.Blocks {
			if b.Ptr != at || b.Bytes == 0 {
				return false
			}
			at += b.Bytes
			if b.State == caching.PieceBlock {
				allocated += b.Bytes
			}
		}
		if end = segment.Ptr + segment.Bytes; at != end {
			return false
		}
		reserved += segment.Bytes
	}
	return allocated == s.Allocated && reserved == s.Reserved
}
