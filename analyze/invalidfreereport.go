package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/origin"
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

// invalidFree are failed frees with the same verdict and sites. failedFree and freedMemory are
// those of the first one.
type invalidFree struct {
	failedFree
	freedMemory
	calls, lastNs        int64
	allocatedAt, freedAt string // sites, "" if not known
	level                string // confidence
	reasons              []string
	fromStart            bool // the process is recorded from its first call
}

// invalidFrees classifies the failed frees among failed calls, and groups those that are the
// program's fault: the worst verdict first, then by calls.
func (t *Timeline) invalidFrees(u *errorUse, q *Quality) ([]invalidFree, error) {
	found, err := t.classifyFrees(u.frees.list)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	type key struct {
		verdict                     freeVerdict
		allocatedAt, freedAt, right string
		name, site, result          int32
	}
	groups := make(map[key]int)
	var list []invalidFree
	for i := range found {
		f := invalidFree{failedFree: u.frees.list[i], freedMemory: found[i], calls: 1}
		if f.verdict == freeRefused {
			continue
		}
		f.lastNs = f.startNs
		if f.allocated {
			f.allocatedAt = t.siteLabel(f.block.Origin)
		}
		if f.by != origin.None {
			f.freedAt = t.siteLabel(f.by)
		}
		k := key{f.verdict, f.allocatedAt, f.freedAt, f.right, f.name, f.site, f.result}
		at, ok := groups[k]
		if !ok {
			groups[k] = len(list)
			list = append(list, f)
			continue
		}
		list[at].calls++
		list[at].lastNs = max(list[at].lastNs, f.startNs)
	}
	started, err := t.recordedFromStart()
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].fromStart = started[list[i].pid]
		list[i].trust(q)
	}
	slices.SortStableFunc(list, func(a, b invalidFree) int {
		return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(b.calls, a.calls))
	})
	return list, nil
}

// recordedFromStart returns the processes that are recorded from their first call on.
func (t *Timeline) recordedFromStart() (map[int32]bool, error) {
	started := make(map[int32]bool)
	var name format.Strings
	var pid []int32
	for _, s := range t.calls {
		name = s.group.StringsInto("name", name)
		if first := slices.Index(name.Dict, "cuInit"); first >= 0 {
			pid = s.group.Int32("pid", pid)
			for i := range pid {
				if int(name.Index[i]) == first {
					started[pid[i]] = true
				}
			}
		}
		if err := s.group.Err(); err != nil {
			return nil, t.wrap(err)
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
	if f.verdict != unknownPointer {
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
		calls[errorKey{list[i].name, list[i].site, list[i].result}] += list[i].calls
	}
	return calls
}

// countFrees sums up the calls of a verdict, all of them for freeRefused.
func countFrees(list []invalidFree, verdict freeVerdict) (n int64) {
	for i := range list {
		if verdict == freeRefused || list[i].verdict == verdict {
			n += list[i].calls
		}
	}
	return n
}

// evidence says in words what the verdict rests on.
func (f *invalidFree) evidence(t *Timeline, name, site string) string {
	at := func(ns int64) string { return units.Duration(ns - t.Recording().FromNs) }
	made := "its allocation is not recorded"
	if f.allocated {
		made = fmt.Sprintf("%s allocated %s at %s with %s (thread %d)", f.allocatedAt,
			units.Bytes(f.block.Bytes), at(f.block.SinceNs), t.origins.Name(f.block.Origin),
			t.origins.List[f.block.Origin].Tid)
	}
	call := fmt.Sprintf("%s called %s at %s (thread %d)", site, name, at(f.startNs), f.tid)
	var text string
	switch f.verdict {
	case doubleFree:
		text = fmt.Sprintf("%s; %s freed it at %s with %s (thread %d); %s, %s later", made, f.freedAt,
			at(f.atNs), t.origins.Name(f.by), t.origins.List[f.by].Tid, call,
			units.Duration(max(0, f.startNs-f.atNs)))
	case insideBlock:
		text = fmt.Sprintf("%s; %s with an address %s behind its start; the block stays allocated",
			made, call, units.Bytes(f.offset))
	case wrongFunction:
		text = fmt.Sprintf("%s; %s; free it with %s: it stays allocated until then",
			made, call, f.right)
	case contextEnded:
		text = fmt.Sprintf("%s; its context ended at %s and freed it; %s", made, at(f.atNs), call)
	case unknownPointer:
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
func (t *Timeline) invalidFreeTable(u *errorUse, list []invalidFree, opt *query.Options) Table {
	table := Table{
		Name: "invalid_frees", Title: "invalid frees: what failed frees are about",
		Columns: invalidFreeColumns, Aside: true,
		Keys:  []string{"verdict", "name", "allocated_site", "freed_site", "site"},
		Spare: []string{"pid", "confidence", "first_ns", "bytes", "allocated_site"},
	}
	since := func(ns int64) int64 { return ns - t.Recording().FromNs }
	for i := range list {
		f := &list[i]
		name, site := u.names.List[f.name], u.names.List[f.site]
		var bytes, memory, offset, allocatedNs, allocatedTid, freedNs, freedTid, freedName any
		if f.allocated {
			o := &t.origins.List[f.block.Origin]
			memory = units.Known(t.origins.Memory(f.block.Origin))
			allocatedNs, allocatedTid = since(f.block.SinceNs), int64(o.Tid)
			if f.block.Bytes > 0 {
				bytes = f.block.Bytes
			}
		}
		if f.verdict == insideBlock {
			offset = f.offset
		}
		if f.atNs > 0 {
			freedNs = since(f.atNs)
		}
		if f.by != origin.None {
			freedTid, freedName = int64(t.origins.List[f.by].Tid), t.origins.Name(f.by)
		}
		table.Rows = append(table.Rows, Row{stack: f.stack, Evidence: f.evidence(t, name, site), Cells: []any{
			f.calls, f.verdict.String(), name, bytes, memory, since(f.startNs), since(f.lastNs),
			fmt.Sprintf("0x%x", uint64(f.ptr)), offset, allocatedNs, allocatedTid,
			freedNs, freedTid, freedName, units.Known(f.right), int64(f.result), catalog.ResultName(f.result),
			f.level, f.reasons, int64(f.pid), int64(f.tid), units.Known(f.allocatedAt), units.Known(f.freedAt), site,
		}})
	}
	if opt.Top > 0 && len(table.Rows) > opt.Top {
		table.More, table.Rows = len(table.Rows)-opt.Top, table.Rows[:opt.Top]
	}
	t.addStacks(&table, opt)
	return table
}
