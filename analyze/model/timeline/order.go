package timeline

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/stats"
)

// The recorder writes row groups roughly in the order in which calls returned, from several
// threads. Calls that never returned come last. InOrder yields rows in exact order of time, and
// keeps only those row groups in memory that overlap the current time.

// Stream describes to InOrder how to read rows of type R.
type Stream[R any] struct {
	// Load returns the rows of a row group, sorted by Less.
	Load func(Span) ([]R, error)
	// ahead, if set, replaces Load. It runs in another goroutine, one row group ahead of yield, and
	// must not use data that yield changes. InOrder calls the returned begin in its own goroutine
	// before it yields the first row of the group.
	ahead func(Span) (rows []R, begin func(), err error)
	// Release, if set, is called after all rows of a row group were yielded.
	Release func(Span, []R)
	// At returns the time of a row.
	At func(*R) int64
	// Less orders rows, by time first.
	Less func(a, b *R) bool
}

// InOrder calls yield for the rows of all spans in the order of s.Less, which must order by s.At
// first. No row of a span may be earlier than the span's FirstNs. It returns the first error of
// reading or of yield.
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

// ordered is the iterator behind InOrder. It returns slices of rows, so that a caller can merge two
// streams.
type ordered[R any] struct {
	Stream[R]
	waiting []Span       // spans that are not loaded yet, by FirstNs
	active  []*loaded[R] // heap of row groups by their next row
	load    func() (*loaded[R], error)
	close   func() // must be called at the end
}

// loaded is a row group that is partly yielded.
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

// loadAhead loads the row groups in a goroutine, in order. It loads one group while rows of earlier
// groups are yielded; end stops the goroutine.
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
		for range results { // wait until the goroutine has stopped
		}
	}
}

// next returns the next rows in order, or none at the end. They are valid until the following call
// of next.
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

// settle restores the heap after rows of the first row group were yielded.
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

// until returns how many rows of the first row group come before the rows of all other groups: at
// least one.
func (o *ordered[R]) until(rows []R) int {
	var rival *R
	// the second element in order is a child of the heap's root
	for _, other := range o.active[1:min(3, len(o.active))] {
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
	// Overlapping groups have short runs, others one long run, so the step size doubles.
	known, step := 1, 1
	for known+step <= len(rows) && comes(&rows[known+step-1]) {
		known += step
		step *= 2
	}
	rest := rows[known:min(known+step, len(rows))]
	return known + sort.Search(len(rest), func(i int) bool { return !comes(&rest[i]) })
}

// SortNearly sorts rows that are almost in order, such as those of a row group. It uses insertion
// sort while that is cheap, and a full sort otherwise.
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
