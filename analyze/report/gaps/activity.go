package gaps

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
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// activity is what the thread that ended a gap did in it.
type activity struct {
	ByCall  map[calls.Name]int64 // ns inside of the gap, calls inside of others left out
	Longest calls.Call           // of these calls, without strings
	mostNs  int64                // of longest, inside of the gap
	Site    string               // of longest
}

// InCUDA is how much of the gap the thread was inside of calls.
func (a *activity) InCUDA() (ns int64) {
	for _, n := range a.ByCall {
		ns += n
	}
	return ns
}

// gapWatch are the gaps that one thread ended.
type gapWatch struct {
	gaps []*Gap // in order of fromNs
	// until is the latest end of the gaps up to each.
	until []int64
}

// FindCPUActivity looks at the calls of the threads in the gaps that are told.
func (sc *Scan) FindCPUActivity() error {
	watches := make(map[origin.Thread]*gapWatch)
	whole := query.Window{FromNs: 1<<63 - 1, ToNs: 0}
	for i := range sc.List {
		g := &sc.List[i]
		g.Doing.ByCall = make(map[calls.Name]int64)
		th := g.Ended.Thread()
		if watches[th] == nil {
			watches[th] = new(gapWatch)
		}
		watches[th].gaps = append(watches[th].gaps, g)
		whole = query.Window{FromNs: min(whole.FromNs, g.FromNs), ToNs: max(whole.ToNs, g.ToNs)}
	}
	for _, w := range watches {
		slices.SortFunc(w.gaps, func(a, b *Gap) int { return cmp.Or(cmp.Compare(a.FromNs, b.FromNs), a.longer(b)) })
		latest := int64(0)
		for _, g := range w.gaps {
			latest = max(latest, g.ToNs)
			w.until = append(w.until, latest)
		}
	}
	for _, spans := range [][]timeline.Span{sc.T.Calls, sc.T.Memory} {
		for _, s := range spans {
			if len(sc.List) == 0 || s.FirstNs > whole.ToNs {
				continue
			}
			sc.readGroup(s.Group, watches, gapTimes(sc.List))
			if err := s.Group.Err(); err != nil {
				return sc.T.Wrap(err)
			}
		}
	}
	return nil
}

// gapTimes joins gaps to the stretches of time that any of them covers, in order.
func gapTimes(list []Gap) []query.Window {
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

// readGroup reads when calls were, and the rest where some were in a gap.
func (sc *Scan) readGroup(g *format.Group, watches map[origin.Thread]*gapWatch, times []query.Window) {
	sc.Start, sc.Dur = g.Int64("start_ns", sc.Start), g.Int64("dur_ns", sc.Dur)
	var hits []int
	next := 0 // of times; calls are nearly in order
	for i, start := range sc.Start {
		for next > 0 && times[next-1].ToNs > start {
			next--
		}
		for next < len(times) && times[next].ToNs <= start {
			next++
		}
		if next < len(times) && times[next].FromNs < units.EndOf(start, sc.Dur[i]) {
			hits = append(hits, i)
		}
	}
	if len(hits) == 0 {
		return
	}
	sc.Kind, sc.Name, sc.Flags = g.StringsInto("kind", sc.Kind), g.StringsInto("name", sc.Name), g.Int32("flags", sc.Flags)
	sc.Pid, sc.Tid, sc.Parent = g.Int32("pid", sc.Pid), g.Int32("tid", sc.Tid), g.Int64("parent_start_ns", sc.Parent)
	sc.Sites.Read(g)
	if g.Err() != nil {
		return
	}
	for _, i := range hits {
		w := watches[origin.Thread{Pid: sc.Pid[i], Tid: sc.Tid[i]}]
		if w == nil || sc.Parent[i] != 0 || sc.Flags[i]&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
			continue
		}
		end := units.EndOf(sc.Start[i], sc.Dur[i])
		for k := sort.Search(len(w.gaps), func(k int) bool { return w.gaps[k].FromNs >= end }) - 1; k >= 0 && w.until[k] > sc.Start[i]; k-- {
			if w.gaps[k].ToNs > sc.Start[i] {
				sc.note(w.gaps[k], i, end)
			}
		}
	}
}

// note adds row i, a call that ends at endNs, to what was done in a gap.
func (sc *Scan) note(g *Gap, i int, endNs int64) {
	a := &g.Doing
	ns := min(endNs, g.ToNs) - max(sc.Start[i], g.FromNs)
	a.ByCall[calls.Name{Kind: sc.Kind.At(i), Name: sc.Name.At(i)}] += ns
	if ns > a.mostNs || ns == a.mostNs && sc.Start[i] < a.Longest.StartNs {
		a.mostNs, a.Longest = ns, calls.Call{StartNs: sc.Start[i], EndNs: endNs, Stack: sc.Sites.Stack[i]}
		a.Site = sc.Names.List[sc.Sites.At(i)]
	}
}

// OutsideCUDA is what a thread does that is in no call of the driver.
const OutsideCUDA = "outside CUDA"

