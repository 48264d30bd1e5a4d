package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

var invalidFreeColumns = []Column{
	{"calls", "CALLS", UnitCount, "failed frees that began in the window, with this verdict and these sites"},
	{"verdict", "VERDICT", UnitText, "double free: freed before, and not allocated again since; inside a block: behind the start of a live block; " +
		"wrong function: the memory is live, and another function frees it; freed with its context: the context ended first; " +
		"unknown pointer: no recorded call returned it"},
	{"name", "FUNCTION", UnitText, "function of the CUDA driver that failed"},
	{"bytes", "BYTES", UnitBytes, "size of the block of the first call; absent if its allocation is not recorded"},
	{"memory_kind", "", UnitText, "kind of memory of that block"},
	{"first_ns", "FIRST", UnitNs, "entry of the first call, from the recording's start"},
	{"last_ns", "", UnitNs, "entry of the last one"},
	{"address", "", UnitText, "pointer or handle of the first call"},
	{"offset_bytes", "", UnitBytes, "inside a block: the address's distance from the block's start"},
	{"allocated_ns", "", UnitNs, "return of the allocation of that block, from the recording's start"},
	{"allocated_tid", "", UnitID, "thread of the allocation"},
	{"freed_ns", "", UnitNs, "double free: entry of the call that freed it before; freed with its context: end of the context"},
	{"freed_tid", "", UnitID, "thread of that call"},
	{"freed_name", "", UnitText, "function of that call"},
	{"right_function", "", UnitText, "wrong function: the function that frees this memory"},
	{"result", "", UnitID, "the CUresult"},
	{"result_name", "", UnitText, "its name in CUDA's headers"},
	{"confidence", "CONFIDENCE", UnitText, "high, medium or low"},
	{"confidence_reasons", "", UnitText, "what lowers it: lost calls, damaged segments, a recording that began after the process"},
	{"pid", "PID", UnitID, "process of the first call"},
	{"tid", "", UnitID, "thread of the first call"},
	{"allocated_site", "ALLOCATED AT", UnitText, "allocation site of the block"},
	{"freed_site", "FREED AT", UnitText, "site of the free before"},
	{"site", "SITE", UnitText, "site of the failed free"},
}

// invalidFree are failed frees with the same verdict and sites. fault.FailedFree and fault.FreedMemory are
// those of the first one.
type invalidFree struct {
	fault.FailedFree
	fault.FreedMemory
	calls, lastNs        int64
	allocatedAt, freedAt string // sites, "" if not known
	level                string // confidence
	reasons              []string
	fromStart            bool // the process is recorded from its first call
}

// invalidFrees classifies the failed frees among failed calls, and groups those that are the
// program's fault: the worst verdict first, then by calls.
func invalidFrees(t *timeline.Timeline, u *errorUse, q *Quality) ([]invalidFree, error) {
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
	var list []invalidFree
	for i := range found {
		f := invalidFree{FailedFree: u.frees.List[i], FreedMemory: found[i], calls: 1}
		if f.Verdict == fault.FreeRefused {
			continue
		}
		f.lastNs = f.StartNs
		if f.Allocated {
			f.allocatedAt = t.SiteLabel(f.Block.Origin)
		}
		if f.By != origin.None {
			f.freedAt = t.SiteLabel(f.By)
		}
		k := key{f.Verdict, f.allocatedAt, f.freedAt, f.Right, f.Name, f.Site, f.Result}
		at, ok := groups[k]
		if !ok {
			groups[k] = len(list)
			list = append(list, f)
			continue
		}
		list[at].calls++
		list[at].lastNs = max(list[at].lastNs, f.StartNs)
	}
	started, err := recordedFromStart(t)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].fromStart = started[list[i].Pid]
		list[i].trust(q)
	}
	slices.SortStableFunc(list, func(a, b invalidFree) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(b.calls, a.calls))
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
func (f *invalidFree) trust(q *Quality) {
	f.level = confidenceHigh
	lower := func(to, format string, args ...any) {
		if f.level == confidenceHigh || to == confidenceLow {
			f.level = to
		}
		f.reasons = append(f.reasons, fmt.Sprintf(format, args...))
	}
	if n := q.LostMemoryEvents; n > 0 {
		to := confidenceMedium
		if n*1000 > q.Events {
			to = confidenceLow
		}
		lower(to, "%s calls that allocate or free were lost", units.Count(n))
	}
	if n := q.DamagedSegments; n > 0 {
		lower(confidenceLow, "%s damaged", units.Plural(n, "segment"))
	}
	if f.Verdict != fault.UnknownPointer {
		return
	}
	if !f.fromStart || q.DroppedEvents > 0 {
		lower(confidenceLow, "the recording began after the process: the memory may be older")
	}
	if n := q.UnknownAllocs; n > 0 {
		lower(confidenceMedium, "%s returned a pointer that is not known", units.Plural(n, "allocation"))
	}
}

