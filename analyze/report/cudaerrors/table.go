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
	processespkg "github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell, or not all"},
}

var faultColumns = []report.Column{
	{
		Key: "at_ns", Title: "NOTICED", Unit: report.UnitNs,
		About: "return of the first call that noticed it, from the recording's start",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "tid", Title: "TID", Unit: report.UnitID, About: "thread of that call"},
	{
		Key: "context", Title: "CONTEXT", Unit: report.UnitText,
		About: "context that is broken from then on; absent if not known",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the call"},
	{
		Key: "call", Title: "NOTICED BY", Unit: report.UnitText,
		About: "the call that returned it: where it was noticed, not what caused it",
	},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "the CUresult"},
	{
		Key: "xid", Title: "XID", Unit: report.UnitText,
		About: "the last Xid of the process until then, and how long before; clocks may differ by 100 ms",
	},
	{Key: "result_name", Title: "ERROR", Unit: report.UnitText, About: "its name in CUDA's headers"},
}

var invalidFreeColumns = []report.Column{
	{
		Key: "calls", Title: "CALLS", Unit: report.UnitCount,
		About: "failed frees that began in the window, with this verdict and these sites",
	},
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "double free: freed before, and not allocated again since; inside a block: behind the start of a " +
			"live block; " +
			"wrong function: the memory is live, and another function frees it; freed with its context: the context " +
			"ended first; " +
			"unknown pointer: no recorded call returned it",
	},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "function of the CUDA driver that failed"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "size of the block of the first call; absent if its allocation is not recorded",
	},
	{Key: "memory_kind", Title: "", Unit: report.UnitText, About: "kind of memory of that block"},
	{
		Key: "first_ns", Title: "FIRST", Unit: report.UnitNs,
		About: "entry of the first call, from the recording's start",
	},
	{Key: "last_ns", Title: "", Unit: report.UnitNs, About: "entry of the last one"},
	{Key: "address", Title: "", Unit: report.UnitText, About: "pointer or handle of the first call"},
	{
		Key: "offset_bytes", Title: "", Unit: report.UnitBytes,
		About: "inside a block: the address's distance from the block's start",
	},
	{
		Key: "allocated_ns", Title: "", Unit: report.UnitNs,
		About: "return of the allocation of that block, from the recording's start",
	},
	{Key: "allocated_tid", Title: "", Unit: report.UnitID, About: "thread of the allocation"},
	{
		Key: "freed_ns", Title: "", Unit: report.UnitNs,
		About: "double free: entry of the call that freed it before; freed with its context: end of the context",
	},
	{Key: "freed_tid", Title: "", Unit: report.UnitID, About: "thread of that call"},
	{Key: "freed_name", Title: "", Unit: report.UnitText, About: "function of that call"},
	{
		Key: "right_function", Title: "", Unit: report.UnitText,
		About: "wrong function: the function that frees this memory",
	},
	{Key: "result", Title: "", Unit: report.UnitID, About: "the CUresult"},
	{Key: "result_name", Title: "", Unit: report.UnitText, About: "its name in CUDA's headers"},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "high, medium or low"},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "what lowers it: lost calls, damaged segments, a recording that began after the process",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process of the first call"},
	{Key: "tid", Title: "", Unit: report.UnitID, About: "thread of the first call"},
	{Key: "allocated_site", Title: "ALLOCATED AT", Unit: report.UnitText, About: "allocation site of the block"},
	{Key: "freed_site", Title: "FREED AT", Unit: report.UnitText, About: "site of the free before"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "site of the failed free"},
}

var errorColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window and returned this"},
	{
		Key: "class", Title: "CLASS", Unit: report.UnitText,
		About: "asynchronous: of work given to the GPU earlier, the call only noticed it, and every later call in " +
			"the context returns it too; memory: out of memory; call: about the call itself; question: programs ask " +
			"that way and expect to be told no",
	},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "the CUresult"},
	{Key: "result_name", Title: "ERROR", Unit: report.UnitText, About: "its name in CUDA's headers"},
	{Key: "first_ns", Title: "FIRST", Unit: report.UnitNs, About: "entry of the first one, from the recording's start"},
	{Key: "last_ns", Title: "LAST", Unit: report.UnitNs, About: "entry of the last one"},
	{Key: "processes", Title: "PID", Unit: report.UnitText, About: "processes"},
	{Key: "threads", Title: "", Unit: report.UnitText, About: "threads, those with most of the calls first, at most 8"},
	{Key: "thread_count", Title: "THREADS", Unit: report.UnitCount, About: "number of threads"},
	{
		Key: "nested_calls", Title: "", Unit: report.UnitCount,
		About: "of CALLS, those inside of another recorded call, which mostly returns it too",
	},
	{Key: "meaning", Title: "", Unit: report.UnitText, About: "what the result means, in plain words"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the call",
	},
}

var quietColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window and returned this"},
	{Key: "name", Title: "FUNCTION", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "result", Title: "RESULT", Unit: report.UnitID, About: "the CUresult"},
	{Key: "result_name", Title: "NAME", Unit: report.UnitText, About: "its name in CUDA's headers"},
	{Key: "meaning", Title: "WHY IT IS NONE", Unit: report.UnitText, About: "what it means"},
}

var totalColumns = []report.Column{
	{
		Key: "failed_calls", Title: "failed calls", Unit: report.UnitCount,
		About: "calls that returned an error, questions included",
	},
	{
		Key: "asynchronous_errors", Title: "asynchronous", Unit: report.UnitCount,
		About: "contexts that an asynchronous error broke",
	},
	{
		Key: "out_of_memory", Title: "out of memory", Unit: report.UnitCount,
		About: "calls that returned CUDA_ERROR_OUT_OF_MEMORY",
	},
	{
		Key: "questions", Title: "questions", Unit: report.UnitCount,
		About: "of failed_calls, those by which programs find something out",
	},
	{
		Key: "no_errors", Title: "results that are no error", Unit: report.UnitCount,
		About: "calls that returned not ready, or shutting down",
	},
	{
		Key: "invalid_frees", Title: "invalid frees", Unit: report.UnitCount,
		About: "of failed_calls, frees that are wrong about their pointer: see the table invalid_frees",
	},
	{
		Key: "double_frees", Title: "double frees", Unit: report.UnitCount,
		About: "of invalid_frees, those of memory that was freed before",
	},
}

// facts says whether any call failed, and how many failed frees were not classified.
func (s *Scan) facts() []report.Fact {
	result := ""
	switch {
	case len(s.Groups) == 0:
		result = "no call returned an error"
	case s.frees.LeftOut > 0:
		result = fmt.Sprintf("%s more failed frees are only counted as failed calls", units.Count(s.frees.LeftOut))
	}
	return report.Facts(factColumns, report.Values{"result": result})
}

