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
	return o.EachRow(yield)
}

// OrderedRows is the iterator behind EachRowInOrder. It returns slices of rows, so that a caller can merge two
// streams. Rows of equal order come in the order of their row groups.
//
// The rows of a recording that grows need a limit. While there is one, Load runs in the goroutine of NextRows, and
// again for a row group with later rows: what it makes of them may depend on rows that are still to come.
//
// Call Close after the last NextRows. It is not safe for concurrent use.
type OrderedRows[R any] struct {
	RowStream[R]
	waiting  []waitingGroup    // row groups that are not loaded yet, by firstNs
	active   []*loadedGroup[R] // heap of row groups by their next row
	appended int               // number of row groups so far
	limitNs  int64             // NextRows returns only earlier rows, Unix ns; math.MaxInt64: all
	isAhead  bool              // row groups are loaded ahead while there is no limit
	loading  *groupLoad[R]     // the row group that is loaded ahead; nil: none
}

// waitingGroup is a row group that is not loaded yet, or whose later rows are not.
type waitingGroup struct {
	span    Span
	number  int   // position among all row groups
	firstNs int64 // no row to load is earlier, Unix ns
	fromNs  int64 // rows before it were returned, Unix ns
}

// loadedGroup is a row group that is partly yielded.
type loadedGroup[R any] struct {
	span   Span
	number int
	rows   []R
	next   int
}

func (l *loadedGroup[R]) nextRow() *R { return &l.rows[l.next] }

// groupLoad is the loading of a row group in another goroutine.
type groupLoad[R any] struct {
	group waitingGroup
	done  chan loadResult[R]
}

// loadResult has the rows of a row group. begin is called before they are used.
type loadResult[R any] struct {
	rows  []R
	begin func()
	err   error
}

// NewOrderedRows returns an iterator over the rows of all spans in the order of s.Less. It has no limit.
func NewOrderedRows[R any](spans []Span, s RowStream[R]) *OrderedRows[R] {
	o := &OrderedRows[R]{RowStream: s, limitNs: math.MaxInt64, isAhead: s.LoadAhead || s.ahead != nil}
	if s.ahead == nil {
		o.ahead = func(sp Span) ([]R, func(), error) {
			rows, err := s.Load(sp)
			return rows, func() {}, err
		}
	}
	o.Append(spans...)
	return o
}

// Append adds row groups. None of their rows may be earlier than the limit of an earlier NextRows.
func (o *OrderedRows[R]) Append(spans ...Span) {
	for _, s := range spans {
		o.waiting = append(o.waiting, waitingGroup{s, o.appended, s.FirstNs, math.MinInt64})
		o.appended++
	}
	o.sortWaiting()
	o.loadAhead()
}

// SetLimit makes NextRows return only rows before limitNs, Unix ns. math.MaxInt64, the default, is no limit. A limit
// means that no row of a later Append is earlier. It must not decrease.
func (o *OrderedRows[R]) SetLimit(limitNs int64) {
	o.limitNs = limitNs
	o.loadAhead()
}

// Grow appends those of the spans that are new, and sets the limit. all has the spans of all earlier calls first.
func (o *OrderedRows[R]) Grow(all []Span, limitNs int64) {
	o.Append(all[o.appended:]...)
	o.SetLimit(limitNs)
}

// Close stops loading row groups. It waits until the last Load has returned.
func (o *OrderedRows[R]) Close() {
	if o.loading != nil {
		<-o.loading.done
		o.loading = nil
	}
}

func (o *OrderedRows[R]) sortWaiting() {
	slices.SortStableFunc(o.waiting, func(a, b waitingGroup) int { return cmp.Compare(a.firstNs, b.firstNs) })
}

// loadAhead starts to load the next row group in another goroutine, unless there is a limit.
func (o *OrderedRows[R]) loadAhead() {
	if !o.isAhead || o.limitNs != math.MaxInt64 || o.loading != nil || len(o.waiting) == 0 {
		return
	}
	l := &groupLoad[R]{o.waiting[0], make(chan loadResult[R], 1)}
	o.loading, o.waiting = l, o.waiting[1:]
	go func() {
		rows, begin, err := o.ahead(l.group.span)
		l.done <- loadResult[R]{rows, begin, err}
	}()
}

