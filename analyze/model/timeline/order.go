package timeline

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/stats"
)

// The recorder writes row groups roughly in the order in which calls returned, from several
// threads. Calls that never returned come last. EachRowInOrder yields rows in exact order of time,
// and keeps only those row groups in memory that overlap the current time.

// RowStream describes to EachRowInOrder how to read rows of type R.
type RowStream[R any] struct {
	// Load returns the rows of a row group, sorted by Less.
	Load func(Span) ([]R, error)
	// LoadAhead makes Load run in another goroutine, one row group ahead of yield. Load must not use data that
	// yield or Release change.
	LoadAhead bool
	// ahead, if set, replaces Load. It runs in another goroutine, one row group ahead of yield, and
	// must not use data that yield changes. EachRowInOrder calls the returned begin in its own
	// goroutine before it yields the first row of the group.
	ahead func(Span) (rows []R, begin func(), err error)
	// Release, if set, is called after all rows of a row group were yielded.
	Release func(Span, []R)
	// At returns the time of a row.
	At func(*R) int64
	// Less orders rows, by time first.
	Less func(a, b *R) bool
}

// EachRowInOrder calls yield for the rows of all spans in the order of s.Less, which must order by
// s.At first. No row of a span may be earlier than the span's FirstNs. It returns the first error
// of reading or of yield.
func EachRowInOrder[R any](spans []Span, s RowStream[R], yield func(*R) error) error {
	o := NewOrderedRows(spans, s)
	defer o.Close()
	for {
		rows, err := o.NextRows()
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

// OrderedRows is the iterator behind EachRowInOrder. It returns slices of rows, so that a caller
// can merge two streams. Call Close after the last NextRows. It is not safe for concurrent use.
type OrderedRows[R any] struct {
	RowStream[R]
	waiting []Span            // spans that are not loaded yet, by FirstNs
	active  []*loadedGroup[R] // heap of row groups by their next row
	load    func() (*loadedGroup[R], error)
	close   func() // stops the goroutine of ahead
}

// loadedGroup is a row group that is partly yielded.
type loadedGroup[R any] struct {
	span Span
	rows []R
	next int
}

func (l *loadedGroup[R]) nextRow() *R { return &l.rows[l.next] }

// NewOrderedRows returns an iterator over the rows of all spans in the order of s.Less.
func NewOrderedRows[R any](spans []Span, s RowStream[R]) *OrderedRows[R] {
	o := &OrderedRows[R]{RowStream: s, waiting: slices.Clone(spans)}
	slices.SortStableFunc(o.waiting, func(a, b Span) int { return cmp.Compare(a.FirstNs, b.FirstNs) })
	if s.LoadAhead {
		s.ahead = func(sp Span) ([]R, func(), error) {
			rows, err := s.Load(sp)
			return rows, func() {}, err
		}
	}
	if s.ahead != nil {
		o.load, o.close = loadGroupsAhead(o.waiting, s.ahead)
		return o
	}
	o.load = func() (*loadedGroup[R], error) {
		rows, err := s.Load(o.waiting[0])
		return &loadedGroup[R]{span: o.waiting[0], rows: rows}, err
	}
	o.close = func() {}
	return o
}

// Close stops loading row groups. It waits until the last Load has returned.
func (o *OrderedRows[R]) Close() { o.close() }

// loadGroupsAhead loads the row groups in a goroutine, in order. It loads one group while rows of
// earlier groups are yielded; end stops the goroutine.
func loadGroupsAhead[R any](
	spans []Span,
	load func(Span) ([]R, func(), error),
) (next func() (*loadedGroup[R], error), end func()) {
	type result struct {
		group *loadedGroup[R]
		begin func()
		err   error
	}
	results, stop := make(chan result), make(chan struct{})
	go func() {
		defer close(results)
		for _, s := range spans {
			rows, begin, err := load(s)
			select {
			case results <- result{&loadedGroup[R]{span: s, rows: rows}, begin, err}:
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	next = func() (*loadedGroup[R], error) {
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

// NextRows returns the next rows in order, or none at the end. They are valid until the following
// call.
func (o *OrderedRows[R]) NextRows() ([]R, error) {
	o.restoreHeap()
	for len(o.waiting) > 0 && (len(o.active) == 0 || o.waiting[0].FirstNs <= o.At(o.active[0].nextRow())) {
		group, err := o.load()
		if err != nil {
			return nil, err
		}
		if len(group.rows) > 0 {
			o.active = stats.HeapPush(o.active, group, o.comesEarlier)
		}
		o.waiting = o.waiting[1:]
	}
	if len(o.active) == 0 {
		return nil, nil
	}
	first := o.active[0]
	rows := first.rows[first.next:]
	rows = rows[:o.countRowsInOrder(rows)]
	first.next += len(rows)
	return rows, nil
}

func (o *OrderedRows[R]) comesEarlier(a, b *loadedGroup[R]) bool {
	return o.Less(a.nextRow(), b.nextRow())
}

// restoreHeap restores the heap after rows of the first row group were yielded.
func (o *OrderedRows[R]) restoreHeap() {
	if len(o.active) == 0 {
		return
	}
	first := o.active[0]
	if first.next < len(first.rows) {
		stats.HeapFix(o.active, o.comesEarlier)
		return
	}
	if o.Release != nil {
		o.Release(first.span, first.rows)
	}
	o.active = stats.HeapPop(o.active, o.comesEarlier)
}

// countRowsInOrder returns how many rows of the first row group come before the rows of all other
// groups: at least one.
func (o *OrderedRows[R]) countRowsInOrder(rows []R) int {
	var rival *R
	// the second element in order is a child of the heap's root
	for _, other := range o.active[1:min(3, len(o.active))] {
		if rival == nil || o.Less(other.nextRow(), rival) {
			rival = other.nextRow()
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

// SortNearlySorted sorts rows that are almost in order, such as those of a row group. It uses
// insertion sort while that is cheap, and a full sort otherwise.
func SortNearlySorted[R any](rows []R, less func(a, b *R) bool) {
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
