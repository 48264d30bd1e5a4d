package idle

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// hostActivity sums up the calls of the thread that launched the next operation, from the start of a gap until
// that launch.
type hostActivity struct {
	isKnown   bool
	hasWait   bool
	outsideNs int64 // outside of calls
	longestNs int64 // the longest time outside
	after     int32 // stack of the call before that time
	calls     [4]callTime
	// wait is the call in which the thread was when the gap began, if it waits for the GPU.
	wait      callTime
	waitEndNs int64
}

// callTime is the time in calls of one function. stack is that of the longest one.
type callTime struct {
	name, stack   int32
	ns, longestNs int64
}

// add adds a call. With more functions than places, the shortest is lost.
func (h *hostActivity) add(c *hostCall, ns int64) {
	least := &h.calls[0]
	for i := range h.calls {
		t := &h.calls[i]
		if t.ns > 0 && t.name == c.name {
			t.ns += ns
			if ns > t.longestNs {
				t.longestNs, t.stack = ns, c.stack
			}
			return
		}
		if t.ns < least.ns {
			least = t
		}
	}
	if ns > least.ns {
		*least = callTime{c.name, c.stack, ns, ns}
	}
}

// longest returns the function with the most time.
func (h *hostActivity) longest() callTime {
	return slices.MaxFunc(h.calls[:], func(a, b callTime) int { return cmp.Compare(a.ns, b.ns) })
}

// hostCall is a call of the host. endNs is startNs if the return was not recorded.
type hostCall struct {
	startNs, endNs int64
	pid, tid       int32
	stack, name    int32
	waits          bool
}

func (c *hostCall) startsBefore(o *hostCall) bool {
	if c.startNs != o.startNs {
		return c.startNs < o.startNs
	}
	return cmp.Or(cmp.Compare(c.pid, o.pid), cmp.Compare(c.tid, o.tid), cmp.Compare(c.endNs, o.endNs)) < 0
}

// host follows the threads of a recording in order of time, and explains gaps.
type host struct {
	t       *timeline.Timeline
	rows    *timeline.OrderedRows[hostCall]
	pending []hostCall
	names   origin.StringNumbers
	threads map[origin.Thread]*hostThread
	lastKey origin.Thread // of last, the thread of the last call
	last    *hostThread
	onWait  func(c *hostCall)

	start, dur, parent []int64
	pid, tid, flags    []int32
	stack              []int32
	kind, name         format.Strings
	spare              [][]hostCall
}

// hostThread is a thread at its latest call.
type hostThread struct {
	last hostCall
	gaps []*pendingGap // by the call of the next operation
}

func newHost(t *timeline.Timeline, onWait func(*hostCall)) *host {
	h := &host{t: t.NewView(), threads: make(map[origin.Thread]*hostThread), onWait: onWait}
	spans := slices.Concat(h.t.Calls, h.t.Memory)
	h.rows = timeline.NewOrderedRows(spans, timeline.RowStream[hostCall]{
		Load: func(s timeline.Span) ([]hostCall, error) {
			var list []hostCall
			if n := len(h.spare); n > 0 {
				list, h.spare = h.spare[n-1][:0], h.spare[:n-1]
			}
			return h.readGroup(s.Group, list)
		},
		Release: func(_ timeline.Span, list []hostCall) { h.spare = append(h.spare, list) },
		At:      func(c *hostCall) int64 { return c.startNs },
		Less:    (*hostCall).startsBefore,
	})
	return h
}

// readGroup returns the calls of a row group in the order of their start.
func (h *host) readGroup(g *format.Group, list []hostCall) ([]hostCall, error) {
	h.kind, h.name = g.StringsInto("kind", h.kind), g.StringsInto("name", h.name)
	h.start, h.dur, h.parent = g.Int64(
		"start_ns",
		h.start,
	), g.Int64(
		"dur_ns",
		h.dur,
	), h.t.DriverParents(g.Int64(
		"parent_start_ns",
		h.parent,
	))
	h.pid, h.tid = g.Int32("pid", h.pid), g.Int32("tid", h.tid)
	h.flags, h.stack = g.Int32("flags", h.flags), g.Int32("stack_id", h.stack)
	if g.Err() != nil {
		return list, g.Err()
	}
	names := h.names.NumbersOf(h.name.Dict)
	waits := make([]bool, len(h.kind.Dict))
	for i, kind := range h.kind.Dict {
		waits[i] = kind == format.KindSync || kind == format.KindMemcpy
	}
	for i, start := range h.start {
		if h.parent[i] != 0 || h.flags[i]&format.FlagAbandoned != 0 {
			continue
		}
		c := hostCall{
			startNs: start, endNs: units.EndOfRange(start, max(0, h.dur[i])), pid: h.pid[i], tid: h.tid[i],
			stack: h.stack[i], name: names[h.name.Index[i]], waits: waits[h.kind.Index[i]],
		}
		if h.flags[i]&format.FlagNoReturn != 0 {
			c.endNs = start
		}
		list = append(list, c)
	}
	timeline.SortNearlySorted(list, (*hostCall).startsBefore)
	return list, nil
}

