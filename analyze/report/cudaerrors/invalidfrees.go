package cudaerrors

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

var InvalidFreeColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "failed frees that began in the window, with this verdict and these sites"},
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: "double free: freed before, and not allocated again since; inside a block: behind the start of a live block; " +
		"wrong function: the memory is live, and another function frees it; freed with its context: the context ended first; " +
		"unknown pointer: no recorded call returned it"},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "function of the CUDA driver that failed"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "size of the block of the first call; absent if its allocation is not recorded"},
	{Key: "memory_kind", Title: "", Unit: report.UnitText, About: "kind of memory of that block"},
	{Key: "first_ns", Title: "FIRST", Unit: report.UnitNs, About: "entry of the first call, from the recording's start"},
	{Key: "last_ns", Title: "", Unit: report.UnitNs, About: "entry of the last one"},
	{Key: "address", Title: "", Unit: report.UnitText, About: "pointer or handle of the first call"},
	{Key: "offset_bytes", Title: "", Unit: report.UnitBytes, About: "inside a block: the address's distance from the block's start"},
	{Key: "allocated_ns", Title: "", Unit: report.UnitNs, About: "return of the allocation of that block, from the recording's start"},
	{Key: "allocated_tid", Title: "", Unit: report.UnitID, About: "thread of the allocation"},
	{Key: "freed_ns", Title: "", Unit: report.UnitNs, About: "double free: entry of the call that freed it before; freed with its context: end of the context"},
	{Key: "freed_tid", Title: "", Unit: report.UnitID, About: "thread of that call"},
	{Key: "freed_name", Title: "", Unit: report.UnitText, About: "function of that call"},
	{Key: "right_function", Title: "", Unit: report.UnitText, About: "wrong function: the function that frees this memory"},
	{Key: "result", Title: "", Unit: report.UnitID, About: "the CUresult"},
	{Key: "result_name", Title: "", Unit: report.UnitText, About: "its name in CUDA's headers"},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "high, medium or low"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "what lowers it: lost calls, damaged segments, a recording that began after the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process of the first call"},
	{Key: "tid", Title: "", Unit: report.UnitID, About: "thread of the first call"},
	{Key: "allocated_site", Title: "ALLOCATED AT", Unit: report.UnitText, About: "allocation site of the block"},
	{Key: "freed_site", Title: "FREED AT", Unit: report.UnitText, About: "site of the free before"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "site of the failed free"},
}

// InvalidFree are failed frees with the same verdict and sites. fault.FailedFree and fault.FreedMemory are
// those of the first one.
type InvalidFree struct {
	fault.FailedFree
	fault.FreedMemory
	Calls, LastNs        int64
	AllocatedAt, FreedAt string // sites, "" if not known
	Level                string // confidence
	Reasons              []string
	fromStart            bool // the process is recorded from its first call
}

// InvalidFrees classifies the failed frees among failed calls, and groups those that are the
// program's fault: the worst verdict first, then by calls.
func InvalidFrees(t *timeline.Timeline, u *ErrorUse, q *report.Quality) ([]InvalidFree, error) {
	found, err := fault.ClassifyFrees(t, u.frees.List)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	type key struct {
		verdict                     fault.FreeVerdict
		allocatedAt, freedAt, right string
		name, site, result          int32
	}
	groups := make(map[key]int)
	var list []InvalidFree
	for i := range found {
		f := InvalidFree{FailedFree: u.frees.List[i], FreedMemory: found[i], Calls: 1}
		if f.Verdict == fault.FreeRefused {
			continue
		}
		f.LastNs = f.StartNs
		if f.Allocated {
			f.AllocatedAt = t.SiteLabel(f.Block.Origin)
		}
		if f.By != origin.None {
			f.FreedAt = t.SiteLabel(f.By)
		}
		k := key{f.Verdict, f.AllocatedAt, f.FreedAt, f.Right, f.Name, f.Site, f.Result}
		at, ok := groups[k]
		if !ok {
			groups[k] = len(list)
			list = append(list, f)
			continue
		}
		list[at].Calls++
		list[at].LastNs = max(list[at].LastNs, f.StartNs)
	}
	started, err := recordedFromStart(t)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].fromStart = started[list[i].Pid]
		list[i].trust(q)
	}
	slices.SortStableFunc(list, func(a, b InvalidFree) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(b.Calls, a.Calls))
	})
	return list, nil
}

