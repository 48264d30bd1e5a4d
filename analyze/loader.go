package analyze

// loader reads rows of memory calls or of allocators ahead of a replay, which uses the
// Timeline's numbers of origins and allocators meanwhile. So it gives numbers of its own,
// and when the replay has come to the rows, those of the Timeline take their place.
type loader[R any] struct {
	t          *Timeline
	origins    originNumbers
	allocators allocatorNumbers
	told       loaderCounts // what begin knows of
	spare      chan []R     // memory of groups that were yielded

	// By the loader's numbers the Timeline's; these are the replay's.
	strings, adopted, adoptedAllocators []int32
}

// loaderCounts says how many numbers there are.
type loaderCounts struct{ strings, origins, allocators int }

func newLoader[R any](t *Timeline) *loader[R] {
	return &loader[R]{t: t, origins: originNumbers{ids: make(map[origin]int32)}, allocators: newAllocatorNumbers(), spare: make(chan []R, 4)}
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
func (l *loader[R]) release(_ span, rows []R) {
	select {
	case l.spare <- rows:
	default: // there is enough
	}
}

// begin returns what makes the numbers in rows the Timeline's: adopt is called when all that
// is new since the last group is known.
func (l *loader[R]) begin(adopt func()) func() {
	now := loaderCounts{len(l.origins.strings.list), len(l.origins.list), len(l.allocators.keys)}
	strings, origins, keys := l.origins.strings.list[l.told.strings:], l.origins.list[l.told.origins:], l.allocators.keys[l.told.allocators:]
	l.told = now
	return func() {
		for _, s := range strings {
			l.strings = append(l.strings, l.t.origins.strings.id(s))
		}
		for _, o := range origins {
			o.name, o.site, o.memory = l.strings[o.name], l.strings[o.site], l.strings[o.memory]
			l.adopted = append(l.adopted, l.t.origins.id(o))
		}
		for _, key := range keys {
			l.adoptedAllocators = append(l.adoptedAllocators, l.t.allocators.id(key))
		}
		adopt()
	}
}
