package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// gapActivity is what the thread that ended a gap did in it.
type gapActivity struct {
	byCall  map[calls.Name]int64 // ns inside of the gap, calls inside of others left out
	longest calls.Call           // of these calls, without strings
	mostNs  int64                // of longest, inside of the gap
	site    string               // of longest
}

// inCUDA is how much of the gap the thread was inside of calls.
func (a *gapActivity) inCUDA() (ns int64) {
	for _, n := range a.byCall {
		ns += n
	}
	return ns
}

// gapWatch are the gaps that one thread ended.
type gapWatch struct {
	gaps []*launchGap // in order of fromNs
	// until is the latest end of the gaps up to each.
	until []int64
}

// watch looks at the calls of the threads in the gaps that are told.
func (u *gapUse) watch() error {
	watches := make(map[origin.Thread]*gapWatch)
	whole := query.Window{FromNs: 1<<63 - 1, ToNs: 0}
	for i := range u.list {
		g := &u.list[i]
		g.doing.byCall = make(map[calls.Name]int64)
		th := g.ended.Thread()
		if watches[th] == nil {
			watches[th] = new(gapWatch)
		}
		watches[th].gaps = append(watches[th].gaps, g)
		whole = query.Window{FromNs: min(whole.FromNs, g.fromNs), ToNs: max(whole.ToNs, g.toNs)}
	}
	for _, w := range watches {
		slices.SortFunc(w.gaps, func(a, b *launchGap) int { return cmp.Or(cmp.Compare(a.fromNs, b.fromNs), a.longer(b)) })
		latest := int64(0)
		for _, g := range w.gaps {
			latest = max(latest, g.toNs)
			w.until = append(w.until, latest)
		}
	}
	for _, spans := range [][]timeline.Span{u.T.Calls, u.T.Memory} {
		for _, s := range spans {
			if len(u.list) == 0 || s.FirstNs > whole.ToNs {
				continue
			}
			u.watchGroup(s.Group, watches, gapTimes(u.list))
			if err := s.Group.Err(); err != nil {
				return u.T.Wrap(err)
			}
		}
	}
	return nil
}

