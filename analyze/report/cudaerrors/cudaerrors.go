package cudaerrors

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
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	processespkg "github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// ErrorUse counts calls that returned an error, by function, result and place.
type ErrorUse struct {
	*callspkg.Counter
	Groups map[ErrorKey]*ErrorGroup
	quiet  map[ErrorKey]*ErrorGroup // results that are no failure; without place
	Names  origin.Names
	frees  fault.FailedFrees

	stack []int32
	site  format.Strings
}

// ErrorKey is what calls have in common; name and site index ErrorUse.Names.
type ErrorKey struct {
	Name, Site int32
	Result     int32
}

// ErrorGroup is what was counted of them.
type ErrorGroup struct {
	Calls, nested   int64
	FirstNs, LastNs int64 // entries
	Stack           int32 // of the first one
	Threads         map[origin.Thread]int64
}

var ErrorColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window and returned this"},
	{Key: "class", Title: "CLASS", Unit: report.UnitText, About: "asynchronous: of work given to the GPU earlier, the call only noticed it, and every later call in the context returns it too; memory: out of memory; call: about the call itself; question: programs ask that way and expect to be told no"},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "the CUresult"},
	{Key: "result_name", Title: "ERROR", Unit: report.UnitText, About: "its name in CUDA's headers"},
	{Key: "first_ns", Title: "FIRST", Unit: report.UnitNs, About: "entry of the first one, from the recording's start"},
	{Key: "last_ns", Title: "LAST", Unit: report.UnitNs, About: "entry of the last one"},
	{Key: "processes", Title: "PID", Unit: report.UnitText, About: "processes"},
	{Key: "threads", Title: "", Unit: report.UnitText, About: "threads, those with most of the calls first, at most 8"},
	{Key: "thread_count", Title: "THREADS", Unit: report.UnitCount, About: "number of threads"},
	{Key: "nested_calls", Title: "", Unit: report.UnitCount, About: "of CALLS, those inside of another recorded call, which mostly returns it too"},
	{Key: "meaning", Title: "", Unit: report.UnitText, About: "what the result means, in plain words"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the call"},
}

var QuietColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window and returned this"},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "the CUresult"},
	{Key: "result_name", Title: "NAME", Unit: report.UnitText, About: "its name in CUDA's headers"},
	{Key: "meaning", Title: "WHY IT IS NONE", Unit: report.UnitText, About: "what it means"},
}

var FaultColumns = []report.Column{
	{Key: "at_ns", Title: "NOTICED", Unit: report.UnitNs, About: "return of the first call that noticed it, from the recording's start"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "tid", Title: "TID", Unit: report.UnitID, About: "thread of that call"},
	{Key: "context", Title: "CONTEXT", Unit: report.UnitText, About: "context that is broken from then on; absent if not known"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the call"},
	{Key: "call", Title: "NOTICED BY", Unit: report.UnitText, About: "the call that returned it: where it was noticed, not what caused it"},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "the CUresult"},
	{Key: "xid", Title: "XID", Unit: report.UnitText, About: "the last Xid of the process until then, and how long before; clocks may differ by 100 ms"},
	{Key: "result_name", Title: "ERROR", Unit: report.UnitText, About: "its name in CUDA's headers"},
}

var ErrorFacts = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell, or not all"},
}

var ErrorTotals = []report.Column{
	{Key: "failed_calls", Title: "failed calls", Unit: report.UnitCount, About: "calls that returned an error, questions included"},
	{Key: "asynchronous_errors", Title: "asynchronous", Unit: report.UnitCount, About: "contexts that an asynchronous error broke"},
	{Key: "out_of_memory", Title: "out of memory", Unit: report.UnitCount, About: "calls that returned CUDA_ERROR_OUT_OF_MEMORY"},
	{Key: "questions", Title: "questions", Unit: report.UnitCount, About: "of failed_calls, those by which programs find something out"},
	{Key: "no_errors", Title: "results that are no error", Unit: report.UnitCount, About: "calls that returned not ready, or shutting down"},
	{Key: "invalid_frees", Title: "invalid frees", Unit: report.UnitCount, About: "of failed_calls, frees that are wrong about their pointer: see the table invalid_frees"},
	{Key: "double_frees", Title: "double frees", Unit: report.UnitCount, About: "of invalid_frees, those of memory that was freed before"},
}

// Classes of errors, the worst first.
var ErrorClasses = []string{"asynchronous", "memory", "call", "question"}