// explain reads the calls up to untilNs, or up to the last gap, and sets the activity of the host in gaps.
// They are in the order of the calls of their next operations.
// Gaps whose call comes before the calls of an earlier explain stay unknown.
func (h *host) explain(gaps []*pendingGap, untilNs int64) error {
	for _, g := range gaps {
		t := h.threadOf(g.next.pid, g.next.tid)
		t.gaps = append(t.gaps, g)
	}
	if len(gaps) > 0 {
		untilNs = gaps[len(gaps)-1].next.callNs
	}
	for {
		for i := range h.pending {
			c := &h.pending[i]
			if c.startNs > untilNs {
				h.pending = h.pending[i:]
				h.forgetGaps()
				return nil
			}
			h.threadOf(c.pid, c.tid).addCall(c)
			if c.waits && c.endNs > c.startNs {
				h.onWait(c)
			}
		}
		next, err := h.rows.NextRows()
		if err != nil || len(next) == 0 {
			h.pending = nil
			h.forgetGaps()
			return h.t.WrapReadError(err)
		}
		h.pending = next
	}
}

// forgetGaps removes the gaps that no call ended.
func (h *host) forgetGaps() {
	for _, t := range h.threads {
		t.gaps = t.gaps[:0]
	}
}

func (h *host) threadOf(pid, tid int32) *hostThread {
	key := origin.Thread{Pid: pid, Tid: tid}
	if h.last != nil && h.lastKey == key {
		return h.last
	}
	t := h.threads[key]
	if t == nil {
		t = new(hostThread)
		h.threads[key] = t
	}
	h.lastKey, h.last = key, t
	return t
}

// addCall adds a call, and the time since the call before it, to the next gap of the thread.
func (t *hostThread) addCall(c *hostCall) {
	for len(t.gaps) > 0 && t.gaps[0].next.callNs < c.startNs {
		t.gaps = t.gaps[1:]
	}
	const most = 4 // devices that a thread launches to at one time
	for _, g := range t.gaps[:min(most, len(t.gaps))] {
		g.host.addOutside(&t.last, c, g)
		g.host.addInside(c, g)
		g.host.isKnown = g.host.isKnown || g.next.callNs == c.startNs
	}
	t.last = *c
}

// addOutside adds the part of a gap between two calls.
func (h *hostActivity) addOutside(last, c *hostCall, g *pendingGap) {
	ns := c.startNs - max(last.endNs, g.FromNs)
	if ns <= 0 {
		return
	}
	h.outsideNs += ns
	if ns > h.longestNs {
		h.longestNs, h.after = ns, last.stack
	}
}

// addInside adds the part of a gap in a call before the launch.
func (h *hostActivity) addInside(c *hostCall, g *pendingGap) {
	fromNs, toNs := max(c.startNs, g.FromNs), min(c.endNs, g.next.callNs)
	const slackNs = 20_000 // the start of the gap is probable
	if c.waits && c.startNs <= g.FromNs && c.endNs > g.FromNs-slackNs && c.startNs < g.next.callNs {
		h.wait, h.waitEndNs = callTime{name: c.name, stack: c.stack}, c.endNs
		h.hasWait = true
	}
	if c.startNs >= g.next.callNs || toNs <= fromNs {
		return
	}
	h.add(c, toNs-fromNs)
}

// hasReturned reports whether the call of an operation is known to have returned long before ns.
func (w *operation) hasReturned(ns int64) bool {
	const latestNs = 20_000
	if w.returnNs == activity.UnknownNs {
		return w.callNs+latestNs < ns
	}
	return w.returnNs+latestNs/2 < ns
}