// gapTimes joins gaps to the stretches of time that any of them covers, in order.
func gapTimes(list []launchGap) []query.Window {
	var times []query.Window
	for _, g := range list {
		times = append(times, query.Window{FromNs: g.fromNs, ToNs: g.toNs})
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

// watchGroup reads when calls were, and the rest where some were in a gap.
func (u *gapUse) watchGroup(g *format.Group, watches map[origin.Thread]*gapWatch, times []query.Window) {
	u.Start, u.Dur = g.Int64("start_ns", u.Start), g.Int64("dur_ns", u.Dur)
	var hits []int
	next := 0 // of times; calls are nearly in order
	for i, start := range u.Start {
		for next > 0 && times[next-1].ToNs > start {
			next--
		}
		for next < len(times) && times[next].ToNs <= start {
			next++
		}
		if next < len(times) && times[next].FromNs < units.EndOf(start, u.Dur[i]) {
			hits = append(hits, i)
		}
	}
	if len(hits) == 0 {
		return
	}
	u.Kind, u.Name, u.Flags = g.StringsInto("kind", u.Kind), g.StringsInto("name", u.Name), g.Int32("flags", u.Flags)
	u.Pid, u.Tid, u.Parent = g.Int32("pid", u.Pid), g.Int32("tid", u.Tid), g.Int64("parent_start_ns", u.Parent)
	u.Sites.Read(g)
	if g.Err() != nil {
		return
	}
	for _, i := range hits {
		w := watches[origin.Thread{Pid: u.Pid[i], Tid: u.Tid[i]}]
		if w == nil || u.Parent[i] != 0 || u.Flags[i]&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
			continue
		}
		end := units.EndOf(u.Start[i], u.Dur[i])
		for k := sort.Search(len(w.gaps), func(k int) bool { return w.gaps[k].fromNs >= end }) - 1; k >= 0 && w.until[k] > u.Start[i]; k-- {
			if w.gaps[k].toNs > u.Start[i] {
				u.note(w.gaps[k], i, end)
			}
		}
	}
}

// note adds row i, a call that ends at endNs, to what was done in a gap.
func (u *gapUse) note(g *launchGap, i int, endNs int64) {
	a := &g.doing
	ns := min(endNs, g.toNs) - max(u.Start[i], g.fromNs)
	a.byCall[calls.Name{Kind: u.Kind.At(i), Name: u.Name.At(i)}] += ns
	if ns > a.mostNs || ns == a.mostNs && u.Start[i] < a.longest.StartNs {
		a.mostNs, a.longest = ns, calls.Call{StartNs: u.Start[i], EndNs: endNs, Stack: u.Sites.Stack[i]}
		a.site = u.Names.List[u.Sites.At(i)]
	}
}

// outsideCUDA is what a thread does that is in no call of the driver.
const outsideCUDA = "outside CUDA"

// most returns what took the largest part of a gap: a call, or what is in none.
func (g *launchGap) most() (what string, ns int64) {
	what, ns = outsideCUDA, max(0, g.durNs()-g.doing.inCUDA())
	keys := slices.SortedFunc(maps.Keys(g.doing.byCall), func(a, b calls.Name) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	for _, k := range keys {
		if n := g.doing.byCall[k]; n > ns {
			what, ns = k.Name, n
		}
	}
	return what, ns
}

// inKind is how much of a gap the thread was in calls of kinds.
func (g *launchGap) inKind(kinds ...string) (ns int64) {
	for k, n := range g.doing.byCall {
		if slices.Contains(kinds, k.Kind) {
			ns += n
		}
	}
	return ns
}

var gapColumns = []Column{
	{"dur_ns", "GAP", UnitNs, "length of the gap"},
	{"at_ns", "AT", UnitNs, "when it began, from the recording's start"},
	{"pid", "PID", UnitID, "process"},
	{"device", "DEVICE", UnitText, "CUDA device without launches; all: none of several had any"},
	{"tid", "TID", UnitID, "thread that made the launch that ended the gap: DOING is about it"},
	{"doing_pct", "OF IT%", UnitPercent, "share of DOING in the gap"},
	{"waiting_ns", "", UnitNs, "time of the thread in synchronizations, in the gap"},
	{"copying_ns", "", UnitNs, "in copies and fills"},
	{"memory_ns", "", UnitNs, "in calls that allocate, free or map memory"},
	{"other_cuda_ns", "", UnitNs, "in other calls of the driver"},
	{"outside_ns", "", UnitNs, "in none"},
	{"gpu", "GPU", UnitText, "idle: the GPU was busy for at most 5% of the gap, by samples that cover at least half of it; busy: at least 50%; partly; unsure: the samples reach too far beyond the gap; absent where samples do not tell. Busy can be earlier work of the process, or another process"},
	{"gpu_busy_min_pct", "", UnitPercent, "least that the GPU can have been busy in the gap, given gpm_sm_active_percent: a sample is an average of half a second, of which a part may lie outside of the gap; without GPM, the mean of gpu_utilization_percent of samples whose second lies in the gap"},
	{"gpu_busy_max_pct", "", UnitPercent, "most that it can have been busy"},
	{"call_site", "", UnitText, "place in the program of the longest call in the gap"},
	{"ended_by", "ENDED BY", UnitText, "kernel, or call, that was launched at its end"},
	{"ended_site", "LAUNCHED AT", UnitText, "place in the program of that launch"},
	{"doing", "DOING", UnitText, "what the thread did most of the gap: a function of the CUDA driver, or outside CUDA (Python, data loading, anything)"},
}

// gapStacks is of how many of the gaps text shows the stack.
const gapStacks = 3

// gapTable lists the longest gaps.
func (u *gapUse) gapTable() Table {
	table := Table{Name: "gaps", Title: "longest gaps", Columns: slices.Clone(gapColumns), Spare: []string{"tid", "pid", "device", "doing_pct"}}
	sampled := false
	for i := range u.list {
		row := u.gapRow(&u.list[i])
		row.Brief = i >= gapStacks
		table.Rows = append(table.Rows, row)
		sampled = sampled || row.Cells[11] != nil
	}
	if !sampled {
		hide(table.Columns, "gpu")
	}
	addRanks(u.T, &table)
	return table
}

func (u *gapUse) gapRow(g *launchGap) Row {
	what, ns := g.most()
	waiting := g.inKind(format.KindSync)
	copying := g.inKind(format.KindMemcpy, format.KindMemset)
	other := g.inKind(format.KindAPI, format.KindLaunch)
	inside := g.doing.inCUDA()
	ended := cmp.Or(u.Names.List[g.ended.Kernel], u.Names.List[g.ended.Name])
	evidence := fmt.Sprintf("thread %s was %s for %s of it", u.T.ThreadLabel(g.ended.Thread()), where(what), units.Duration(ns))
	stack := g.ended.Stack
	if what != outsideCUDA {
		stack = g.doing.longest.Stack
		evidence += ", called from"
	} else {
		evidence += "; the launch that ended it came from"
	}
	var gpu, busyMin, busyMax any
	if b := g.busy; b.ok {
		gpu, busyMin, busyMax = b.word(), b.minPct, b.maxPct
	}
	return Row{stack: stack, Evidence: evidence, Cells: []any{g.durNs(), g.fromNs - u.T.Recording().FromNs, int64(g.track.pid), u.trackDevice(g.track), int64(g.ended.Tid),
		units.Percent(ns, g.durNs()), waiting, copying, inside - waiting - copying - other, other, max(0, g.durNs()-inside), gpu, busyMin, busyMax,
		units.Known(g.doing.site), ended, u.Names.List[g.ended.Site], what}}
}

// where is what a thread did, as part of a sentence.
func where(what string) string {
	if what == outsideCUDA {
		return what
	}
	return "in " + what
}
