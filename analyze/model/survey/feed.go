package survey

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// feed is the state of a Survey whose recording grows.
type feed struct {
	taken  [2]int             // row groups of memory calls and of other calls that were taken from the Timeline
	groups [2][]timeline.Span // those of them that the observers have not got yet
	calls  *calls.CallFeed
	replay memoryReplay
}

// Advance observes what happened before untilNs, Unix ns, in a recording that grows by timeline.Extend. It must not
// decrease. No row that is added later may begin before it. Observers see the same as by Read, but some parts only when
// Finish is called: calls of observers with NeedsHostMemory, rows of class host, and Alongside. Changes of the
// program's memory lag by a second. It returns errors of reading the recording; the Survey must not be used after it.
func (s *Survey) Advance(untilNs int64) error {
	if s.feed == nil {
		s.feed = &feed{calls: s.Reader.NewFeed(s.callFunction(needsCalls)), replay: s.beginReplay(s.addHostMemory)}
	}
	return runUntilError(
		func() error { return s.observeNewGroups(untilNs) },
		func() error { return s.feed.calls.Advance(untilNs) },
		func() error { return s.feed.replay.advance(untilNs) },
	)
}

// Finish observes the rest of the recording. The results are complete afterwards. Without Advance it is Read.
func (s *Survey) Finish() error {
	if s.feed == nil {
		return s.Read()
	}
	s.feed.calls.Refresh() // work alongside reads the window
	return s.readAlongside(func() error {
		return runUntilError(
			func() error { return s.observeNewGroups(math.MaxInt64) },
			s.feed.calls.Finish,
			func() error { return s.finishReplay(&s.feed.replay) },
			s.readHostRows,
			s.readLateCalls,
		)
	})
}

// observeNewGroups passes row groups whose calls begin before untilNs to the observers, in the order of their first
// call. Others wait: a group that is added later may begin before them, or have a call around one of theirs.
func (s *Survey) observeNewGroups(untilNs int64) error {
	f := s.feed
	of := [2]func(*Observer) groupFunction{
		func(o *Observer) groupFunction { return o.MemoryGroup },
		func(o *Observer) groupFunction { return o.CallGroup },
	}
	for i, all := range [2][]timeline.Span{s.Timeline.Memory, s.Timeline.Calls} {
		waiting := objects.SpansInOrder(append(f.groups[i], all[f.taken[i]:]...))
		n := slices.IndexFunc(waiting, func(sp timeline.Span) bool { return sp.LastNs >= untilNs })
		if n < 0 {
			n = len(waiting)
		}
		f.groups[i], f.taken[i] = waiting[n:], len(all)
		if err := s.observeGroups(waiting[:n], of[i]); err != nil {
			return err
		}
	}
	return nil
}