// recordedFromStart returns the processes that are recorded from their first call on.
func recordedFromStart(t *timeline.Timeline) (map[int32]bool, error) {
	started := make(map[int32]bool)
	var name format.Strings
	var pid []int32
	for _, s := range t.Calls {
		name = s.Group.StringsInto("name", name)
		if first := slices.Index(name.Dict, "cuInit"); first >= 0 {
			pid = s.Group.Int32("pid", pid)
			for i := range pid {
				if int(name.Index[i]) == first {
					started[pid[i]] = true
				}
			}
		}
		if err := s.Group.Err(); err != nil {
			return nil, t.Wrap(err)
		}
	}
	return started, nil
}

// trust sets the confidence.
func (f *InvalidFree) trust(q *report.Quality) {
	f.Level = report.ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if f.Level == report.ConfidenceHigh || to == report.ConfidenceLow {
			f.Level = to
		}
		f.Reasons = append(f.Reasons, fmt.Sprintf(format, args...))
	}
	if n := q.LostMemoryEvents; n > 0 {
		to := report.ConfidenceMedium
		if n*1000 > q.Events {
			to = report.ConfidenceLow
		}
		lower(to, "%s calls that allocate or free were lost", units.Count(n))
	}
	if n := q.DamagedSegments; n > 0 {
		lower(report.ConfidenceLow, "%s damaged", units.Plural(n, "segment"))
	}
	if f.Verdict != fault.UnknownPointer {
		return
	}
	if !f.fromStart || q.DroppedEvents > 0 {
		lower(report.ConfidenceLow, "the recording began after the process: the memory may be older")
	}
	if n := q.UnknownAllocs; n > 0 {
		lower(report.ConfidenceMedium, "%s returned a pointer that is not known", units.Plural(n, "allocation"))
	}
}

// Blamed returns the number of invalid frees among the failed calls of each group of ErrorUse.
func Blamed(list []InvalidFree) map[ErrorKey]int64 {
	calls := make(map[ErrorKey]int64)
	for i := range list {
		calls[ErrorKey{list[i].Name, list[i].Site, list[i].Result}] += list[i].Calls
	}
	return calls
}

// countFrees sums up the calls of a verdict, all of them for fault.FreeRefused.
func countFrees(list []InvalidFree, verdict fault.FreeVerdict) (n int64) {
	for i := range list {
		if verdict == fault.FreeRefused || list[i].Verdict == verdict {
			n += list[i].Calls
		}
	}
	return n
}

// evidence says in words what the verdict rests on.
func (f *InvalidFree) evidence(t *timeline.Timeline, name, site string) string {
	at := func(ns int64) string { return units.Duration(ns - t.Recording().FromNs) }
	made := "its allocation is not recorded"
	if f.Allocated {
		made = fmt.Sprintf("%s allocated %s at %s with %s (thread %d)", f.AllocatedAt,
			units.Bytes(f.Block.Bytes), at(f.Block.SinceNs), t.Origins.Name(f.Block.Origin),
			t.Origins.List[f.Block.Origin].Tid)
	}
	call := fmt.Sprintf("%s called %s at %s (thread %d)", site, name, at(f.StartNs), f.Tid)
	var text string
	switch f.Verdict {
	case fault.DoubleFree:
		text = fmt.Sprintf("%s; %s freed it at %s with %s (thread %d); %s, %s later", made, f.FreedAt,
			at(f.AtNs), t.Origins.Name(f.By), t.Origins.List[f.By].Tid, call,
			units.Duration(max(0, f.StartNs-f.AtNs)))
	case fault.InsideBlock:
		text = fmt.Sprintf("%s; %s with an address %s behind its start; the block stays allocated",
			made, call, units.Bytes(f.Offset))
	case fault.WrongFunction:
		text = fmt.Sprintf("%s; %s; free it with %s: it stays allocated until then",
			made, call, f.Right)
	case fault.ContextEnded:
		text = fmt.Sprintf("%s; its context ended at %s and freed it; %s", made, at(f.AtNs), call)
	case fault.UnknownPointer:
		text = fmt.Sprintf("%s; no recorded call of the process returned this address: %s",
			call, f.mayBe())
	}
	if f.Calls > 1 {
		text += fmt.Sprintf("; the first of %s", units.Plural(f.Calls, "call"))
	}
	return text + "; " + report.ConfidenceText(f.Level, f.Reasons)
}

