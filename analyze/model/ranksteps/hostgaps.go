package ranksteps

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// HostTimes says where the host of a process was in a span of time.
type HostTimes struct {
	// Gaps are the times without a call of the process, by the call site before.
	Gaps map[string]*HostGap
	// Snapshot says what a thread of the process did at its last snapshot, "" if there is none. SnapshotNs is the
	// time, Unix ns.
	Snapshot   string
	SnapshotNs int64
}

// HostGap sums up the times between a call and the next one.
type HostGap struct {
	Call string  // function before, such as cuStreamSynchronize, or a collective on the host
	Ns   float64 // of all gaps
	// Lines are the causes and lines of that time, the longest first. It is nil if the recording has no host times.
	Lines []HostLine
	spans []gapSpan
}

// HostLine is a part of a gap.
type HostLine struct {
	Cause hosttime.Cause
	Site  string  // "" if it is unknown
	Ns    float64 // of all gaps
}

// gapSpan is one gap. tid is the thread that ended it.
type gapSpan struct {
	interval
	tid int32
}

// Limits of HostTimes.
const (
	leastGapNs  = 20_000  // shorter gaps are not summed up
	maxGapCalls = 1 << 22 // calls of a process that are kept; later ones are left out
	maxGapSpans = 4096    // gaps of a site whose lines are looked up
)

// gapCall is a call of a process.
type gapCall struct {
	interval
	stack, tid, name int32
}

// ReadHostTimes says where the host of a process was from a time to a time, Unix ns. It returns errors of reading
// the recording.
func ReadHostTimes(t *timeline.Timeline, pid int32, fromNs, toNs int64) (*HostTimes, error) {
	r := gapReader{pid: pid, window: interval{fromNs, toNs}}
	for _, s := range t.Calls {
		r.addGroup(s.Group)
		if err := s.Group.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	if err := r.addCollectiveWaits(t); err != nil {
		return nil, err
	}
	h := &HostTimes{Gaps: r.gaps(t)}
	if hosttime.HasTimes(t) {
		if err := h.addLines(t, pid); err != nil {
			return nil, err
		}
	}
	return h, h.addSnapshot(t, pid, fromNs, toNs)
}

// gapReader reads the calls of a process.
type gapReader struct {
	pid    int32
	window interval
	calls  []gapCall
	names  origin.StringNumbers
}

// addGroup adds the calls of a row group.
func (r *gapReader) addGroup(g *format.Group) {
	name, start := g.Strings("name"), g.Int64("start_ns", nil)
	dur, parent := g.Int64("dur_ns", nil), g.Int64("parent_start_ns", nil)
	pid, tid, stack := g.Int32("pid", nil), g.Int32("tid", nil), g.Int32("stack_id", nil)
	if g.Err() != nil {
		return
	}
	names := r.names.NumbersOf(name.Dict)
	for i, at := range start {
		if pid[i] != r.pid || parent[i] != 0 || at < r.window.fromNs || at > r.window.toNs ||
			len(r.calls) >= maxGapCalls {
			continue
		}
		r.calls = append(r.calls, gapCall{interval{at, at + max(0, dur[i])}, stack[i], tid[i], names[name.Index[i]]})
	}
}

// addCollectiveWaits adds the waits for other ranks on the host as calls: their time is not the host's own.
func (r *gapReader) addCollectiveWaits(t *timeline.Timeline) error {
	return eachCollectiveWait(t, func(w *hosttime.Wait, name string) {
		if w.Pid == r.pid && w.FromNs >= r.window.fromNs && w.FromNs <= r.window.toNs && len(r.calls) < maxGapCalls {
			r.calls = append(r.calls, gapCall{interval{w.FromNs, w.ToNs}, w.Stack, w.Tid, r.names.NumberOf(name)})
		}
	})
}

// gaps returns the gaps between the calls.
func (r *gapReader) gaps(t *timeline.Timeline) map[string]*HostGap {
	slices.SortFunc(r.calls, func(a, b gapCall) int { return cmp.Compare(a.fromNs, b.fromNs) })
	list, sites := make(map[string]*HostGap), make(map[int32]string)
	var last *gapCall
	for i := range r.calls {
		c := &r.calls[i]
		if last != nil && c.fromNs-last.toNs >= leastGapNs {
			site, ok := sites[last.stack]
			if !ok {
				site = t.SiteOfStack(last.stack)
				sites[last.stack] = site
			}
			gap := list[site]
			if gap == nil {
				gap = &HostGap{Call: catalog.BaseFunctionName(r.names.List[last.name])}
				list[site] = gap
			}
			gap.Ns += float64(c.fromNs - last.toNs)
			if len(gap.spans) < maxGapSpans {
				gap.spans = append(gap.spans, gapSpan{interval{last.toNs, c.fromNs}, c.tid})
			}
		}
		if last == nil || c.toNs > last.toNs {
			last = c
		}
	}
	return list
}

// addLines divides the gaps by what their threads did.
func (h *HostTimes) addLines(t *timeline.Timeline, pid int32) error {
	history, err := hosttime.Of(t)
	if err != nil {
		return err
	}
	for _, site := range slices.Sorted(maps.Keys(h.Gaps)) {
		gap := h.Gaps[site]
		b := hosttime.NewBreakdown(history, t.SiteOfStack)
		spans := 0.0
		for _, s := range gap.spans {
			b.Add(0, origin.Thread{Pid: pid, Tid: s.tid}, s.fromNs, s.toNs, 1)
			spans += float64(s.toNs - s.fromNs)
		}
		for _, e := range b.Finish() {
			line := HostLine{Cause: e.Cause, Ns: e.Ns * gap.Ns / max(1, spans)}
			if e.Stack != 0 {
				line.Site = t.SiteOfStack(e.Stack)
			}
			gap.Lines = append(gap.Lines, line)
		}
	}
	return history.Err()
}

// addSnapshot adds what the most important thread did in the last snapshot of the process within the time.
func (h *HostTimes) addSnapshot(t *timeline.Timeline, pid int32, fromNs, toNs int64) error {
	const afterNs = 1_000_000_000 // the recorder takes snapshots at the end of the recording
	snapshots, err := threadstate.Read(t, toNs+afterNs)
	if err != nil {
		return err
	}
	for _, snapshot := range slices.Backward(snapshots[pid]) {
		main := snapshot.Main(pid)
		if snapshot.AtNs < fromNs || main == nil || main.Site() == "" {
			continue
		}
		h.Snapshot, h.SnapshotNs = snapshot.Why(main)+", at "+main.Site(), snapshot.AtNs
		return nil
	}
	return nil
}

// Latest returns the site whose gaps are longest compared with those of another process, and by how much a step, ns.
// steps and othersSteps are the steps in the spans of time.
func (h *HostTimes) Latest(others *HostTimes, steps, othersSteps int) (site string, ns float64) {
	for _, s := range slices.Sorted(maps.Keys(h.Gaps)) {
		more := h.Gaps[s].Ns/float64(max(1, steps)) - others.PerStep(s, othersSteps)
		if more > ns {
			site, ns = s, more
		}
	}
	return site, ns
}

// PerStep returns the time of the gaps after a site, ns a step. others may be nil.
func (h *HostTimes) PerStep(site string, steps int) float64 {
	if h == nil || h.Gaps[site] == nil {
		return 0
	}
	return h.Gaps[site].Ns / float64(max(1, steps))
}
