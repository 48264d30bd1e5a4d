package cudaerrors

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the columns of Scan.computeFacts.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "sentence that is set only if no call failed, or if the report omits failed frees",
	},
}

// faultColumns are the columns of faultTable.
var faultColumns = []report.Column{
	{
		Key: "at_ns", Title: "NOTICED", Unit: report.UnitNs,
		About: "return of the first call that reported the error, from the start of the recording",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "tid", Title: "TID", Unit: report.UnitID, About: "id of the thread of the call that reported the error"},
	{
		Key: "context", Title: "CONTEXT", Unit: report.UnitText,
		About: "CUDA context that the error made unusable; absent if unknown",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the call that reported the error"},
	{
		Key: "call", Title: "NOTICED BY", Unit: report.UnitText,
		About: "first call that returned the error; an earlier launch caused it",
	},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "CUresult of the call"},
	{
		Key: "xid", Title: "XID", Unit: report.UnitText,
		About: "last Xid of the process before the error, and the time between them; clocks may differ by 100 ms",
	},
	{Key: "result_name", Title: "ERROR", Unit: report.UnitText, About: "name of the CUresult in the CUDA headers"},
}

// InvalidFreeColumns are the columns of NewInvalidFreeTable.
var InvalidFreeColumns = []report.Column{
	{
		Key: "calls", Title: "CALLS", Unit: report.UnitCount,
		About: "number of failed frees that began in the window, with this verdict and these call sites",
	},
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "kind of error. Double free: the memory was freed before, and not allocated again. Inside a block: " +
			"the address is after the start of a live block. Wrong function: the memory is live, and another " +
			"function frees it. Freed with its context: the CUDA context ended first. Unknown pointer: no recorded " +
			"call returned the address",
	},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "CUDA driver function of the failed free"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "size of the block in the first call; absent if its allocation is not in the recording",
	},
	{Key: "memory_kind", Title: "", Unit: report.UnitText, About: "kind of memory of the block"},
	{
		Key: "first_ns", Title: "FIRST", Unit: report.UnitNs,
		About: "start of the first call, from the start of the recording",
	},
	{Key: "last_ns", Title: "", Unit: report.UnitNs, About: "start of the last call, from the start of the recording"},
	{Key: "address", Title: "", Unit: report.UnitText, About: "pointer or handle of the first call"},
	{
		Key: "offset_bytes", Title: "", Unit: report.UnitBytes,
		About: "verdict inside a block: distance of the address from the start of the block",
	},
	{
		Key: "allocated_ns", Title: "", Unit: report.UnitNs,
		About: "return of the call that allocated the block, from the start of the recording",
	},
	{Key: "allocated_tid", Title: "", Unit: report.UnitID, About: "id of the thread that allocated the block"},
	{
		Key: "freed_ns", Title: "", Unit: report.UnitNs,
		About: "time of the earlier free: start of its call (double free), or end of the context (freed with its " +
			"context)",
	},
	{Key: "freed_tid", Title: "", Unit: report.UnitID, About: "id of the thread of the earlier free"},
	{Key: "freed_name", Title: "", Unit: report.UnitText, About: "CUDA driver function of the earlier free"},
	{
		Key: "right_function", Title: "", Unit: report.UnitText,
		About: "verdict wrong function: the function that can free this memory",
	},
	{Key: "result", Title: "", Unit: report.UnitID, About: "CUresult of the failed free"},
	{Key: "result_name", Title: "", Unit: report.UnitText, About: "name of the CUresult in the CUDA headers"},
	{
		Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText,
		About: "confidence in the verdict: high, medium or low",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: lost calls, damaged segments, a recording that began after the " +
			"process",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id of the first call"},
	{Key: "tid", Title: "", Unit: report.UnitID, About: "thread id of the first call"},
	{Key: "allocated_site", Title: "ALLOCATED AT", Unit: report.UnitText, About: "call site that allocated the block"},
	{Key: "freed_site", Title: "FREED AT", Unit: report.UnitText, About: "call site of the earlier free"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "call site of the failed free"},
}

