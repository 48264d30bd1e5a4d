package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// errorUse counts calls that returned an error, by function, result and place.
type errorUse struct {
	*callUse
	groups map[errorKey]*errorGroup
	quiet  map[errorKey]*errorGroup // results that are no failure; without place
	names  origin.Names
	frees  failedFrees

	stack []int32
	site  format.Strings
}

// errorKey is what calls have in common; name and site index errorUse.names.
type errorKey struct {
	name, site int32
	result     int32
}

// errorGroup is what was counted of them.
type errorGroup struct {
	calls, nested   int64
	firstNs, lastNs int64 // entries
	stack           int32 // of the first one
	threads         map[origin.Thread]int64
}

var errorColumns = []Column{
	{"calls", "CALLS", UnitCount, "calls that began in the window and returned this"},
	{"class", "CLASS", UnitText, "asynchronous: of work given to the GPU earlier, the call only noticed it, and every later call in the context returns it too; memory: out of memory; call: about the call itself; question: programs ask that way and expect to be told no"},
	{"name", "FUNCTION", UnitText, "function of the CUDA driver"},
	{"result", "RESULT", UnitID, "the CUresult"},
	{"result_name", "ERROR", UnitText, "its name in CUDA's headers"},
	{"first_ns", "FIRST", UnitNs, "entry of the first one, from the recording's start"},
	{"last_ns", "LAST", UnitNs, "entry of the last one"},
	{"processes", "PID", UnitText, "processes"},
	{"threads", "", UnitText, "threads, those with most of the calls first, at most 8"},
	{"thread_count", "THREADS", UnitCount, "number of threads"},
	{"nested_calls", "", UnitCount, "of CALLS, those inside of another recorded call, which mostly returns it too"},
	{"meaning", "", UnitText, "what the result means, in plain words"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the call"},
}

var quietColumns = []Column{
	{"calls", "CALLS", UnitCount, "calls that began in the window and returned this"},
	{"name", "FUNCTION", UnitText, "function of the CUDA driver"},
	{"result", "RESULT", UnitID, "the CUresult"},
	{"result_name", "NAME", UnitText, "its name in CUDA's headers"},
	{"meaning", "WHY IT IS NONE", UnitText, "what it means"},
}

var faultColumns = []Column{
	{"at_ns", "NOTICED", UnitNs, "return of the first call that noticed it, from the recording's start"},
	{"pid", "PID", UnitID, "process"},
	{"tid", "TID", UnitID, "thread of that call"},
	{"context", "CONTEXT", UnitText, "context that is broken from then on; absent if not known"},
	{"device", "DEVICE", UnitText, "CUDA device of the call"},
	{"call", "NOTICED BY", UnitText, "the call that returned it: where it was noticed, not what caused it"},
	{"result", "RESULT", UnitID, "the CUresult"},
	{"xid", "XID", UnitText, "the last Xid of the process until then, and how long before; clocks may differ by 100 ms"},
	{"result_name", "ERROR", UnitText, "its name in CUDA's headers"},
}

var errorFacts = []Column{
	{"result", "result", UnitText, "set if there is nothing to tell, or not all"},
}

var errorTotals = []Column{
	{"failed_calls", "failed calls", UnitCount, "calls that returned an error, questions included"},
	{"asynchronous_errors", "asynchronous", UnitCount, "contexts that an asynchronous error broke"},
	{"out_of_memory", "out of memory", UnitCount, "calls that returned CUDA_ERROR_OUT_OF_MEMORY"},
	{"questions", "questions", UnitCount, "of failed_calls, those by which programs find something out"},
	{"no_errors", "results that are no error", UnitCount, "calls that returned not ready, or shutting down"},
	{"invalid_frees", "invalid frees", UnitCount, "of failed_calls, frees that are wrong about their pointer: see the table invalid_frees"},
	{"double_frees", "double frees", UnitCount, "of invalid_frees, those of memory that was freed before"},
}

// Classes of errors, the worst first.
var errorClasses = []string{"asynchronous", "memory", "call", "question"}

func errorClass(name string, result int32) string {
	switch {
	case catalog.IsAsynchronous(result):
		return errorClasses[0]
	case result == resultOutOfMemory:
		return errorClasses[1]
	case catalog.IsQuestion(name, result):
		return errorClasses[3]
	}
	return errorClasses[2]
}

// Errors reports which calls failed, what that means, and of errors that come from earlier work what was launched before. It
// returns a *SortError for a column that there is not.
func (t *Timeline) Errors(opt query.Options) (*Report, error) {
	counts, err := t.countsWhile(func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := t.newErrorUse(&opt.Filter)
	if err := u.scan(); err != nil {
		return nil, err
	}
	faults, err := t.faults()
	if err != nil {
		return nil, err
	}
	faults = slices.DeleteFunc(faults, func(f fault) bool {
		return f.startNs < u.window.FromNs || f.startNs > u.window.ToNs || !opt.PassesCaller(f.pid, f.tid, f.device, f.stream)
	})
	r := &Report{Command: "errors", Window: u.window, Quality: t.quality(counts), Notes: t.facts.notes}
	if len(u.seen.Pids) > 0 && !u.matched() {
		r.NoMatch = u.seen.Explain(&opt.Filter)
	}
	frees, err := t.invalidFrees(u, &r.Quality)
	if err != nil {
		return nil, err
	}
	r.Totals = u.totals(len(faults), frees)
	if r.Facts = fill(errorFacts, ""); len(u.groups) == 0 {
		r.Facts[0].Value = "no call returned an error"
	} else if n := u.frees.leftOut; n > 0 {
		r.Facts[0].Value = fmt.Sprintf("%s more failed frees are only counted as failed calls", units.Count(n))
	}
	table, err := u.table(&opt)
	if err != nil {
		return nil, err
	}
	broken := t.faultTable(faults, opt.Top)
	suspects, err := t.suspectTable(faults[:len(broken.Rows)], &opt)
	if err != nil {
		return nil, err
	}
	r.Tables = []Table{broken, suspects, t.invalidFreeTable(u, frees, &opt), table, u.quietTable()}
	return r, nil
}

func (t *Timeline) newErrorUse(f *query.Filter) *errorUse {
	return &errorUse{callUse: t.newCallUse(f), groups: make(map[errorKey]*errorGroup), quiet: make(map[errorKey]*errorGroup)}
}

// matched reports whether the filter let any caller through, failed or not.
func (u *errorUse) matched() bool {
	n := u.seen.Explain(u.filter)
	return n.Filter == ""
}

// scan reads the results of all calls, and the rest where some are not success.
func (u *errorUse) scan() error {
	for _, spans := range [][]span{u.t.memory, u.t.calls} {
		for _, s := range spans {
			u.group(s.group)
			if err := s.group.Err(); err != nil {
				return u.t.wrap(err)
			}
		}
	}
	return nil
}

func (u *errorUse) group(g *format.Group) {
	u.result, u.flags = g.Int32("result", u.result), g.Int32("flags", u.flags)
	if !u.filter.Callers() && !slices.ContainsFunc(u.result, func(r int32) bool { return r != 0 }) {
		return
	}
	u.kind, u.name, u.kernel = g.StringsInto("kind", u.kind), g.StringsInto("name", u.name), g.StringsInto("kernel", u.kernel)
	u.site = g.StringsInto("site", u.site)
	u.start, u.stack = g.Int64("start_ns", u.start), g.Int32("stack_id", u.stack)
	u.pid, u.tid = g.Int32("pid", u.pid), g.Int32("tid", u.tid)
	parent := g.Int64("parent_start_ns", nil)
	pass := u.passes(g, u.kind, u.kernel)
	names := u.names.All(u.name.Dict)
	u.frees.next()
	for i, start := range u.start {
		if start < u.window.FromNs || start > u.window.ToNs || !pass(i) || u.result[i] == 0 || u.flags[i]&noResult != 0 {
			continue
		}
		key := errorKey{name: names[u.name.Index[i]], result: u.result[i]}
		groups := u.quiet
		if isError(u.result[i]) {
			groups = u.groups
			key.site = u.names.ID(u.t.siteOfCall(u.stack[i], u.site.At(i)))
			u.frees.add(g, i, u.kind.At(i), failedFree{startNs: start, pid: u.pid[i], tid: u.tid[i], stack: u.stack[i],
				result: u.result[i], name: key.name, site: key.site})
		}
		e := groups[key]
		if e == nil {
			e = &errorGroup{firstNs: start, lastNs: start, stack: u.stack[i], threads: make(map[origin.Thread]int64)}
			groups[key] = e
		}
		e.add(start, u.stack[i], origin.Thread{Pid: u.pid[i], Tid: u.tid[i]}, parent[i] != 0)
	}
}

func (e *errorGroup) add(startNs int64, stack int32, th origin.Thread, nested bool) {
	e.calls++
	if nested {
		e.nested++
	}
	e.threads[th]++
	e.lastNs = max(e.lastNs, startNs)
	if startNs < e.firstNs {
		e.firstNs, e.stack = startNs, stack
	}
}

func (u *errorUse) totals(faults int, frees []invalidFree) []Fact {
	var failed, memory, questions, quiet int64
	for key, e := range u.groups {
		failed += e.calls
		switch errorClass(u.names.List[key.name], key.result) {
		case "memory":
			memory += e.calls
		case "question":
			questions += e.calls
		}
	}
	for _, e := range u.quiet {
		quiet += e.calls
	}
	return fill(errorTotals, failed, int64(faults), memory, questions, quiet, countFrees(frees, freeRefused), countFrees(frees, doubleFree))
}

// table has a row per function, result and place: the worst class first, then by calls.
func (u *errorUse) table(opt *query.Options) (Table, error) {
	table := Table{Name: "errors", Title: "failed calls", Columns: errorColumns, Spare: []string{"thread_count", "last_ns", "processes", "class"}}
	start := u.t.Recording().FromNs
	for key, e := range u.groups {
		name := u.names.List[key.name]
		processes, threads := u.t.threadNames(e.threads)
		table.Rows = append(table.Rows, Row{stack: e.stack, Evidence: catalog.ResultMeaning(key.result), Cells: []any{
			e.calls, errorClass(name, key.result), name, int64(key.result), catalog.ResultName(key.result), e.firstNs - start, e.lastNs - start,
			processes, threads, int64(len(e.threads)), e.nested, catalog.ResultMeaning(key.result), u.names.List[key.site]}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		rank := func(r Row) int { return slices.Index(errorClasses, r.Cells[1].(string)) }
		return cmp.Or(cmp.Compare(rank(a), rank(b)), compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[2], b.Cells[2]),
			-compareCells(a.Cells[3], b.Cells[3]), compareCells(a.Cells[12], b.Cells[12]))
	})
	if err := table.arrange(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	u.t.addStacks(&table, opt)
	return table, nil
}

// threadNames lists the processes and the busiest threads of a set.
func (t *Timeline) threadNames(calls map[origin.Thread]int64) (processes, threads []string) {
	const most = 8
	list := slices.SortedFunc(maps.Keys(calls), func(a, b origin.Thread) int {
		return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
	})
	for i, th := range list {
		if i < most {
			threads = append(threads, strings.TrimSpace(fmt.Sprintf("%d %s", th.Tid, t.facts.threads[th])))
		}
		if pid := fmt.Sprint(th.Pid); !slices.Contains(processes, pid) {
			processes = append(processes, pid)
		}
	}
	slices.Sort(processes)
	return processes, threads
}

// quietTable has a row per function and result that is no failure.
func (u *errorUse) quietTable() Table {
	table := Table{Name: "no_errors", Title: "results that are no error", Columns: quietColumns, Aside: true}
	for key, e := range u.quiet {
		table.Rows = append(table.Rows, Row{Cells: []any{e.calls, u.names.List[key.name], int64(key.result), catalog.ResultName(key.result), catalog.ResultMeaning(key.result)}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[1], b.Cells[1]), -compareCells(a.Cells[2], b.Cells[2]))
	})
	return table
}

// faultTable has a row per context that an asynchronous error broke.
func (t *Timeline) faultTable(faults []fault, top int) Table {
	table := Table{Name: "asynchronous", Title: "errors of earlier work, where they were noticed first", Columns: faultColumns, Aside: true, Spare: []string{"context", "device", "tid"}}
	for i := range faults {
		f := &faults[i]
		var context, xid any
		if f.context != 0 {
			context = fmt.Sprintf("0x%x", uint64(f.context))
		}
		evidence := catalog.ResultMeaning(f.result) + fmt.Sprintf("; it happened in work that was given to the GPU before %s was called or while it waited: the launches that are listed are suspects, "+
			"the last ones first; every later call in this context returns the same", f.name)
		if x, ok := t.facts.xidOf(f); ok {
			xid = fmt.Sprintf("%d, %s before", x.code, units.Duration(f.endNs-x.atNs))
			e, _ := x.describe()
			evidence += fmt.Sprintf("; the driver reported Xid %d (%s) of this process: %s", x.code, e.Name, strings.TrimSpace(x.text))
		}
		table.Rows = append(table.Rows, Row{Evidence: evidence, Cells: []any{f.endNs - t.Recording().FromNs, int64(f.pid), int64(f.tid), context, t.ordinalLabel(f.pid, f.device),
			f.name, int64(f.result), xid, catalog.ResultName(f.result)}})
	}
	if top > 0 && len(table.Rows) > top {
		table.More, table.Rows = len(table.Rows)-top, table.Rows[:top]
	}
	t.addRanks(&table)
	return table
}

// suspectTable lists the launches before faults.
func (t *Timeline) suspectTable(faults []fault, opt *query.Options) (Table, error) {
	table := Table{Name: "suspects", Title: "launches before them that may still have been running, the last first", Columns: launchColumns, Aside: true, Keys: []string{}, Spare: []string{"tid"}}
	moments := make([]moment, len(faults))
	for i, f := range faults {
		moments[i] = moment{f.endNs, f.pid, f.context}
	}
	launches, err := t.launchesBefore(moments, &opt.Filter)
	if err != nil {
		return table, err
	}
	for i := range faults {
		f := &faults[i]
		table.Rows = append(table.Rows, t.launchRows(f.label(t), f.endNs, launches[i])...)
	}
	t.addStacks(&table, opt)
	return table, nil
}
