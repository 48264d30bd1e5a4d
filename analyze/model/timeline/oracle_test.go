package timeline_test

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// oracle computes the outcome of a replay with simple lists, each scanned from the start for every
// call. It is slow and independent of livemem.
type oracle struct {
	rows []*format.Row
	live []*oracleBlock
	maps []*oracleMap
	lent []*oracleLoan
	// foreign are pointers to memory of graphs.
	foreign []*format.Row
	analyzetest.ReplayResult
}

type oracleBlock struct {
	row        *format.Row
	refs, maps int64
	borrows    int64
	ended      bool
}

type oracleMap struct {
	row   *format.Row
	block *oracleBlock // nil if the mapped memory is unknown
}

type oracleLoan struct {
	row   *format.Row
	times int64
}

// oracleEvent is a row at the time when it takes effect.
type oracleEvent struct {
	at   int64
	rank int
	row  *format.Row
	ends func(*oracleBlock) bool // reports whether the end of a context or process frees a block
	left bool
}

func oracleOutcome(rows []*format.Row) analyzetest.ReplayResult {
	o := &oracle{rows: rows, ReplayResult: analyzetest.ReplayResult{Live: make(map[string]int64)}}
	var events []oracleEvent
	for _, r := range rows {
		events = append(events, o.events(r)...)
	}
	for len(events) > 0 {
		first := 0
		for i, e := range events {
			if e.at < events[first].at || e.at == events[first].at && e.rank < events[first].rank {
				first = i
			}
		}
		o.apply(&events[first])
		events = slices.Delete(events, first, first+1)
		var sum int64
		for _, b := range o.live {
			if b.borrows == 0 {
				sum += b.row.Bytes
			}
		}
		o.Peak = max(o.Peak, sum)
	}
	for _, b := range o.live {
		if b.borrows == 0 {
			o.Live[analyzetest.LiveBlockKey(b.row.Pid, b.row.MemoryKind, b.row.Ptr)] = b.row.Bytes
		}
	}
	return o.ReplayResult
}

func succeeded(r *format.Row) bool {
	return r.Result == 0 && r.Flags&(format.FlagOpen|format.FlagAbandoned) == 0
}

// events returns the effects of a row and their times. Allocations take effect when the call
// returns, all others when it starts.
func (o *oracle) events(r *format.Row) []oracleEvent {
	start, end := r.StartNs, r.StartNs+r.DurNs
	if r.Kind == format.KindProcess {
		var said struct {
			ExitNs int64 `json:"exit_ns"`
		}
		if err := json.Unmarshal([]byte(r.Message), &said); err != nil || said.ExitNs == 0 {
			return nil
		}
		return []oracleEvent{{said.ExitNs, 9, r, func(b *oracleBlock) bool { return b.row.Pid == r.Pid }, true}}
	}
	if r.Kind == format.KindAlloc {
		return []oracleEvent{{end, 1, r, nil, false}}
	}
	if !succeeded(r) {
		return nil
	}
	switch r.Kind {
	case format.KindFree, format.KindUnmap, format.KindReturn:
		return []oracleEvent{{start, 0, r, nil, false}}
	case format.KindMap, format.KindRetain:
		return []oracleEvent{{start, 2, r, nil, false}}
	case format.KindBorrow:
		return []oracleEvent{{end, 1, r, nil, false}}
	case format.KindAPI:
		if r.Name == "cuGraphAddMemAllocNode" {
			return []oracleEvent{{end, 8, r, nil, false}}
		}
		if goes := o.contextEnd(r); goes != nil {
			later := func(a *format.Row) bool {
				return a.Kind == format.KindAlloc && succeeded(a) && a.Pid == r.Pid && a.StartNs+a.DurNs > start
			}
			return []oracleEvent{{start, 9, r, func(b *oracleBlock) bool {
				return b.row.Pid == r.Pid && b.row.MemoryKind != format.MemoryPhysical && b.row.Context != 0 &&
					goes(b.row)
			}, !slices.ContainsFunc(o.rows, later)}}
		}
	}
	return nil
}

