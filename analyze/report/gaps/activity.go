package gaps

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// gapActivity has the CUDA calls of one thread during an idle gap. The thread's launch ended the
// gap.
type gapActivity struct {
	ByCall  map[calls.CallName]int64 // time in the gap by function, ns, without nested calls
	Longest calls.Call               // call with the longest time in the gap, without its strings
	mostNs  int64                    // time of Longest in the gap, ns
	Site    string                   // call site of Longest
}

// TimeInCUDA returns the time in the gap that the thread spent in CUDA calls, ns.
func (a *gapActivity) TimeInCUDA() (ns int64) {
	for _, n := range a.ByCall {
		ns += n
	}
	return ns
}

// threadGaps has the idle gaps that launches of one thread ended.
type threadGaps struct {
	gaps        []*Gap  // sorted by FromNs
	latestEndNs []int64 // latestEndNs[i] is the latest end of gaps[:i+1], Unix ns
}

// FindCPUActivity sets Activity of each gap in List from the calls of the thread whose launch ended
// it.
func (sc *Scan) FindCPUActivity() error {
	watches := make(map[origin.Thread]*threadGaps)
	span := query.Window{FromNs: 1<<63 - 1, ToNs: 0}
	for i := range sc.List {
		g := &sc.List[i]
		g.Activity.ByCall = make(map[calls.CallName]int64)
		th := g.EndedBy.Thread()
		if watches[th] == nil {
			watches[th] = new(threadGaps)
		}
		watches[th].gaps = append(watches[th].gaps, g)
		span = query.Window{FromNs: min(span.FromNs, g.FromNs), ToNs: max(span.ToNs, g.ToNs)}
	}
	for _, w := range watches {
		w.sortGaps()
	}
	for _, spans := range [][]timeline.Span{sc.T.Calls, sc.T.Memory} {
		for _, s := range spans {
			if len(sc.List) == 0 || s.FirstNs > span.ToNs {
				continue
			}
			sc.readRowGroup(s.Group, watches, mergeGapTimes(sc.List))
			if err := s.Group.Err(); err != nil {
				return sc.T.WrapReadError(err)
			}
		}
	}
	return nil
}

// sortGaps sorts the gaps and fills latestEndNs.
func (t *threadGaps) sortGaps() {
	slices.SortFunc(t.gaps, func(a, b *Gap) int {
		return cmp.Or(cmp.Compare(a.FromNs, b.FromNs), a.compareLength(b))
	})
	latest := int64(0)
	for _, g := range t.gaps {
		latest = max(latest, g.ToNs)
		t.latestEndNs = append(t.latestEndNs, latest)
	}
}

// mergeGapTimes returns the union of the gaps' times as sorted intervals without overlaps.
func mergeGapTimes(list []Gap) []query.Window {
	var times []query.Window
	for _, g := range list {
		times = append(times, query.Window{FromNs: g.FromNs, ToNs: g.ToNs})
	}
	slices.SortFunc(times, func(a, b query.Window) int { return cmp.Compare(a.FromNs, b.FromNs) })
	joined := times[:1]
	for _, w := range times[1:] {
		if last := &joined[len(joined)-1]; w.FromNs <= last.ToNs {
			last.ToNs = max(last.ToNs, w.ToNs)
		} else {
			joined = append(joined, w)
		}
	}
	return joined
}

// readRowGroup adds the calls of a row group that overlap a gap. It reads more columns than the
// times only if there are such calls.
func (sc *Scan) readRowGroup(g *format.Group, watches map[origin.Thread]*threadGaps, times []query.Window) {
	sc.Start, sc.Dur = g.Int64("start_ns", sc.Start), g.Int64("dur_ns", sc.Dur)
	var hits []int
	next := 0 // index of times; calls are nearly sorted
	for i, start := range sc.Start {
		for next > 0 && times[next-1].ToNs > start {
			next--
		}
		for next < len(times) && times[next].ToNs <= start {
			next++
		}
		if next < len(times) && times[next].FromNs < units.EndOfRange(start, sc.Dur[i]) {
			hits = append(hits, i)
		}
	}
	if len(hits) == 0 {
		return
	}
	sc.Kind, sc.Name, sc.Flags = g.StringsInto(
		"kind",
		sc.Kind,
	), g.StringsInto(
		"name",
		sc.Name,
	), g.Int32(
		"flags",
		sc.Flags,
	)
	sc.Pid, sc.Tid, sc.Parent = g.Int32(
		"pid",
		sc.Pid,
	), g.Int32(
		"tid",
		sc.Tid,
	), sc.T.DriverParents(
		g.Int64("parent_start_ns", sc.Parent),
	)
	sc.Sites.ReadGroup(g)
	if g.Err() != nil {
		return
	}
	for _, i := range hits {
		w := watches[origin.Thread{Pid: sc.Pid[i], Tid: sc.Tid[i]}]
		if w == nil || sc.Parent[i] != 0 || sc.Flags[i]&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
			continue
		}
		end := units.EndOfRange(sc.Start[i], sc.Dur[i])
		last := sort.Search(len(w.gaps), func(k int) bool { return w.gaps[k].FromNs >= end }) - 1
		for k := last; k >= 0 && w.latestEndNs[k] > sc.Start[i]; k-- {
			if w.gaps[k].ToNs > sc.Start[i] {
				sc.addCallToGap(w.gaps[k], i, end)
			}
		}
	}
}

// addCallToGap adds row i, a call that ends at endNs (Unix ns), to the activity in gap g.
func (sc *Scan) addCallToGap(g *Gap, i int, endNs int64) {
	a := &g.Activity
	ns := min(endNs, g.ToNs) - max(sc.Start[i], g.FromNs)
	a.ByCall[calls.CallName{Kind: sc.Kind.At(i), Name: sc.Name.At(i)}] += ns
	if ns > a.mostNs || ns == a.mostNs && sc.Start[i] < a.Longest.StartNs {
		a.mostNs, a.Longest = ns, calls.Call{StartNs: sc.Start[i], EndNs: endNs, Stack: sc.Sites.Stack[i]}
		a.Site = sc.Names.List[sc.Sites.SiteOfRow(i)]
	}
}
