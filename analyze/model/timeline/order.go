package timeline

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/stats"
)

// Row groups are written roughly in the order in which calls returned, by several
// threads, and calls that never returned come last. To see rows in exact order of
// time without holding them all, InOrder keeps only those row groups loaded that
// overlap the current moment.

// Stream is how InOrder handles rows of type R.
type Stream[R any] struct {
	// Load returns the rows of a row group in order of less.
	Load func(Span) ([]R, error)
	// ahead, if set, is called instead of load, and beside yield: one group ahead of what
	// is yielded. It must use nothing that yield changes. What it returns beside the rows
	// is called, no longer beside yield, before the first row of the group is yielded.
	ahead func(Span) (rows []R, begin func(), err error)
	// release, if set, is called when all rows of a group were yielded.
	Release func(Span, []R)
	At      func(*R) int64
	Less    func(a, b *R) bool
}

// InOrder yields the rows of all spans in order of less, which must order by time
// (at) first. No row of a span may be earlier than the span's firstNs.
func InOrder[R any](spans []Span, s Stream[R], yield func(*R) error) error {
	o := newOrdered(spans, s)
	defer o.close()
	for {
		rows, err := o.next()
		if err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			if err := yield(&rows[i]); err != nil {
				return err
			}
		}
	}
}

// ordered is InOrder by stretches of rows, for those who put two streams in one order.
type ordered[R any] struct {
	Stream[R]
	waiting []Span
	active  []*loaded[R] // a heap: the group with the earliest row is first
	load    func() (*loaded[R], error)
	close   func() // must be called
}

// loaded is a row group that InOrder is in the middle of.
type loaded[R any] struct {
	span Span
	rows []R
	next int
}

func (l *loaded[R]) head() *R { return &l.rows[l.next] }

func newOrdered[R any](spans []Span, s Stream[R]) *ordered[R] {
	o := &ordered[R]{Stream: s, waiting: slices.Clone(spans)}
	slices.SortStableFunc(o.waiting, func(a, b Span) int { return cmp.Compare(a.FirstNs, b.FirstNs) })
	if s.ahead != nil {
		o.load, o.close = loadAhead(o.waiting, s.ahead)
		return o
	}
	o.load = func() (*loaded[R], error) {
		rows, err := s.Load(o.waiting[0])
		return &loaded[R]{span: o.waiting[0], rows: rows}, err
	}
	o.close = func() {}
	return o
}

// loadAhead loads the groups in a goroutine, in their order. One is loaded while rows of
// those before it are yielded; close ends that.
func loadAhead[R any](
	spans []Span,
	load func(Span) ([]R, func(), error),
) (next func() (*loaded[R], error), end func()) {
	type result struct {
		group *loaded[R]
		begin func()
		err   error
	}
	results, stop := make(chan result), make(chan struct{})
	go func() {
		defer close(results)
		for _, s := range spans {
			rows, begin, err := load(s)
			select {
			case results <- result{&loaded[R]{span: s, rows: rows}, begin, err}:
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	next = func() (*loaded[R], error) {
		r := <-results
		if r.err == nil {
			r.begin()
		}
		return r.group, r.err
	}
	return next, func() {
		close(stop)
		for range results { // until it has noticed
		}
	}
}

// next returns the rows that come next, none at the end. They are valid until next is
// called again.
func (o *ordered[R]) next() ([]R, error) {
	o.settle()
	for len(o.waiting) > 0 && (len(o.active) == 0 || o.waiting[0].FirstNs <= o.At(o.active[0].head())) {
		group, err := o.load()
		if err != nil {
			return nil, err
		}
		if len(group.rows) > 0 {
			o.active = stats.HeapPush(o.active, group, o.earlier)
		}
		o.waiting = o.waiting[1:]
	}
	if len(o.active) == 0 {
		return nil, nil
	}
	first := o.active[0]
	rows := first.rows[first.next:]
	rows = rows[:o.until(rows)]
	first.next += len(rows)
	return rows, nil
}

func (o *ordered[R]) earlier(a, b *loaded[R]) bool { return o.Less(a.head(), b.head()) }

// settle puts the group of which rows were yielded where it belongs now.
func (o *ordered[R]) settle() {
	if len(o.active) == 0 {
		return
	}
	first := o.active[0]
	if first.next < len(first.rows) {
		stats.HeapFix(o.active, o.earlier)
		return
	}
	if o.Release != nil {
		o.Release(first.span, first.rows)
	}
	o.active = stats.HeapPop(o.active, o.earlier)
}

// until returns how many rows of the first active group come before those of any other
// group: at least one.
func (o *ordered[R]) until(rows []R) int {
	var rival *R
	for _, other := range o.active[1:min(3, len(o.active))] { // the heap's second is one of the root's children
		if rival == nil || o.Less(other.head(), rival) {
			rival = other.head()
		}
	}
	nextNs := int64(math.MaxInt64)
	if len(o.waiting) > 0 {
		nextNs = o.waiting[0].FirstNs
	}
	comes := func(row *R) bool {
		return (rival == nil || !o.Less(rival, row)) && (len(o.waiting) == 0 || o.At(row) < nextNs)
	}
	// Groups that overlap have short stretches, the others one: the steps grow.
	known, step := 1, 1
	for known+step <= len(rows) && comes(&rows[known+step-1]) {
		known += step
		step *= 2
	}
	rest := rows[known:min(known+step, len(rows))]
	return known + sort.Search(len(rest), func(i int) bool { return !comes(&rest[i]) })
}

// SortNearly sorts rows that are in order but for neighbours, as those of a row
// group are: insertion while that is cheap, a full sort when it is not.
func SortNearly[R any](rows []R, less func(a, b *R) bool) {
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
