package earlier

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// Scan has the states of allocators from before the recording, and follows which of their blocks are freed. It is not
// safe for concurrent use.
type Scan struct {
	t      *timeline.Timeline
	filter *query.Filter
	toNs   int64 // end of the window, Unix ns
	states []*state
}

// state is the state of an allocator from before the recording.
type state struct {
	*caching.EarlierState
	old    map[int64]bool  // addresses of its blocks that are from before; nil: all are
	readNs int64           // when it was read, Unix ns
	limit  int64           // limit of reserved bytes then; 0: none, or unknown
	freed  map[int64]int64 // time at which blocks were freed in the window, Unix ns, by address
}

// scanKey is the key of the Scan that reports share.
type scanKey struct{}

// ScanOf returns the Scan of a survey. Conditions of the filter on threads, streams and sizes have no effect. All callers
// must have the same filter.
func ScanOf(sv *survey.Survey, f *query.Filter) *Scan {
	return survey.Share(sv, scanKey{}, func() *Scan {
		s := NewScan(sv.Timeline, f)
		if s.HasRead() {
			sv.Add(survey.Observer{Allocator: s.OnAllocatorChange})
		}
		return s
	})
}

// NewScan returns a Scan of the states that pass the filter.
func NewScan(t *timeline.Timeline, f *query.Filter) *Scan {
	s := &Scan{t: t, filter: f, toNs: f.NarrowWindow(t.RecordingWindow()).ToNs}
	for _, read := range t.Facts.EarlierStates {
		if !passes(f, read) {
			continue
		}
		l := &state{EarlierState: read, readNs: read.AtNs, limit: read.LimitBytes, freed: make(map[int64]int64)}
		for _, start := range t.EarlierStates() {
			if start.IsRewound && start.Pid == read.Pid && start.Device == read.Device && read.Refused == "" {
				l.useStart(start)
			}
		}
		s.states = append(s.states, l)
	}
	return s
}

// useStart replaces the state by that at the start of the recording. An allocator that is known only from its reports
// has no segments then, so only its blocks are used.
func (l *state) useStart(start *caching.EarlierState) {
	if !start.IsReported {
		l.EarlierState = start
		return
	}
	l.old = make(map[int64]bool)
	for i := range start.Segments {
		for k := range start.Segments[i].Blocks {
			l.old[start.Segments[i].Blocks[k].Ptr] = true
		}
	}
}

// isOld reports whether a block or a hole of the state is from before the recording. Another block may have been at its
// address.
func (l *state) isOld(b *caching.EarlierBlock) bool {
	if l.old == nil || b.State == caching.PieceHole {
		return true
	}
	atNs, isFreed := l.freed[b.Ptr]
	return l.old[b.Ptr] && !(isFreed && atNs < l.readNs)
}

// HasRead reports whether a state was read.
func (s *Scan) HasRead() bool {
	return slices.ContainsFunc(s.states, func(l *state) bool { return l.Refused == "" })
}

// passes reports whether a state passes the filter. A state without a device is about all devices.
func passes(f *query.Filter, s *caching.EarlierState) bool {
	if s.Device < 0 {
		return len(f.Pids) == 0 || slices.Contains(f.Pids, s.Pid)
	}
	return f.PassesAllocator(s.Pid, s.Device)
}

// OnAllocatorChange processes the next change of an allocator.
func (s *Scan) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	if !c.Block.IsEarlier || c.AtNs > s.toNs || c.Op != caching.OpBlockFreeRequested && c.Op != caching.OpBlockLost ||
		s.t.IsInTeardown(a.Pid, c.AtNs) {
		return
	}
	for _, l := range s.states {
		if l.Pid == a.Pid && l.Device == a.Device && (l.old != nil || l.AtNs <= c.AtNs) {
			l.freed[c.Block.Ptr] = c.AtNs
		}
	}
}

// sums are the totals of some states: at their time, and of their blocks that are live at the end of the window.
type sums struct {
	blocks, bytes, segments, reserved int64
	liveBlocks, liveBytes             int64
}

// add adds a block.
func (n *sums) add(l *state, b *caching.EarlierBlock) {
	n.blocks++
	n.bytes += b.Bytes
	if _, isFreed := l.freed[b.Ptr]; b.State == caching.PieceBlock && !isFreed {
		n.liveBlocks++
		n.liveBytes += b.Bytes
	}
}

func sumOf(states []*state) (n sums) {
	for _, l := range states {
		n.reserved += l.Reserved
		n.segments += int64(len(l.Segments))
		for i := range l.Segments {
			for k := range l.Segments[i].Blocks {
				if b := &l.Segments[i].Blocks[k]; b.State != caching.PieceHole && l.isOld(b) {
					n.add(l, b)
				}
			}
		}
	}
	return n
}