// blamed returns the number of invalid frees among the failed calls of each group of errorUse.
func blamed(list []invalidFree) map[errorKey]int64 {
	calls := make(map[errorKey]int64)
	for i := range list {
		calls[errorKey{list[i].Name, list[i].Site, list[i].Result}] += list[i].calls
	}
	return calls
}

// countFrees sums up the calls of a verdict, all of them for fault.FreeRefused.
func countFrees(list []invalidFree, verdict fault.FreeVerdict) (n int64) {
	for i := range list {
		if verdict == fault.FreeRefused || list[i].Verdict == verdict {
			n += list[i].calls
		}
	}
	return n
}

// evidence says in words what the verdict rests on.
func (f *invalidFree) evidence(t *timeline.Timeline, name, site string) string {
	at := func(ns int64) string { return units.Duration(ns - t.Recording().FromNs) }
	made := "its allocation is not recorded"
	if f.Allocated {
		made = fmt.Sprintf("%s allocated %s at %s with %s (thread %d)", f.allocatedAt,
			units.Bytes(f.Block.Bytes), at(f.Block.SinceNs), t.Origins.Name(f.Block.Origin),
			t.Origins.List[f.Block.Origin].Tid)
	}
	call := fmt.Sprintf("%s called %s at %s (thread %d)", site, name, at(f.StartNs), f.Tid)
	var text string
	switch f.Verdict {
	case fault.DoubleFree:
		text = fmt.Sprintf("%s; %s freed it at %s with %s (thread %d); %s, %s later", made, f.freedAt,
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
	if f.calls > 1 {
		text += fmt.Sprintf("; the first of %s", units.Plural(f.calls, "call"))
	}
	return text + "; " + confidenceText(f.level, f.reasons)
}

// mayBe says what an unknown pointer can be.
func (f *invalidFree) mayBe() string {
	if f.level == confidenceHigh {
		return "it is of another process or of no allocation of CUDA"
	}
	return "it was allocated before the recording, or never"
}

// invalidFreeTable has a row per group.
func invalidFreeTable(t *timeline.Timeline, u *errorUse, list []invalidFree, opt *query.Options) Table {
	table := Table{
		Name: "invalid_frees", Title: "invalid frees: what failed frees are about",
		Columns: invalidFreeColumns, Aside: true,
		Keys:  []string{"verdict", "name", "allocated_site", "freed_site", "site"},
		Spare: []string{"pid", "confidence", "first_ns", "bytes", "allocated_site"},
	}
	since := func(ns int64) int64 { return ns - t.Recording().FromNs }
	for i := range list {
		f := &list[i]
		name, site := u.names.List[f.Name], u.names.List[f.Site]
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
		table.Rows = append(table.Rows, Row{stack: f.Stack, Evidence: f.evidence(t, name, site), Cells: []any{
			f.calls, f.Verdict.String(), name, bytes, memory, since(f.StartNs), since(f.lastNs),
			fmt.Sprintf("0x%x", uint64(f.Ptr)), offset, allocatedNs, allocatedTid,
			freedNs, freedTid, freedName, units.Known(f.Right), int64(f.Result), catalog.ResultName(f.Result),
			f.level, f.reasons, int64(f.Pid), int64(f.Tid), units.Known(f.allocatedAt), units.Known(f.freedAt), site,
		}})
	}
	if opt.Top > 0 && len(table.Rows) > opt.Top {
		table.More, table.Rows = len(table.Rows)-opt.Top, table.Rows[:opt.Top]
	}
	addStacks(t, &table, opt)
	return table
}