// loadNext loads the next row group, or takes the one that was loaded ahead.
func (o *OrderedRows[R]) loadNext() error {
	var group waitingGroup
	var r loadResult[R]
	if l := o.loading; l != nil {
		group, r = l.group, <-l.done
		o.loading = nil
		o.loadAhead()
	} else {
		group = o.waiting[0]
		o.waiting = o.waiting[1:]
		r.rows, r.begin, r.err = o.ahead(group.span)
	}
	if r.err != nil {
		return r.err
	}
	r.begin()
	rows := o.omitOtherRows(group, r.rows)
	if len(rows) > 0 {
		o.active = stats.HeapPush(
			o.active,
			&loadedGroup[R]{span: group.span, number: group.number, rows: rows},
			o.comesEarlier,
		)
	}
	return nil
}

// omitOtherRows returns the rows of a row group from those that were returned before to the limit. The row group waits
// again if it has later rows.
func (o *OrderedRows[R]) omitOtherRows(g waitingGroup, rows []R) []R {
	if g.fromNs != math.MinInt64 {
		rows = rows[o.countRowsBefore(g.fromNs, rows):]
	}
	if o.limitNs == math.MaxInt64 {
		return rows
	}
	end := o.countRowsBefore(o.limitNs, rows)
	if end < len(rows) {
		g.firstNs, g.fromNs = o.At(&rows[end]), o.limitNs
		o.waiting = append(o.waiting, g)
		o.sortWaiting()
	}
	return rows[:end]
}

func (o *OrderedRows[R]) countRowsBefore(ns int64, rows []R) int {
	return sort.Search(len(rows), func(i int) bool { return o.At(&rows[i]) >= ns })
}

// earliestWaitingNs returns the earliest time of a row that is not loaded yet, Unix ns. It returns false if all rows
// before the limit are loaded.
func (o *OrderedRows[R]) earliestWaitingNs() (ns int64, ok bool) {
	if o.loading != nil {
		ns, ok = o.loading.group.firstNs, true
	}
	if len(o.waiting) > 0 && (!ok || o.waiting[0].firstNs < ns) {
		ns, ok = o.waiting[0].firstNs, true
	}
	return ns, ok && (o.limitNs == math.MaxInt64 || ns < o.limitNs)
}

// NextRows returns the next rows in order, or none at the limit or the end. They are valid until the following
// call. After more row groups or a higher limit it continues.
func (o *OrderedRows[R]) NextRows() ([]R, error) {
	o.restoreHeap()
	nextNs, isWaiting := o.earliestWaitingNs()
	for isWaiting && (len(o.active) == 0 || nextNs <= o.At(o.active[0].nextRow())) {
		if err := o.loadNext(); err != nil {
			return nil, err
		}
		nextNs, isWaiting = o.earliestWaitingNs()
	}
	if len(o.active) == 0 {
		return nil, nil
	}
	first := o.active[0]
	rows := first.rows[first.next:]
	rows = rows[:o.countRowsInOrder(rows, func(row *R) bool { return !isWaiting || o.At(row) < nextNs })]
	first.next += len(rows)
	return rows, nil
}

// EachRow calls yield for the next rows in order, up to the limit or the end. It returns the first error of reading or
// of yield.
func (o *OrderedRows[R]) EachRow(yield func(*R) error) error {
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

func (o *OrderedRows[R]) comesEarlier(a, b *loadedGroup[R]) bool {
	return o.Less(a.nextRow(), b.nextRow()) || a.number < b.number && !o.Less(b.nextRow(), a.nextRow())
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

// countRowsInOrder returns how many rows of the first row group come before the rows of all other groups: at least
// one. comesBeforeWaiting reports whether a row comes before all rows that are not loaded yet.
func (o *OrderedRows[R]) countRowsInOrder(rows []R, comesBeforeWaiting func(*R) bool) int {
	var rival *loadedGroup[R]
	// the second element in order is a child of the heap's root
	for _, other := range o.active[1:min(3, len(o.active))] {
		if rival == nil || o.comesEarlier(other, rival) {
			rival = other
		}
	}
	comes := comesBeforeWaiting
	if rival != nil {
		winsTies := o.active[0].number < rival.number
		comes = func(row *R) bool {
			isFirst := winsTies && !o.Less(rival.nextRow(), row) || !winsTies && o.Less(row, rival.nextRow())
			return isFirst && comesBeforeWaiting(row)
		}
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
