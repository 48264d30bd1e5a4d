package timeline

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// loader reads rows of memory calls or of allocators ahead of a replay, which uses the
// Timeline's numbers of origins and allocators meanwhile. So it gives numbers of its own,
// and when the replay has come to the rows, those of the Timeline take their place.
type loader[R any] struct {
	t          *Timeline
	origins    origin.Numbers
	allocators caching.Numbers
	told       loaderCounts // what begin knows of
	spare      chan []R     // memory of groups that were yielded

	// By the loader's numbers the Timeline's; these are the replay's.
	strings, adopted, adoptedAllocators []int32
}

// loaderCounts says how many numbers there are.
type loaderCounts struct{ strings, origins, allocators int }

func newLoader[R any](t *Timeline) *loader[R] {
	return &loader[R]{
		t:          t,
		origins:    origin.Numbers{Ids: make(map[origin.Origin]int32)},
		allocators: caching.NewNumbers(),
		spare:      make(chan []R, 4),
	}
}

// rows returns an empty slice with room for n rows.
func (l *loader[R]) rows(n int) []R {
	select {
	case rows := <-l.spare:
		if cap(rows) >= n {
			return rows[:0]
		}
	default:
	}
	return make([]R, 0, n)
}

// release takes the memory of rows back.
func (l *loader[R]) release(_ Span, rows []R) {
	select {
	case l.spare <- rows:
	default: // there is enough
	}
}

// begin returns what makes the numbers in rows the Timeline's: adopt is called when all that
// is new since the last group is known.
func (l *loader[R]) begin(adopt func()) func() {
	now := loaderCounts{len(l.origins.Strings.List), len(l.origins.List), len(l.allocators.Keys)}
	strings, origins := l.origins.Strings.List[l.told.strings:], l.origins.List[l.told.origins:]
	keys := l.allocators.Keys[l.told.allocators:]
	l.told = now
	return func() {
		for _, s := range strings {
			l.strings = append(l.strings, l.t.Origins.Strings.ID(s))
		}
		for _, o := range origins {
			o.Name, o.Site, o.Memory = l.strings[o.Name], l.strings[o.Site], l.strings[o.Memory]
			l.adopted = append(l.adopted, l.t.Origins.ID(o))
		}
		for _, key := range keys {
			l.adoptedAllocators = append(l.adoptedAllocators, l.t.Allocators.ID(key))
		}
		adopt()
	}
}