func ErrorClass(name string, result int32) string {
	switch {
	case catalog.IsAsynchronous(result):
		return ErrorClasses[0]
	case result == callspkg.ResultOutOfMemory:
		return ErrorClasses[1]
	case catalog.IsQuestion(name, result):
		return ErrorClasses[3]
	}
	return ErrorClasses[2]
}

// Run reports which calls failed, what that means, and of errors that come from earlier work what was launched before. It
// returns a *SortError for a column that there is not.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	counts, err := callspkg.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := NewErrorUse(t, &opt.Filter)
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
	r := &report.Report{Command: "errors", Window: u.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if len(u.Seen.Pids) > 0 && !u.matched() {
		r.NoMatch = u.Seen.Explain(&opt.Filter)
	}
	frees, err := InvalidFrees(t, u, &r.Quality)
	if err != nil {
		return nil, err
	}
	r.Totals = u.totals(len(faults), frees)
	r.Facts = u.facts()
	table, err := u.table(&opt)
	if err != nil {
		return nil, err
	}
	broken := faultTable(t, faults, opt.Top)
	suspects, err := suspectTable(t, faults[:len(broken.Rows)], &opt)
	if err != nil {
		return nil, err
	}
	r.Tables = []report.Table{broken, suspects, invalidFreeTable(t, u, frees, &opt), table, u.quietTable()}
	return r, nil
}

func NewErrorUse(t *timeline.Timeline, f *query.Filter) *ErrorUse {
	return &ErrorUse{Counter: callspkg.NewCounter(t, f), Groups: make(map[ErrorKey]*ErrorGroup), quiet: make(map[ErrorKey]*ErrorGroup)}
}

// matched reports whether the filter let any caller through, failed or not.
func (u *ErrorUse) matched() bool {
	n := u.Seen.Explain(u.Filter)
	return n.Filter == ""
}

// scan reads the results of all calls, and the rest where some are not success.
func (u *ErrorUse) scan() error {
	for _, spans := range [][]timeline.Span{u.T.Memory, u.T.Calls} {
		for _, s := range spans {
			u.Group(s.Group)
			if err := s.Group.Err(); err != nil {
				return u.T.Wrap(err)
			}
		}
	}
	return nil
}

func (u *ErrorUse) Group(g *format.Group) {
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
	names := u.Names.All(u.Name.Dict)
	u.frees.Next()
	for i, start := range u.Start {
		if start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) || u.Result[i] == 0 || u.Flags[i]&timeline.NoResult != 0 {
			continue
		}
		key := ErrorKey{Name: names[u.Name.Index[i]], Result: u.Result[i]}
		groups := u.quiet
		if callspkg.IsError(u.Result[i]) {
			groups = u.Groups
			key.Site = u.Names.ID(u.T.SiteOfCall(u.stack[i], u.site.At(i)))
			u.frees.Add(g, i, u.Kind.At(i), fault.FailedFree{StartNs: start, Pid: u.Pid[i], Tid: u.Tid[i], Stack: u.stack[i],
				Result: u.Result[i], Name: key.Name, Site: key.Site})
		}
		e := groups[key]
		if e == nil {
			e = &ErrorGroup{FirstNs: start, LastNs: start, Stack: u.stack[i], Threads: make(map[origin.Thread]int64)}
			groups[key] = e
		}
		e.add(start, u.stack[i], origin.Thread{Pid: u.Pid[i], Tid: u.Tid[i]}, parent[i] != 0)
	}
}

func (e *ErrorGroup) add(startNs int64, stack int32, th origin.Thread, nested bool) {
	e.Calls++
	if nested {
		e.nested++
	}
	e.Threads[th]++
	e.LastNs = max(e.LastNs, startNs)
	if startNs < e.FirstNs {
		e.FirstNs, e.Stack = startNs, stack
	}
}

func (u *ErrorUse) facts() []report.Fact {
	result := ""
	switch {
	case len(u.Groups) == 0:
		result = "no call returned an error"
	case u.frees.LeftOut > 0:
		result = fmt.Sprintf("%s more failed frees are only counted as failed calls", units.Count(u.frees.LeftOut))
	}
	return report.Facts(ErrorFacts, report.Values{"result": result})
}

func (u *ErrorUse) totals(faults int, frees []InvalidFree) []report.Fact {
	var failed, memory, questions, quiet int64
	for key, e := range u.Groups {
		failed += e.Calls
		switch ErrorClass(u.Names.List[key.Name], key.Result) {
		case "memory":
			memory += e.Calls
		case "question":
			questions += e.Calls
		}
	}
	for _, e := range u.quiet {
		quiet += e.Calls
	}
	return report.Facts(ErrorTotals, report.Values{
		"failed_calls":        failed,
		"asynchronous_errors": int64(faults),
		"out_of_memory":       memory,
		"questions":           questions,
		"no_errors":           quiet,
		"invalid_frees":       countFrees(frees, fault.FreeRefused),
		"double_frees":        countFrees(frees, fault.DoubleFree),
	})
}