// contextEnd returns a function that reports whether the end of a context by this call frees an
// allocation.
func (o *oracle) contextEnd(r *format.Row) func(*format.Row) bool {
	handle := int64(0)
	switch r.Name {
	case "cuCtxDestroy_v2":
		return func(a *format.Row) bool { return a.Context == r.Ptr }
	case "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2":
		for _, retain := range o.rows {
			if retain.Name == "cuDevicePrimaryCtxRetain" && retain.Pid == r.Pid && retain.Device == r.Device &&
				succeeded(retain) {
				handle = retain.Ptr
			}
		}
	default:
		return nil
	}
	if r.Name == "cuDevicePrimaryCtxRelease_v2" && !o.isLastRelease(r, handle) {
		return nil
	}
	if handle != 0 {
		return func(a *format.Row) bool { return a.Context == handle }
	}
	return func(a *format.Row) bool {
		made := func(c *format.Row) bool {
			return c.Name == "cuCtxCreate_v4" && c.Pid == a.Pid && c.Ptr == a.Context && succeeded(c)
		}
		return o.device(a) == r.Device && !slices.ContainsFunc(o.rows, made)
	}
}

// isLastRelease counts the references to a primary context. It trusts the count only if no call
// uses the context before the first retain, or between a last release and the next retain.
func (o *oracle) isLastRelease(release *format.Row, handle int64) bool {
	var calls []*format.Row
	for _, r := range o.rows {
		if (r.Name == "cuDevicePrimaryCtxRetain" || r.Name == release.Name) && r.Pid == release.Pid &&
			r.Device == release.Device &&
			succeeded(r) {
			calls = append(calls, r)
		}
	}
	slices.SortStableFunc(calls, func(a, b *format.Row) int { return cmp.Compare(a.StartNs, b.StartNs) })
	used := func(from, to int64) bool {
		return slices.ContainsFunc(o.rows, func(r *format.Row) bool {
			needs := r.Kind == format.KindAlloc || r.Kind == format.KindLaunch || r.Kind == format.KindMemcpy ||
				r.Kind == format.KindMemset
			return needs && r.MemoryKind != format.MemoryPhysical && r.Pid == release.Pid && r.Context == handle &&
				succeeded(r) &&
				r.StartNs > from &&
				r.StartNs < to
		})
	}
	refs, isLast := 0, false
	idleFrom := int64(math.MinInt64)
	for _, c := range calls {
		switch {
		case c.Name == "cuDevicePrimaryCtxRetain":
			if refs == 0 && used(idleFrom, c.StartNs) {
				return false
			}
			refs++
		case refs > 0:
			if refs--; refs == 0 {
				idleFrom = c.StartNs + c.DurNs
				isLast = isLast || c == release
			}
		}
	}
	return isLast && (refs > 0 || !used(idleFrom, math.MaxInt64))
}

// device returns the device of a call: its own, that of other calls in its context, or the only
// device.
func (o *oracle) device(r *format.Row) int32 {
	if r.Device >= 0 {
		return r.Device
	}
	found := int32(-1)
	for _, c := range o.rows {
		handle := c.Context
		for _, h := range []int64{handle, c.Ptr} {
			isMaker := c.Name == "cuCtxCreate_v4" || c.Name == "cuDevicePrimaryCtxRetain"
			if c.Pid != r.Pid || c.Device < 0 || h != r.Context || h == 0 || c.Kind == format.KindProcess ||
				h == c.Ptr && h != handle && !(isMaker && succeeded(c)) ||
				h == handle && isMaker {
				continue
			}
			if found >= 0 && found != c.Device {
				found = timeline.AmbiguousDevice
			} else if found != timeline.AmbiguousDevice {
				found = c.Device
			}
		}
	}
	if found >= 0 {
		return found
	}
	gpus := 0
	for _, c := range o.rows {
		if c.Kind == format.KindDevice {
			found = c.Device
			gpus++
		}
	}
	if gpus == 1 {
		return found
	}
	return -1
}

// class returns the number space of a memory kind.
func class(kind string) string {
	switch kind {
	case format.MemoryArray, format.MemoryPhysical, format.MemoryIPC, format.MemoryExternal:
		return kind
	}
	return "pointer"
}

func (o *oracle) find(pid int32, kind string, ptr int64) *oracleBlock {
	for _, b := range o.live {
		if b.row.Pid == pid && class(b.row.MemoryKind) == class(kind) && b.row.Ptr == ptr {
			return b
		}
	}
	return nil
}

func (o *oracle) end(b *oracleBlock) {
	b.ended = true
	o.live = slices.DeleteFunc(o.live, func(other *oracleBlock) bool { return other == b })
}

