package analyze

import (
	"cmp"
	"slices"
)

// Row groups are written roughly in the order in which calls returned, by several
// threads, and calls that never returned come last. To see rows in exact order of
// time without holding them all, inOrder keeps only those row groups loaded that
// overlap the current moment.

// stream is how inOrder handles rows of type R.
type stream[R any] struct {
	// load returns the rows of a row group in order of less.
	load func(span) ([]R, error)
	// release, if set, is called when all rows of a group were yielded.
	release func(span, []R)
	at      func(*R) int64
	less    func(a, b *R) bool
}

// loaded is a row group that inOrder is in the middle of.
type loaded[R any] struct {
	span span
	rows []R
	next int
}

func (l *loaded[R]) head() *R { return &l.rows[l.next] }

// inOrder yields the rows of all spans in order of less, which must order by time
// (at) first. No row of a span may be earlier than the span's firstNs.
func inOrder[R any](spans []span, s stream[R], yield func(*R) error) error {
	waiting := slices.Clone(spans)
	slices.SortStableFunc(waiting, func(a, b span) int { return cmp.Compare(a.firstNs, b.firstNs) })
	var active []*loaded[R] // a heap: the group with the earliest row is first
	earlier := func(a, b *loaded[R]) bool { return s.less(a.head(), b.head()) }
	for {
		for len(waiting) > 0 && (len(active) == 0 || waiting[0].firstNs <= s.at(active[0].head())) {
			rows, err := s.load(waiting[0])
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				active = heapPush(active, &loaded[R]{span: waiting[0], rows: rows}, earlier)
			}
			waiting = waiting[1:]
		}
		if len(active) == 0 {
			return nil
		}
		if err := s.run(active, waiting, yield); err != nil {
			return err
		}
		first := active[0]
		if first.next == len(first.rows) {
			if s.release != nil {
				s.release(first.span, first.rows)
			}
			active = heapPop(active, earlier)
		} else {
			heapFix(active, earlier)
		}
	}
}

// run yields rows of the first active group as long as no other group can have an
// earlier one.
func (s stream[R]) run(active []*loaded[R], waiting []span, yield func(*R) error) error {
	first := active[0]
	var rival *R
	for _, other := range active[1:min(3, len(active))] { // the heap's second is one of the root's children
		if rival == nil || s.less(other.head(), rival) {
			rival = other.head()
		}
	}
	for ; first.next < len(first.rows); first.next++ {
		row := first.head()
		if rival != nil && s.less(rival, row) || len(waiting) > 0 && waiting[0].firstNs <= s.at(row) {
			return nil
		}
		if err := yield(row); err != nil {
			return err
		}
	}
	return nil
}

// sortNearly sorts rows that are in order but for neighbours, as those of a row
// group are: insertion while that is cheap, a full sort when it is not.
func sortNearly[R any](rows []R, less func(a, b *R) bool) {
	budget := 16 * len(rows)
	for i := 1; i < len(rows); i++ {
		if !less(&rows[i], &rows[i-1]) {
			continue
		}
		row, k := rows[i], i
		for k > 0 && less(&row, &rows[k-1]) {
			rows[k] = rows[k-1]
			k--
		}
		rows[k] = row
		if budget -= i - k; budget < 0 {
			slices.SortStableFunc(rows, func(a, b R) int {
				if less(&a, &b) {
					return -1
				}
				if less(&b, &a) {
					return 1
				}
				return 0
			})
			return
		}
	}
}