// table has a row per function, result and place: the worst class first, then by calls.
func (u *ErrorUse) table(opt *query.Options) (report.Table, error) {
	table := report.Table{Name: "errors", Title: "failed calls", Columns: ErrorColumns, Spare: []string{"thread_count", "last_ns", "processes", "class"}}
	start := u.T.Recording().FromNs
	for key, e := range u.Groups {
		name := u.Names.List[key.Name]
		processes, threads := threadNames(u.T, e.Threads)
		row := table.Add(report.Values{
			"calls":        e.Calls,
			"class":        ErrorClass(name, key.Result),
			"name":         name,
			"result":       int64(key.Result),
			"result_name":  catalog.ResultName(key.Result),
			"first_ns":     e.FirstNs - start,
			"last_ns":      e.LastNs - start,
			"processes":    processes,
			"threads":      threads,
			"thread_count": int64(len(e.Threads)),
			"nested_calls": e.nested,
			"meaning":      catalog.ResultMeaning(key.Result),
			"site":         u.Names.List[key.Site],
		})
		row.StackID, row.Evidence = e.Stack, catalog.ResultMeaning(key.Result)
	}
	rank := func(r *report.Row) int { return slices.Index(ErrorClasses, table.Cell(r, "class").(string)) }
	order := table.Compare("calls", "name", "-result", "site")
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), order(a, b))
	})
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	frames.Fill(u.T, &table, opt)
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
func (u *ErrorUse) quietTable() report.Table {
	table := report.Table{Name: "no_errors", Title: "results that are no error", Columns: QuietColumns, Aside: true}
	for key, e := range u.quiet {
		table.Add(report.Values{
			"calls":       e.Calls,
			"name":        u.Names.List[key.Name],
			"result":      int64(key.Result),
			"result_name": catalog.ResultName(key.Result),
			"meaning":     catalog.ResultMeaning(key.Result),
		})
	}
	table.Sort("calls", "name", "-result")
	return table
}

// faultTable has a row per context that an asynchronous error broke.
func faultTable(t *timeline.Timeline, faults []fault.Fault, top int) report.Table {
	table := report.Table{Name: "asynchronous", Title: "errors of earlier work, where they were noticed first", Columns: FaultColumns, Aside: true, Spare: []string{"context", "device", "tid"}}
	for i := range faults {
		f := &faults[i]
		var context, lastXid any
		if f.Context != 0 {
			context = fmt.Sprintf("0x%x", uint64(f.Context))
		}
		evidence := catalog.ResultMeaning(f.Result) + fmt.Sprintf("; it happened in work that was given to the GPU before %s was called or while it waited: the launches that are listed are suspects, "+
			"the last ones first; every later call in this context returns the same", f.Name)
		if x, ok := fault.XidOf(&t.Facts, f); ok {
			lastXid = fmt.Sprintf("%d, %s before", x.Code, units.Duration(f.EndNs-x.AtNs))
			e, _ := x.Describe()
			evidence += fmt.Sprintf("; the driver reported Xid %d (%s) of this process: %s", x.Code, e.Name, strings.TrimSpace(x.Text))
		}
		table.Add(report.Values{
			"at_ns":       f.EndNs - t.Recording().FromNs,
			"pid":         int64(f.Pid),
			"tid":         int64(f.Tid),
			"context":     context,
			"device":      t.OrdinalLabel(f.Pid, f.Device),
			"call":        f.Name,
			"result":      int64(f.Result),
			"xid":         lastXid,
			"result_name": catalog.ResultName(f.Result),
		}).Evidence = evidence
	}
	if top > 0 && len(table.Rows) > top {
		table.More, table.Rows = len(table.Rows)-top, table.Rows[:top]
	}
	processespkg.AddRanks(t, &table)
	return table
}

// suspectTable lists the launches before faults.
func suspectTable(t *timeline.Timeline, faults []fault.Fault, opt *query.Options) (report.Table, error) {
	table := report.Table{Name: "suspects", Title: "launches before them that may still have been running, the last first", Columns: xid.LaunchColumns, Aside: true, Keys: []string{}, Spare: []string{"tid"}}
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
		xid.AddLaunches(t, &table, f.Label(t), f.EndNs, launches[i])
	}
	frames.Fill(t, &table, opt)
	return table, nil
}