// errorColumns are the columns of Scan.errorTable.
var errorColumns = []report.Column{
	{
		Key: "calls", Title: "CALLS", Unit: report.UnitCount,
		About: "number of calls that began in the window and returned this result",
	},
	{
		Key: "class", Title: "CLASS", Unit: report.UnitText,
		About: "class of the error. Asynchronous: earlier GPU work failed, the call only reports it, and all later " +
			"calls in the context return it too. Memory: out of memory. Call: the call itself is wrong. Question: " +
			"the program tests for something and expects this result",
	},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "CUDA driver function"},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "CUresult of the calls"},
	{Key: "result_name", Title: "ERROR", Unit: report.UnitText, About: "name of the CUresult in the CUDA headers"},
	{
		Key: "first_ns", Title: "FIRST", Unit: report.UnitNs,
		About: "start of the first call, from the start of the recording",
	},
	{
		Key: "last_ns", Title: "LAST", Unit: report.UnitNs,
		About: "start of the last call, from the start of the recording",
	},
	{Key: "processes", Title: "PID", Unit: report.UnitText, About: "process ids of the calls"},
	{
		Key: "threads", Title: "", Unit: report.UnitText,
		About: "ids and names of the threads, most calls first, at most 8",
	},
	{Key: "thread_count", Title: "THREADS", Unit: report.UnitCount, About: "number of threads that made the calls"},
	{
		Key: "nested_calls", Title: "", Unit: report.UnitCount,
		About: "part of CALLS inside another recorded call, which usually returns the same result",
	},
	{Key: "meaning", Title: "", Unit: report.UnitText, About: "meaning of the CUresult"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// nonErrorColumns are the columns of Scan.nonErrorTable.
var nonErrorColumns = []report.Column{
	{
		Key: "calls", Title: "CALLS", Unit: report.UnitCount,
		About: "number of calls that began in the window and returned this result",
	},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "CUDA driver function"},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "CUresult of the calls"},
	{Key: "result_name", Title: "NAME", Unit: report.UnitText, About: "name of the CUresult in the CUDA headers"},
	{
		Key: "meaning", Title: "WHY IT IS NONE", Unit: report.UnitText,
		About: "meaning of the CUresult, which is no error",
	},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{
		Key: "failed_calls", Title: "failed calls", Unit: report.UnitCount,
		About: "calls that returned an error, including class question",
	},
	{
		Key: "asynchronous_errors", Title: "asynchronous", Unit: report.UnitCount,
		About: "CUDA contexts that an asynchronous error made unusable",
	},
	{
		Key: "out_of_memory", Title: "out of memory", Unit: report.UnitCount,
		About: "calls that returned CUDA_ERROR_OUT_OF_MEMORY",
	},
	{
		Key: "questions", Title: "questions", Unit: report.UnitCount,
		About: "failed calls of class question: the program tests for something and expects this result",
	},
	{
		Key: "no_errors", Title: "results other than errors", Unit: report.UnitCount,
		About: "calls that returned CUDA_ERROR_NOT_READY or CUDA_ERROR_DEINITIALIZED, which are no errors",
	},
	{
		Key: "invalid_frees", Title: "invalid frees", Unit: report.UnitCount,
		About: "failed frees with a wrong pointer: see the table invalid_frees",
	},
	{
		Key: "double_frees", Title: "double frees", Unit: report.UnitCount,
		About: "invalid frees of memory that was freed before",
	},
}

// computeFacts returns the facts of the report: whether any call failed, and how many failed frees
// have no verdict.
func (s *Scan) computeFacts() []report.Fact {
	result := ""
	switch {
	case len(s.Groups) == 0:
		result = "no call returned an error"
	case s.frees.LeftOut > 0:
		n := units.FormatCount(s.frees.LeftOut)
		result = fmt.Sprintf("%s more failed frees have no verdict, because there are too many", n)
	}
	return report.NewFacts(factColumns, report.Values{"result": result})
}

