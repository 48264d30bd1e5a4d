package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	callspkg "github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// errorUse counts calls that returned an error, by function, result and place.
type errorUse struct {
	*callspkg.Counter
	groups map[errorKey]*errorGroup
	quiet  map[errorKey]*errorGroup // results that are no failure; without place
	names  origin.Names
	frees  fault.FailedFrees

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
	case result == callspkg.ResultOutOfMemory:
		return errorClasses[1]
	case catalog.IsQuestion(name, result):
		return errorClasses[3]
	}
	return errorClasses[2]
}

// Errors reports which calls failed, what that means, and of errors that come from earlier work what was launched before. It
// returns a *SortError for a column that there is not.
func Errors(t *timeline.Timeline, opt query.Options) (*Report, error) {
	counts, err := callspkg.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := newErrorUse(t, &opt.Filter)
	if err := u.scan(); err != nil {
		return nil, err
	}
	faults, err := fault.Find(t)
	if err != nil {
		return nil, err
	}
	faults = slices.DeleteFunc(faults, func(f fault.Fault) bool {
		return f.StartNs < u.Window.FromNs || f.StartNs > u.Window.ToNs || !opt.PassesCaller(f.Pid, f.Tid, f.Device, f.Stream)
	})
	r := &Report{Command: "errors", Window: u.Window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes}
	if len(u.Seen.Pids) > 0 && !u.matched() {
		r.NoMatch = u.Seen.Explain(&opt.Filter)
	}
	frees, err := invalidFrees(t, u, &r.Quality)
	if err != nil {
		return nil, err
	}
	r.Totals = u.totals(len(faults), frees)
	if r.Facts = fill(errorFacts, ""); len(u.groups) == 0 {
		r.Facts[0].Value = "no call returned an error"
	} else if n := u.frees.LeftOut; n > 0 {
		r.Facts[0].Value = fmt.Sprintf("%s more failed frees are only counted as failed calls", units.Count(n))
	}
	table, err := u.table(&opt)
	if err != nil {
		return nil, err
	}
	broken := faultTable(t, faults, opt.Top)
	suspects, err := suspectTable(t, faults[:len(broken.Rows)], &opt)
	if err != nil {
		return nil, err
	}
	r.Tables = []Table{broken, suspects, invalidFreeTable(t, u, frees, &opt), table, u.quietTable()}
	return r, nil
}

func newErrorUse(t *timeline.Timeline, f *query.Filter) *errorUse {
	return &errorUse{Counter: callspkg.NewCounter(t, f), groups: make(map[errorKey]*errorGroup), quiet: make(map[errorKey]*errorGroup)}
}

// matched reports whether the filter let any caller through, failed or not.
func (u *errorUse) matched() bool {
	n := u.Seen.Explain(u.Filter)
	return n.Filter == ""
}

// scan reads the results of all calls, and the rest where some are not success.
func (u *errorUse) scan() error {
	for _, spans := range [][]timeline.Span{u.T.Memory, u.T.Calls} {
		for _, s := range spans {
			u.group(s.Group)
			if err := s.Group.Err(); err != nil {
				return u.T.Wrap(err)
			}
		}
	}
	return nil
}

func (u *errorUse) group(g *format.Group) {
	u.Result, u.Flags = g.Int32("result", u.Result), g.Int32("flags", u.Flags)
	if !u.Filter.Callers() && !slices.ContainsFunc(u.Result, func(r int32) bool { return r != 0 }) {
		return
	}
	u.Kind, u.Name, u.Kernel = g.StringsInto("kind", u.Kind), g.StringsInto("name", u.Name), g.StringsInto("kernel", u.Kernel)
	u.site = g.StringsInto("site", u.site)
	u.Start, u.stack = g.Int64("start_ns", u.Start), g.Int32("stack_id", u.stack)
	u.Pid, u.Tid = g.Int32("pid", u.Pid), g.Int32("tid", u.Tid)
	parent := g.Int64("parent_start_ns", nil)
	pass := u.Passes(g, u.Kind, u.Kernel)
	names := u.names.All(u.Name.Dict)
	u.frees.Next()
	for i, start := range u.Start {
		if start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) || u.Result[i] == 0 || u.Flags[i]&timeline.NoResult != 0 {
			continue
		}
		key := errorKey{name: names[u.Name.Index[i]], result: u.Result[i]}
		groups := u.quiet
		if callspkg.IsError(u.Result[i]) {
			groups = u.groups
			key.site = u.names.ID(u.T.SiteOfCall(u.stack[i], u.site.At(i)))
			u.frees.Add(g, i, u.Kind.At(i), fault.FailedFree{StartNs: start, Pid: u.Pid[i], Tid: u.Tid[i], Stack: u.stack[i],
				Result: u.Result[i], Name: key.name, Site: key.site})
		}
		e := groups[key]
		if e == nil {
			e = &errorGroup{firstNs: start, lastNs: start, stack: u.stack[i], threads: make(map[origin.Thread]int64)}
			groups[key] = e
		}
		e.add(start, u.stack[i], origin.Thread{Pid: u.Pid[i], Tid: u.Tid[i]}, parent[i] != 0)
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
	return fill(errorTotals, failed, int64(faults), memory, questions, quiet, countFrees(frees, fault.FreeRefused), countFrees(frees, fault.DoubleFree))
}