func (o *oracle) apply(e *oracleEvent) {
	r := e.row
	captured := r.Flags&format.FlagCaptured != 0
	switch {
	case e.ends != nil:
		for _, b := range slices.Clone(o.live) {
			if e.ends(b) {
				if b.borrows == 0 && e.left {
					o.Left++
				}
				o.end(b)
			}
		}
		if r.Kind == format.KindProcess {
			o.maps = slices.DeleteFunc(o.maps, func(m *oracleMap) bool { return m.row.Pid == r.Pid })
			o.lent = slices.DeleteFunc(o.lent, func(l *oracleLoan) bool { return l.row.Pid == r.Pid })
			o.foreign = slices.DeleteFunc(o.foreign, func(f *format.Row) bool { return f.Pid == r.Pid })
		}
	case r.Kind == format.KindAPI || r.Kind == format.KindAlloc && captured && succeeded(r):
		o.foreign = append(o.foreign, r)
	case captured:
	case r.Kind == format.KindAlloc:
		o.alloc(r)
	case r.Kind == format.KindFree:
		o.free(r)
	case r.Kind == format.KindRetain:
		if b := o.find(r.Pid, format.MemoryPhysical, r.Ptr); b != nil {
			b.refs++
		}
	case r.Kind == format.KindMap:
		b := o.find(r.Pid, format.MemoryPhysical, r.SrcPtr)
		if b != nil {
			b.maps++
		}
		o.LostFrees += o.unmap(r, false)
		o.maps = append(o.maps, &oracleMap{r, b})
	case r.Kind == format.KindUnmap:
		if o.unmap(r, true) == 0 {
			o.Unmatched++
		}
	case r.Kind == format.KindBorrow:
		o.borrow(r)
	case r.Kind == format.KindReturn:
		for i, l := range o.lent {
			if l.row.Pid == r.Pid && l.row.MemoryKind == r.MemoryKind && l.row.Ptr == r.Ptr {
				o.Returned++
				if l.times--; l.times == 0 {
					o.lent = slices.Delete(o.lent, i, i+1)
				}
				return
			}
		}
	}
}

func (o *oracle) alloc(r *format.Row) {
	switch {
	case !succeeded(r) && r.Result == 0 || r.Flags&(format.FlagOpen|format.FlagAbandoned) != 0:
		o.Unknown++
		return
	case r.Result != 0:
		o.Failed++
		return
	case r.Ptr == 0:
		return
	}
	if old := o.find(r.Pid, r.MemoryKind, r.Ptr); old != nil {
		o.LostFrees++
		o.end(old)
	}
	o.Allocs++
	o.live = append(o.live, &oracleBlock{row: r, refs: 1})
}

func (o *oracle) free(r *format.Row) {
	b := o.find(r.Pid, r.MemoryKind, r.Ptr)
	switch {
	case r.Ptr == 0:
	case b == nil && slices.ContainsFunc(o.foreign, func(f *format.Row) bool { return f.Pid == r.Pid && f.Ptr == r.Ptr }) && class(r.MemoryKind) == "pointer":
	case b == nil || r.MemoryKind == format.MemoryPhysical && b.refs == 0:
		o.Unmatched++
	default:
		b.refs--
		o.settle(b, true)
	}
}

// settle ends physical memory without references and mappings.
func (o *oracle) settle(b *oracleBlock, seen bool) {
	if b.ended || b.refs > 0 || b.maps > 0 {
		return
	}
	o.end(b)
	o.Returned += b.borrows
	if seen && b.borrows == 0 {
		o.Frees++
	}
}

// unmap removes the mappings that overlap a row's range, and returns how many.
func (o *oracle) unmap(r *format.Row, seen bool) int64 {
	var gone []*oracleMap
	o.maps = slices.DeleteFunc(o.maps, func(m *oracleMap) bool {
		touches := m.row.Pid == r.Pid && m.row.Ptr < r.Ptr+r.Bytes && m.row.Ptr+m.row.Bytes > r.Ptr
		if touches {
			gone = append(gone, m)
		}
		return touches
	})
	for _, m := range gone {
		if m.block != nil {
			m.block.maps--
			o.settle(m.block, seen)
		}
	}
	return int64(len(gone))
}

func (o *oracle) borrow(r *format.Row) {
	if r.MemoryKind == format.MemoryPhysical {
		b := o.find(r.Pid, r.MemoryKind, r.Ptr)
		switch {
		case b == nil:
			o.live = append(o.live, &oracleBlock{row: r, refs: 1, borrows: 1})
		case b.borrows == 0:
			b.refs++
			return
		default:
			b.refs++
			b.borrows++
		}
		o.Borrowed++
		return
	}
	o.Borrowed++
	for _, l := range o.lent {
		if l.row.Pid == r.Pid && l.row.MemoryKind == r.MemoryKind && l.row.Ptr == r.Ptr {
			l.times++
			return
		}
	}
	o.lent = append(o.lent, &oracleLoan{r, 1})
}