// mayBe says what an unknown pointer can be.
func (f *InvalidFree) mayBe() string {
	if f.Level == report.ConfidenceHigh {
		return "it is of another process or of no allocation of CUDA"
	}
	return "it was allocated before the recording, or never"
}

// invalidFreeTable has a row per group.
func invalidFreeTable(t *timeline.Timeline, u *ErrorUse, list []InvalidFree, opt *query.Options) report.Table {
	table := report.Table{
		Name: "invalid_frees", Title: "invalid frees: what failed frees are about",
		Columns: InvalidFreeColumns, Aside: true,
		Keys:  []string{"verdict", "name", "allocated_site", "freed_site", "site"},
		Spare: []string{"pid", "confidence", "first_ns", "bytes", "allocated_site"},
	}
	since := func(ns int64) int64 { return ns - t.Recording().FromNs }
	for i := range list {
		f := &list[i]
		name, site := u.Names.List[f.Name], u.Names.List[f.Site]
		var bytes, memory, offset, allocatedNs, allocatedTid, freedNs, freedTid, freedName any
		if f.Allocated {
			o := &t.Origins.List[f.Block.Origin]
			memory = units.Known(t.Origins.Memory(f.Block.Origin))
			allocatedNs, allocatedTid = since(f.Block.SinceNs), int64(o.Tid)
			if f.Block.Bytes > 0 {
				bytes = f.Block.Bytes
			}
		}
		if f.Verdict == fault.InsideBlock {
			offset = f.Offset
		}
		if f.AtNs > 0 {
			freedNs = since(f.AtNs)
		}
		if f.By != origin.None {
			freedTid, freedName = int64(t.Origins.List[f.By].Tid), t.Origins.Name(f.By)
		}
		row := table.Add(report.Values{
			"calls":              f.Calls,
			"verdict":            f.Verdict.String(),
			"name":               name,
			"bytes":              bytes,
			"memory_kind":        memory,
			"first_ns":           since(f.StartNs),
			"last_ns":            since(f.LastNs),
			"address":            fmt.Sprintf("0x%x", uint64(f.Ptr)),
			"offset_bytes":       offset,
			"allocated_ns":       allocatedNs,
			"allocated_tid":      allocatedTid,
			"freed_ns":           freedNs,
			"freed_tid":          freedTid,
			"freed_name":         freedName,
			"right_function":     units.Known(f.Right),
			"result":             int64(f.Result),
			"result_name":        catalog.ResultName(f.Result),
			"confidence":         f.Level,
			"confidence_reasons": f.Reasons,
			"pid":                int64(f.Pid),
			"tid":                int64(f.Tid),
			"allocated_site":     units.Known(f.AllocatedAt),
			"freed_site":         units.Known(f.FreedAt),
			"site":               site,
		})
		row.StackID, row.Evidence = f.Stack, f.evidence(t, name, site)
	}
	if opt.Top > 0 && len(table.Rows) > opt.Top {
		table.More, table.Rows = len(table.Rows)-opt.Top, table.Rows[:opt.Top]
	}
	frames.Fill(t, &table, opt)
	return table
}