// table has a row per function, result and place: the worst class first, then by calls.
func (u *errorUse) table(opt *query.Options) (Table, error) {
	table := Table{Name: "errors", Title: "failed calls", Columns: errorColumns, Spare: []string{"thread_count", "last_ns", "processes", "class"}}
	start := u.T.Recording().FromNs
	for key, e := range u.groups {
		name := u.names.List[key.name]
		processes, threads := threadNames(u.T, e.threads)
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
	addStacks(u.T, &table, opt)
	return table, nil
}

// threadNames lists the processes and the busiest threads of a set.
func threadNames(t *timeline.Timeline, calls map[origin.Thread]int64) (processes, threads []string) {
	const most = 8
	list := slices.SortedFunc(maps.Keys(calls), func(a, b origin.Thread) int {
		return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
	})
	for i, th := range list {
		if i < most {
			threads = append(threads, strings.TrimSpace(fmt.Sprintf("%d %s", th.Tid, t.Facts.Threads[th])))
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
func faultTable(t *timeline.Timeline, faults []fault.Fault, top int) Table {
	table := Table{Name: "asynchronous", Title: "errors of earlier work, where they were noticed first", Columns: faultColumns, Aside: true, Spare: []string{"context", "device", "tid"}}
	for i := range faults {
		f := &faults[i]
		var context, xid any
		if f.Context != 0 {
			context = fmt.Sprintf("0x%x", uint64(f.Context))
		}
		evidence := catalog.ResultMeaning(f.Result) + fmt.Sprintf("; it happened in work that was given to the GPU before %s was called or while it waited: the launches that are listed are suspects, "+
			"the last ones first; every later call in this context returns the same", f.Name)
		if x, ok := fault.XidOf(&t.Facts, f); ok {
			xid = fmt.Sprintf("%d, %s before", x.Code, units.Duration(f.EndNs-x.AtNs))
			e, _ := x.Describe()
			evidence += fmt.Sprintf("; the driver reported Xid %d (%s) of this process: %s", x.Code, e.Name, strings.TrimSpace(x.Text))
		}
		table.Rows = append(table.Rows, Row{Evidence: evidence, Cells: []any{f.EndNs - t.Recording().FromNs, int64(f.Pid), int64(f.Tid), context, t.OrdinalLabel(f.Pid, f.Device),
			f.Name, int64(f.Result), xid, catalog.ResultName(f.Result)}})
	}
	if top > 0 && len(table.Rows) > top {
		table.More, table.Rows = len(table.Rows)-top, table.Rows[:top]
	}
	addRanks(t, &table)
	return table
}

// suspectTable lists the launches before faults.
func suspectTable(t *timeline.Timeline, faults []fault.Fault, opt *query.Options) (Table, error) {
	table := Table{Name: "suspects", Title: "launches before them that may still have been running, the last first", Columns: launchColumns, Aside: true, Keys: []string{}, Spare: []string{"tid"}}
	moments := make([]fault.Moment, len(faults))
	for i, f := range faults {
		moments[i] = fault.Moment{AtNs: f.EndNs, Pid: f.Pid, Context: f.Context}
	}
	launches, err := fault.LaunchesBefore(t, moments, &opt.Filter)
	if err != nil {
		return table, err
	}
	for i := range faults {
		f := &faults[i]
		table.Rows = append(table.Rows, launchRows(t, f.Label(t), f.EndNs, launches[i])...)
	}
	addStacks(t, &table, opt)
	return table, nil
}
