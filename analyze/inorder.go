package analyze

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/stats"
)

// Row groups are written roughly in the order in which calls returned, by several
// threads, and calls that never returned come last. To see rows in exact order of
// time without holding them all, inOrder keeps only those row groups loaded that
// overlap the current moment.

// stream is how inOrder handles rows of type R.
type stream[R any] struct {
	// load returns the rows of a row group in order of less.
	load func(span) ([]R, error)
	// ahead, if set, is called instead of load, and beside yield: one group ahead of what
	// is yielded. It must use nothing that yield changes. What it returns beside the rows
	// is called, no longer beside yield, before the first row of the group is yielded.
	ahead func(span) (rows []R, begin func(), err error)
	// release, if set, is called when all rows of a group were yielded.
	release func(span, []R)
	at      func(*R) int64
	less    func(a, b *R) bool
}

// inOrder yields the rows of all spans in order of less, which must order by time
// (at) first. No row of a span may be earlier than the span's firstNs.
func inOrder[R any](spans []span, s stream[R], yield func(*R) error) error {
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

// ordered is inOrder by stretches of rows, for those who put two streams in one order.
type ordered[R any] struct {
	stream[R]
	waiting []span
	active  []*loaded[R] // a heap: the group with the earliest row is first
	load    func() (*loaded[R], error)
	close   func() // must be called
}

// loaded is a row group that inOrder is in the middle of.
type loaded[R any] struct {
	span span
	rows []R
	next int
}

func (l *loaded[R]) head() *R { return &l.rows[l.next] }

func newOrdered[R any](spans []span, s stream[R]) *ordered[R] {
	o := &ordered[R]{stream: s, waiting: slices.Clone(spans)}
	slices.SortStableFunc(o.waiting, func(a, b span) int { return cmp.Compare(a.firstNs, b.firstNs) })
	if s.ahead != nil {
		o.load, o.close = loadAhead(o.waiting, s.ahead)
		return o
	}
	o.load = func() (*loaded[R], error) {
		rows, err := s.load(o.waiting[0])
		return &loaded[R]{span: o.waiting[0], rows: rows}, err
	}
	o.close = func() {}
	return o
}

// loadAhead loads the groups in a goroutine, in their order. One is loaded while rows of
// those before it are yielded; close ends that.
func loadAhead[R any](spans []span, load func(span) ([]R, func(), error)) (next func() (*loaded[R], error), end func()) {
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
	for len(o.waiting) > 0 && (len(o.active) == 0 || o.waiting[0].firstNs <= o.at(o.active[0].head())) {
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

func (o *ordered[R]) earlier(a, b *loaded[R]) bool { return o.less(a.head(), b.head()) }

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
	if o.release != nil {
		o.release(first.span, first.rows)
	}
	o.active = stats.HeapPop(o.active, o.earlier)
}

// until returns how many rows of the first active group come before those of any other
// group: at least one.
func (o *ordered[R]) until(rows []R) int {
	var rival *R
	for _, other := range o.active[1:min(3, len(o.active))] { // the heap's second is one of the root's children
		if rival == nil || o.less(other.head(), rival) {
			rival = other.head()
		}
	}
	nextNs := int64(math.MaxInt64)
	if len(o.waiting) > 0 {
		nextNs = o.waiting[0].firstNs
	}
	comes := func(row *R) bool {
		return (rival == nil || !o.less(rival, row)) && (len(o.waiting) == 0 || o.at(row) < nextNs)
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