// faultTable returns a table with one row per context that an asynchronous error made unusable.
func faultTable(t *timeline.Timeline, faults []fault.GPUFault, top int) report.Table {
	table := report.Table{
		Name:      "asynchronous",
		Title:     "asynchronous errors, by the first call that reported them",
		Columns:   faultColumns,
		Secondary: true,
		HideFirst: []string{"context", "device", "tid"},
	}
	for i := range faults {
		f := &faults[i]
		var context, lastXid any
		if f.Context != 0 {
			context = fmt.Sprintf("0x%x", uint64(f.Context))
		}
		evidence := catalog.ResultMeaning(f.Result) + fmt.Sprintf("; GPU work that was launched before or during %s "+
			"failed: the listed launches are suspects, the last one first; all later calls in this context "+
			"return the same error", f.Name)
		if x, ok := fault.FindXidOfFault(&t.Facts, f); ok {
			lastXid = fmt.Sprintf("%d, %s before", x.Code, units.FormatDuration(f.EndNs-x.AtNs))
			e, _ := x.Describe()
			evidence += fmt.Sprintf(
				"; the driver reported Xid %d (%s) of this process: %s",
				x.Code,
				e.Name,
				strings.TrimSpace(x.Text),
			)
		}
		table.Add(report.Values{
			"at_ns":       f.EndNs - t.RecordingWindow().FromNs,
			"pid":         int64(f.Pid),
			"tid":         int64(f.Tid),
			"context":     context,
			"device":      t.OrdinalDeviceLabel(f.Pid, f.Device),
			"call":        f.Name,
			"result":      int64(f.Result),
			"xid":         lastXid,
			"result_name": catalog.ResultName(f.Result),
		}).Evidence = evidence
	}
	if top > 0 && len(table.Rows) > top {
		table.OmittedRows, table.Rows = len(table.Rows)-top, table.Rows[:top]
	}
	processes.AddRankColumn(t, &table)
	return table
}

// suspectLaunchTable returns a table with one row per launch before an asynchronous error. launches
// is the result of launchesBeforeFaults.
func suspectLaunchTable(
	t *timeline.Timeline,
	faults []fault.GPUFault,
	launches [][]fault.Launch,
	opt *query.Options,
) report.Table {
	table := report.Table{
		Name:      "suspects",
		Title:     "suspect launches before the asynchronous errors, the last first",
		Columns:   xid.LaunchBeforeColumns,
		Secondary: true,
		Keys:      []string{},
		HideFirst: []string{"tid"},
	}
	for i := range faults {
		xid.AddLaunchesBefore(t, &table, faults[i].FormatLabel(t), faults[i].EndNs, launches[i])
	}
	frames.FillRowStacks(t, &table, opt)
	return table
}

// NewInvalidFreeTable returns a table with one row per group of invalid frees.
func NewInvalidFreeTable(t *timeline.Timeline, s *Scan, list []InvalidFree, opt *query.Options) report.Table {
	table := report.Table{
		Name: "invalid_frees", Title: "invalid frees",
		Columns: InvalidFreeColumns, Secondary: true,
		Keys:      []string{"verdict", "name", "allocated_site", "freed_site", "site"},
		HideFirst: []string{"pid", "confidence", "first_ns", "bytes", "allocated_site"},
	}
	for i := range list {
		s.addInvalidFreeRow(&table, &list[i])
	}
	if opt.Top > 0 && len(table.Rows) > opt.Top {
		table.OmittedRows, table.Rows = len(table.Rows)-opt.Top, table.Rows[:opt.Top]
	}
	frames.FillRowStacks(t, &table, opt)
	return table
}

// addInvalidFreeRow adds the row of one group of invalid frees.
func (s *Scan) addInvalidFreeRow(table *report.Table, f *InvalidFree) {
	t := s.T
	since := func(ns int64) int64 { return ns - t.RecordingWindow().FromNs }
	name, site := s.Names.List[f.Name], s.Names.List[f.Site]
	var bytes, memory, offset, allocatedNs, allocatedTid, freedNs, freedTid, freedName any
	if f.Allocated {
		o := &t.Origins.List[f.Block.Origin]
		memory = units.TextOrNil(t.Origins.MemoryKindOf(f.Block.Origin))
		if !f.Block.IsEarlier() {
			allocatedNs, allocatedTid = since(f.Block.SinceNs), int64(o.Tid)
		}
		if f.Block.Bytes > 0 {
			bytes = f.Block.Bytes
		}
	}
	if f.Verdict == fault.VerdictInsideBlock {
		offset = f.Offset
	}
	if f.AtNs > 0 {
		freedNs = since(f.AtNs)
	}
	if f.By != origin.NoOrigin {
		freedTid, freedName = int64(t.Origins.List[f.By].Tid), t.Origins.FunctionOf(f.By)
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
		"right_function":     units.TextOrNil(f.Right),
		"result":             int64(f.Result),
		"result_name":        catalog.ResultName(f.Result),
		"confidence":         f.Level,
		"confidence_reasons": f.Reasons,
		"pid":                int64(f.Pid),
		"tid":                int64(f.Tid),
		"allocated_site":     units.TextOrNil(f.AllocatedAt),
		"freed_site":         units.TextOrNil(f.FreedAt),
		"site":               site,
	})
	row.StackID, row.Evidence = f.Stack, f.evidenceText(t, name, site)
}