// most returns what took the largest part of a gap: a call, or what is in none.
func (g *Gap) most() (what string, ns int64) {
	what, ns = OutsideCUDA, max(0, g.DurNs()-g.Doing.InCUDA())
	keys := slices.SortedFunc(maps.Keys(g.Doing.ByCall), func(a, b calls.Name) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	for _, k := range keys {
		if n := g.Doing.ByCall[k]; n > ns {
			what, ns = k.Name, n
		}
	}
	return what, ns
}

// InKind is how much of a gap the thread was in calls of kinds.
func (g *Gap) InKind(kinds ...string) (ns int64) {
	for k, n := range g.Doing.ByCall {
		if slices.Contains(kinds, k.Kind) {
			ns += n
		}
	}
	return ns
}

var gapColumns = []report.Column{
	{Key: "dur_ns", Title: "GAP", Unit: report.UnitNs, About: "length of the gap"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when it began, from the recording's start"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device without launches; all: none of several had any"},
	{Key: "tid", Title: "TID", Unit: report.UnitID, About: "thread that made the launch that ended the gap: DOING is about it"},
	{Key: "doing_pct", Title: "OF IT%", Unit: report.UnitPercent, About: "share of DOING in the gap"},
	{Key: "waiting_ns", Title: "", Unit: report.UnitNs, About: "time of the thread in synchronizations, in the gap"},
	{Key: "copying_ns", Title: "", Unit: report.UnitNs, About: "in copies and fills"},
	{Key: "memory_ns", Title: "", Unit: report.UnitNs, About: "in calls that allocate, free or map memory"},
	{Key: "other_cuda_ns", Title: "", Unit: report.UnitNs, About: "in other calls of the driver"},
	{Key: "outside_ns", Title: "", Unit: report.UnitNs, About: "in none"},
	{Key: "gpu", Title: "GPU", Unit: report.UnitText, About: "idle: the GPU was busy for at most 5% of the gap, by samples that cover at least half of it; busy: at least 50%; partly; unsure: the samples reach too far beyond the gap; absent where samples do not tell. Busy can be earlier work of the process, or another process"},
	{Key: "gpu_busy_min_pct", Title: "", Unit: report.UnitPercent, About: "least that the GPU can have been busy in the gap, given gpm_sm_active_percent: a sample is an average of half a second, of which a part may lie outside of the gap; without GPM, the mean of gpu_utilization_percent of samples whose second lies in the gap"},
	{Key: "gpu_busy_max_pct", Title: "", Unit: report.UnitPercent, About: "most that it can have been busy"},
	{Key: "call_site", Title: "", Unit: report.UnitText, About: "place in the program of the longest call in the gap"},
	{Key: "ended_by", Title: "ENDED BY", Unit: report.UnitText, About: "kernel, or call, that was launched at its end"},
	{Key: "ended_site", Title: "LAUNCHED AT", Unit: report.UnitText, About: "place in the program of that launch"},
	{Key: "doing", Title: "DOING", Unit: report.UnitText, About: "what the thread did most of the gap: a function of the CUDA driver, or outside CUDA (Python, data loading, anything)"},
}

// gapStacks is of how many of the gaps text shows the stack.
const gapStacks = 3

// gapTable lists the longest gaps.
func (sc *Scan) gapTable() report.Table {
	table := report.Table{Name: "gaps", Title: "longest gaps", Columns: slices.Clone(gapColumns), Spare: []string{"tid", "pid", "device", "doing_pct"}}
	sampled := false
	for i := range sc.List {
		row := sc.gapRow(&sc.List[i])
		row.Brief = i >= gapStacks
		table.Rows = append(table.Rows, row)
		sampled = sampled || row.Cells[11] != nil
	}
	if !sampled {
		report.Hide(table.Columns, "gpu")
	}
	processes.AddRanks(sc.T, &table)
	return table
}

func (sc *Scan) gapRow(g *Gap) report.Row {
	what, ns := g.most()
	waiting := g.InKind(format.KindSync)
	copying := g.InKind(format.KindMemcpy, format.KindMemset)
	other := g.InKind(format.KindAPI, format.KindLaunch)
	inside := g.Doing.InCUDA()
	ended := cmp.Or(sc.Names.List[g.Ended.Kernel], sc.Names.List[g.Ended.Name])
	evidence := fmt.Sprintf("thread %s was %s for %s of it", sc.T.ThreadLabel(g.Ended.Thread()), Where(what), units.Duration(ns))
	stack := g.Ended.Stack
	if what != OutsideCUDA {
		stack = g.Doing.Longest.Stack
		evidence += ", called from"
	} else {
		evidence += "; the launch that ended it came from"
	}
	var gpu, busyMin, busyMax any
	if b := g.Busy; b.Ok {
		gpu, busyMin, busyMax = b.Word(), b.MinPct, b.MaxPct
	}
	return report.Row{StackID: stack, Evidence: evidence, Cells: []any{g.DurNs(), g.FromNs - sc.T.Recording().FromNs, int64(g.Track.Pid), sc.trackDevice(g.Track), int64(g.Ended.Tid),
		units.Percent(ns, g.DurNs()), waiting, copying, inside - waiting - copying - other, other, max(0, g.DurNs()-inside), gpu, busyMin, busyMax,
		units.Known(g.Doing.Site), ended, sc.Names.List[g.Ended.Site], what}}
}

// Where is what a thread did, as part of a sentence.
func Where(what string) string {
	if what == OutsideCUDA {
		return what
	}
	return "in " + what
}