// faultTable returns a table with a row per context that an asynchronous error broke.
func faultTable(t *timeline.Timeline, faults []fault.Fault, top int) report.Table {
	table := report.Table{
		Name:      "asynchronous",
		Title:     "errors of earlier work, where they were noticed first",
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
		evidence := catalog.ResultMeaning(f.Result) + fmt.Sprintf("; it happened in work that was given to the GPU "+
			"before %s was called or while it waited: the launches that are listed are suspects, "+
			"the last ones first; every later call in this context returns the same", f.Name)
		if x, ok := fault.XidOf(&t.Facts, f); ok {
			lastXid = fmt.Sprintf("%d, %s before", x.Code, units.Duration(f.EndNs-x.AtNs))
			e, _ := x.Describe()
			evidence += fmt.Sprintf(
				"; the driver reported Xid %d (%s) of this process: %s",
				x.Code,
				e.Name,
				strings.TrimSpace(x.Text),
			)
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
		table.OmittedRows, table.Rows = len(table.Rows)-top, table.Rows[:top]
	}
	processespkg.AddRanks(t, &table)
	return table
}

// suspectTable returns a table with a row per launch; launches are those of launchesBefore.
func suspectTable(
	t *timeline.Timeline,
	faults []fault.Fault,
	launches [][]fault.Launch,
	opt *query.Options,
) report.Table {
	table := report.Table{
		Name:      "suspects",
		Title:     "launches before them that may still have been running, the last first",
		Columns:   xid.LaunchColumns,
		Secondary: true,
		Keys:      []string{},
		HideFirst: []string{"tid"},
	}
	for i := range faults {
		xid.AddLaunches(t, &table, faults[i].Label(t), faults[i].EndNs, launches[i])
	}
	frames.Fill(t, &table, opt)
	return table
}

// invalidFreeTable returns a table with a row per group of invalid frees.
func invalidFreeTable(t *timeline.Timeline, s *Scan, list []InvalidFree, opt *query.Options) report.Table {
	table := report.Table{
		Name: "invalid_frees", Title: "invalid frees: what failed frees are about",
		Columns: invalidFreeColumns, Secondary: true,
		Keys:      []string{"verdict", "name", "allocated_site", "freed_site", "site"},
		HideFirst: []string{"pid", "confidence", "first_ns", "bytes", "allocated_site"},
	}
	for i := range list {
		s.addInvalidFree(&table, &list[i])
	}
	if opt.Top > 0 && len(table.Rows) > opt.Top {
		table.OmittedRows, table.Rows = len(table.Rows)-opt.Top, table.Rows[:opt.Top]
	}
	frames.Fill(t, &table, opt)
	return table
}

// addInvalidFree adds the row of a group of invalid frees.
func (s *Scan) addInvalidFree(table *report.Table, f *InvalidFree) {
	t := s.T
	since := func(ns int64) int64 { return ns - t.Recording().FromNs }
	name, site := s.Names.List[f.Name], s.Names.List[f.Site]
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

// table returns a table with a row per function, result and call site: the worst class first,
// then by calls.
func (s *Scan) table(opt *query.Options) (report.Table, error) {
	table := report.Table{
		Name:      "errors",
		Title:     "failed calls",
		Columns:   errorColumns,
		HideFirst: []string{"thread_count", "last_ns", "processes", "class"},
	}
	start := s.T.Recording().FromNs
	for key, e := range s.Groups {
		name := s.Names.List[key.Name]
		processes, threads := threadNames(s.T, e.Threads)
		row := table.Add(report.Values{
			"calls":        e.Calls,
			"class":        ClassOf(name, key.Result),
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
			"site":         s.Names.List[key.Site],
		})
		row.StackID, row.Evidence = e.Stack, catalog.ResultMeaning(key.Result)
	}
	rank := func(r *report.Row) int { return slices.Index(Classes, table.Cell(r, "class").(string)) }
	order := table.Compare("calls", "name", "-result", "site")
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), order(a, b))
	})
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	frames.Fill(s.T, &table, opt)
	return table, nil
}

// threadNames returns the ids of the processes that made calls, and the threads with most calls.
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

// quietTable returns a table with a row per function and result that is not an error.
func (s *Scan) quietTable() report.Table {
	table := report.Table{Name: "no_errors", Title: "results that are no error", Columns: quietColumns, Secondary: true}
	for key, e := range s.quiet {
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

// totals sums up the groups; faults is the number of asynchronous errors.
func (s *Scan) totals(faults int, frees []InvalidFree) []report.Fact {
	var failed, memory, questions, quiet int64
	for key, e := range s.Groups {
		failed += e.Calls
		switch ClassOf(s.Names.List[key.Name], key.Result) {
		case "memory":
			memory += e.Calls
		case "question":
			questions += e.Calls
		}
	}
	for _, e := range s.quiet {
		quiet += e.Calls
	}
	return report.Facts(totalColumns, report.Values{
		"failed_calls":        failed,
		"asynchronous_errors": int64(faults),
		"out_of_memory":       memory,
		"questions":           questions,
		"no_errors":           quiet,
		"invalid_frees":       countFrees(frees, fault.FreeRefused),
		"double_frees":        countFrees(frees, fault.DoubleFree),
	})
}