// errorTable returns a table with one row per function, result and call site, sorted by class,
// worst first, and then by number of calls.
func (s *Scan) errorTable(opt *query.Options) (report.Table, error) {
	table := report.Table{
		Name:      "errors",
		Title:     "failed calls",
		Columns:   errorColumns,
		HideFirst: []string{"thread_count", "last_ns", "processes", "class"},
	}
	start := s.T.RecordingWindow().FromNs
	for key, e := range s.Groups {
		name := s.Names.List[key.Name]
		processNames, threads := processesAndThreads(s.T, e.Threads)
		row := table.Add(report.Values{
			"calls":        e.Calls,
			"class":        ClassOfError(name, key.Result),
			"name":         name,
			"result":       int64(key.Result),
			"result_name":  catalog.ResultName(key.Result),
			"first_ns":     e.FirstNs - start,
			"last_ns":      e.LastNs - start,
			"processes":    processNames,
			"threads":      threads,
			"thread_count": int64(len(e.Threads)),
			"nested_calls": e.nested,
			"meaning":      catalog.ResultMeaning(key.Result),
			"site":         s.Names.List[key.Site],
		})
		row.StackID, row.Evidence = e.Stack, catalog.ResultMeaning(key.Result)
	}
	rank := func(r *report.Row) int { return slices.Index(ErrorClasses, table.Cell(r, "class").(string)) }
	order := table.RowComparer("calls", "name", "-result", "site")
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), order(a, b))
	})
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	frames.FillRowStacks(s.T, &table, opt)
	return table, nil
}

// processesAndThreads returns the ids of the processes that made calls, and the threads with the
// most calls.
func processesAndThreads(t *timeline.Timeline, calls map[origin.Thread]int64) (processNames, threads []string) {
	const maxNames = 8
	list := slices.SortedFunc(maps.Keys(calls), func(a, b origin.Thread) int {
		return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
	})
	for i, th := range list {
		if i < maxNames {
			threads = append(threads, strings.TrimSpace(fmt.Sprintf("%d %s", th.Tid, t.Facts.Threads[th])))
		}
		if pid := fmt.Sprint(th.Pid); !slices.Contains(processNames, pid) {
			processNames = append(processNames, pid)
		}
	}
	slices.Sort(processNames)
	return processNames, threads
}

// nonErrorTable returns a table with one row per function and result that is no error.
func (s *Scan) nonErrorTable() report.Table {
	table := report.Table{
		Name: "no_errors", Title: "results that are no error", Columns: nonErrorColumns, Secondary: true,
	}
	for key, e := range s.nonErrors {
		table.Add(report.Values{
			"calls":       e.Calls,
			"name":        s.Names.List[key.Name],
			"result":      int64(key.Result),
			"result_name": catalog.ResultName(key.Result),
			"meaning":     catalog.ResultMeaning(key.Result),
		})
	}
	table.Sort("calls", "name", "-result")
	return table
}

// computeTotals returns the sums over the groups. faults is the number of asynchronous errors.
func (s *Scan) computeTotals(faults int, frees []InvalidFree) []report.Fact {
	var failed, memory, questions, nonErrors int64
	for key, e := range s.Groups {
		failed += e.Calls
		switch ClassOfError(s.Names.List[key.Name], key.Result) {
		case "memory":
			memory += e.Calls
		case "question":
			questions += e.Calls
		}
	}
	for _, e := range s.nonErrors {
		nonErrors += e.Calls
	}
	return report.NewFacts(totalColumns, report.Values{
		"failed_calls":        failed,
		"asynchronous_errors": int64(faults),
		"out_of_memory":       memory,
		"questions":           questions,
		"no_errors":           nonErrors,
		"invalid_frees":       CountFreesWithVerdict(frees, fault.VerdictRefused),
		"double_frees":        CountFreesWithVerdict(frees, fault.VerdictDoubleFree),
	})
}
