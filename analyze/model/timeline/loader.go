package timeline

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// rowLoader reads rows of memory calls or allocator events ahead of a replay. The replay uses the
// Timeline's numbers of origins and allocators at the same time, so the loader assigns numbers of
// its own. When the replay reaches the rows, begin replaces them by the Timeline's numbers.
type rowLoader[R any] struct {
	t          *Timeline
	origins    origin.OriginNumbers
	allocators caching.AllocatorNumbers
	announced  loaderCounts // numbers that shareNumbers has passed on
	spare      chan []R     // slices of rows for reuse

	// Maps from the loader's numbers to the Timeline's. Only the replay's goroutine uses them.
	timelineStrings, timelineOrigins, timelineAllocators []int32
}

// loaderCounts counts the numbers that a loader has assigned.
type loaderCounts struct{ strings, origins, allocators int }

func newRowLoader[R any](t *Timeline) *rowLoader[R] {
	return &rowLoader[R]{
		t:          t,
		origins:    origin.OriginNumbers{Ids: make(map[origin.CallOrigin]int32)},
		allocators: caching.NewAllocatorNumbers(),
		spare:      make(chan []R, 4),
	}
}

// takeRows returns an empty slice with capacity for n rows.
func (l *rowLoader[R]) takeRows(n int) []R {
	select {
	case rows := <-l.spare:
		if cap(rows) >= n {
			return rows[:0]
		}
	default:
	}
	return make([]R, 0, n)
}

// reuseRows returns a slice of rows for reuse.
func (l *rowLoader[R]) reuseRows(_ Span, rows []R) {
	select {
	case l.spare <- rows:
	default: // the channel has enough slices for reuse
	}
}

// shareNumbers returns a function that adds the loader's new numbers to the Timeline, and then
// calls renumber to replace the numbers in the rows. The replay calls it before it uses the rows.
func (l *rowLoader[R]) shareNumbers(renumber func()) func() {
	now := loaderCounts{len(l.origins.Strings.List), len(l.origins.List), len(l.allocators.Keys)}
	strings, origins := l.origins.Strings.List[l.announced.strings:], l.origins.List[l.announced.origins:]
	keys := l.allocators.Keys[l.announced.allocators:]
	l.announced = now
	return func() {
		for _, s := range strings {
			l.timelineStrings = append(l.timelineStrings, l.t.Origins.Strings.NumberOf(s))
		}
		for _, o := range origins {
			o.Name, o.Site, o.Memory = l.timelineStrings[o.Name], l.timelineStrings[o.Site], l.timelineStrings[o.Memory]
			l.timelineOrigins = append(l.timelineOrigins, l.t.Origins.NumberOf(o))
		}
		for _, key := range keys {
			l.timelineAllocators = append(l.timelineAllocators, l.t.Allocators.NumberOf(key))
		}
		renumber()
	}
}
