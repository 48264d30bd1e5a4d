package pointers

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/kernelargs"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// factColumns are the columns of Scan.computeFacts.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "sentence that is set if there is no error, or if the arguments of launches are not known",
	},
	{
		Key: "older_memory", Title: "older memory", Unit: report.UnitText,
		About: "sentence that is set if the program freed memory from before the recording, which is no error",
	},
}

// faultColumns are the columns of Scan.faultTable.
var faultColumns = []report.Column{
	{
		Key: "at_ns", Title: "NOTICED", Unit: report.UnitNs,
		About: "return of the first call that reported the error, or time of the Xid, from the start of the recording",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key:   "result",
		Title: "RESULT",
		Unit:  report.UnitID,
		About: "CUresult of the call; absent if only the Xid is known",
	},
	{Key: "result_name", Title: "", Unit: report.UnitText, About: "name of the CUresult in the CUDA headers"},
	{
		Key:   "xid",
		Title: "XID",
		Unit:  report.UnitID,
		About: "code of the last Xid of the process before the error; absent: none",
	},
	{
		Key: "address", Title: "XID ADDRESS", Unit: report.UnitText,
		About: "address in the text of the Xid; the driver rounds it to a page",
	},
	{
		Key: "address_is", Title: "", Unit: report.UnitText,
		About: "what is at this address when the error was noticed: live, freed, no known memory and so on",
	},
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches before the error that may still have been running",
	},
	{
		Key: "with_arguments", Title: "WITH ARGUMENTS", Unit: report.UnitCount,
		About: "part of LAUNCHES whose arguments were recorded (record --kernel-args)",
	},
	{
		Key: "suspects", Title: "SUSPECTS", Unit: report.UnitCount,
		About: "arguments of these launches in the table arguments",
	},
	{
		Key: "freed", Title: "FREED", Unit: report.UnitCount,
		About: "part of SUSPECTS that points into memory that was freed",
	},
	{
		Key: "call", Title: "NOTICED BY", Unit: report.UnitText,
		About: "first call that returned the error; absent if only the Xid is known",
	},
}

// argumentColumns are the columns of Scan.argumentTable.
var argumentColumns = []report.Column{
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "the error that followed the launch"},
	{
		Key:   "state",
		Title: "STATE",
		Unit:  report.UnitText,
		About: "what the argument points to. Freed: memory that was freed before the launch, and not allocated " +
			"again. Freed while the kernel may run: freed after the launch by a call that does not wait. Freed to " +
			"the cache: a block of a caching allocator that was freed before the launch; it stays mapped. No known " +
			"memory: no recorded allocation has the address, but others are near it",
	},
	{
		Key:   "kernel_short",
		Title: "KERNEL",
		Unit:  report.UnitText,
		About: "name of the kernel with folded template arguments",
	},
	{Key: "parameter", Title: "PARAMETER", Unit: report.UnitID, About: "number of the parameter, from 0 on"},
	{
		Key:   "inside_bytes",
		Title: "",
		Unit:  report.UnitBytes,
		About: "place of the word in a structure; 0: the parameter itself",
	},
	{Key: "value", Title: "VALUE", Unit: report.UnitText, About: "the argument"},
	{
		Key: "offset_bytes", Title: "OFFSET", Unit: report.UnitBytes,
		About: "distance of the address from the start of the block",
	},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "size of the block; absent if it is unknown"},
	{Key: "memory_kind", Title: "", Unit: report.UnitText, About: "kind of memory of the block"},
	{
		Key: "launched_ns", Title: "LAUNCHED", Unit: report.UnitNs,
		About: "start of the launch, from the start of the recording",
	},
	{Key: "freed_ns", Title: "FREED", Unit: report.UnitNs, About: "time of the free, from the start of the recording"},
	{
		Key:   "allocated_ns",
		Title: "",
		Unit:  report.UnitNs,
		About: "time of the allocation, from the start of the recording",
	},
	{Key: "freed_name", Title: "", Unit: report.UnitText, About: "CUDA driver function of the free"},
	{Key: "freed_tid", Title: "", Unit: report.UnitID, About: "id of the thread of the free"},
	{Key: "stream", Title: "", Unit: report.UnitText, About: "CUDA stream of the launch"},
	{Key: "pid", Title: "", Unit: report.UnitID, About: "process id"},
	{Key: "tid", Title: "", Unit: report.UnitID, About: "id of the thread of the launch"},
	{Key: "layout", Title: "", Unit: report.UnitText, About: "how the parameters are known: calls, module or unknown"},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "confidence: high, medium or low"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "reasons that lower the confidence"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name of the kernel; absent if unknown"},
	{Key: "allocated_site", Title: "ALLOCATED AT", Unit: report.UnitText, About: "call site that allocated the block"},
	{Key: "freed_site", Title: "FREED AT", Unit: report.UnitText, About: "call site of the free"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "call site of the launch"},
}

// launchColumns are the columns of Scan.launchTable.
var launchColumns = []report.Column{
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "the error that followed the launch"},
	{Key: "before_ns", Title: "TIME BEFORE", Unit: report.UnitNs, About: "time from the launch to the error"},
	{
		Key:   "kernel_short",
		Title: "KERNEL",
		Unit:  report.UnitText,
		About: "name of the kernel; for a graph, the driver function",
	},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "CUDA stream of the launch"},
	{Key: "tid", Title: "", Unit: report.UnitID, About: "id of the thread of the launch"},
	{
		Key:   "suspects",
		Title: "SUSPECTS",
		Unit:  report.UnitCount,
		About: "arguments of the launch in the table arguments",
	},
	{Key: "layout", Title: "", Unit: report.UnitText, About: "how the parameters are known: calls, module or unknown"},
	{
		Key:   "arguments",
		Title: "ARGUMENTS",
		Unit:  report.UnitText,
		About: "the values; absent if they were not recorded",
	},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "call site of the launch"},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{
		Key: "faults", Title: "failures", Unit: report.UnitCount,
		About: "contexts whose GPU work failed with an error that an address can cause, and Xids without such an error",
	},
	{
		Key: "uses_after_free", Title: "uses after free", Unit: report.UnitCount,
		About: "arguments before these failures that point into freed memory",
	},
	{
		Key: "unknown_pointers", Title: "unknown pointers", Unit: report.UnitCount,
		About: "arguments before these failures that point into no known memory",
	},
	{
		Key:   "double_frees",
		Title: "double frees",
		Unit:  report.UnitCount,
		About: "frees of memory that was freed before",
	},
	{
		Key: "foreign_frees", Title: "foreign frees", Unit: report.UnitCount,
		About: "failed frees of addresses that no recorded call returned, or that are inside of a block",
	},
	{
		Key: "invalid_frees", Title: "invalid frees", Unit: report.UnitCount,
		About: "all failed frees with a wrong pointer",
	},
}

// recordCommand is the command that records arguments.
const recordCommand = "gpurec record --kernel-args -- COMMAND"

// computeFacts returns the facts of the report.
func (s *Scan) computeFacts(frees []cudaerrors.InvalidFree, q *report.Quality) []report.Fact {
	result, older := "", ""
	unrecorded := 0
	for _, one := range s.Faults {
		unrecorded += len(one.Launches) - one.Recorded
	}
	switch {
	case len(s.Faults) == 0 && len(frees) == 0:
		result = "no free failed because of its pointer, and no work of the GPU failed"
	case len(s.Faults) > 0 && !s.AreRecorded:
		result = "work of the GPU failed, but the arguments of launches were not recorded: use " + recordCommand
	case unrecorded > 0:
		result = fmt.Sprintf(
			"%s before the failures have no recorded arguments: graphs, launches beyond the last ones "+
				"of each stream, or losses",
			units.CountWithNoun(int64(unrecorded), "launch"),
		)
	}
	if n := q.UnmatchedFrees; n > 0 {
		older = fmt.Sprintf("%s of memory from before the recording succeeded: pointers into such memory are not known",
			units.CountWithNoun(n, "free"))
	}
	return report.NewFacts(factColumns, report.Values{"result": result, "older_memory": older})
}

// computeTotals returns the totals of the report.
func (s *Scan) computeTotals(frees []cudaerrors.InvalidFree) []report.Fact {
	var freed, unknown int64
	for i := range s.Arguments {
		switch a := &s.Arguments[i]; {
		case a.IsUseAfterFree():
			freed++
		case a.State == fault.PointerUnknown:
			unknown++
		}
	}
	return report.NewFacts(totalColumns, report.Values{
		"faults":           int64(len(s.Faults)),
		"uses_after_free":  freed,
		"unknown_pointers": unknown,
		"double_frees":     cudaerrors.CountFreesWithVerdict(frees, fault.VerdictDoubleFree),
		"foreign_frees": cudaerrors.CountFreesWithVerdict(frees, fault.VerdictUnknownPointer) +
			cudaerrors.CountFreesWithVerdict(frees, fault.VerdictInsideBlock),
		"invalid_frees": cudaerrors.CountFreesWithVerdict(frees, fault.VerdictRefused),
	})
}

// label returns a short name of the failure for tables.
func (s *Scan) label(one *Fault) string {
	if one.Result == 0 && one.Xid != nil {
		return fmt.Sprintf("Xid %d at %s", one.Xid.Code, units.FormatDuration(one.EndNs-s.t.RecordingWindow().FromNs))
	}
	return one.FormatLabel(s.t)
}

// faultTable returns a table with one row for each failure.
func (s *Scan) faultTable() report.Table {
	table := report.Table{
		Name: "faults", Title: "failures of GPU work that an address can cause", Columns: faultColumns, Secondary: true,
		HideFirst: []string{"address", "pid"},
	}
	for _, one := range s.Faults {
		var suspects, freed int64
		for i := range s.Arguments {
			if a := &s.Arguments[i]; a.Fault == one {
				suspects++
				if a.IsUseAfterFree() {
					freed++
				}
			}
		}
		var code, address, addressIs, result, resultName any
		if one.Xid != nil {
			code = one.Xid.Code
		}
		if one.Address != 0 {
			address, addressIs = fmt.Sprintf("%#x", uint64(one.Address)), one.AddressIs.State.String()
		}
		if one.Result != 0 {
			result, resultName = int64(one.Result), catalog.ResultName(one.Result)
		}
		table.Add(report.Values{
			"at_ns": one.EndNs - s.t.RecordingWindow().FromNs, "pid": int64(one.Pid), "call": units.TextOrNil(one.Name),
			"result": result, "result_name": resultName, "xid": code, "address": address, "address_is": addressIs,
			"launches": int64(len(one.Launches)), "with_arguments": int64(one.Recorded), "suspects": suspects,
			"freed": freed,
		}).Evidence = s.faultText(one, suspects)
	}
	return table
}

// faultText returns a sentence on what is known about the memory before a failure.
func (s *Scan) faultText(one *Fault, suspects int64) string {
	var list []string
	if one.Xid != nil {
		e, _ := one.Xid.Describe()
		list = append(list, fmt.Sprintf("Xid %d (%s): %s", one.Xid.Code, e.Name, strings.TrimSpace(one.Xid.Text)))
	}
	switch {
	case !s.AreRecorded:
		list = append(list, "the arguments of launches were not recorded: use "+recordCommand)
	case one.Recorded == 0:
		list = append(list, "no launch before the error has recorded arguments")
	case suspects == 0:
		list = append(list, "all pointers among the recorded arguments are in live memory: look for an index that is "+
			"out of bounds, or a pointer in memory of the GPU")
	}
	if !one.IsComplete {
		list = append(list, "the recording began after the process: its older memory is not known")
	}
	return strings.Join(list, "; ")
}

// argumentTable returns a table with one row for each suspect argument.
func (s *Scan) argumentTable(opt *query.Options) report.Table {
	table := report.Table{
		Name: "arguments", Title: "arguments that do not point into live memory, the most suspect first",
		Columns: argumentColumns, Secondary: true, Keys: []string{},
		HideFirst: []string{"launched_ns", "offset_bytes", "bytes", "before", "allocated_site"},
	}
	for i := range s.Arguments {
		s.addArgumentRow(&table, &s.Arguments[i])
	}
	if opt.Top > 0 && len(table.Rows) > opt.Top {
		table.OmittedRows, table.Rows = len(table.Rows)-opt.Top, table.Rows[:opt.Top]
	}
	frames.FillRowStacks(s.t, &table, opt)
	return table
}

// addArgumentRow adds the row of a suspect argument.
func (s *Scan) addArgumentRow(table *report.Table, a *Argument) {
	since := func(ns int64) any {
		if ns <= 0 {
			return nil
		}
		return ns - s.t.RecordingWindow().FromNs
	}
	allocated, freed := s.Sites(a)
	var bytes, allocatedNs, freedName, freedTid, offset any
	if a.State != fault.PointerUnknown {
		offset, allocatedNs = a.Offset, since(a.Block.SinceNs)
		if a.Block.Bytes > 0 {
			bytes = a.Block.Bytes
		}
	}
	if a.By != origin.NoOrigin {
		freedName, freedTid = s.t.Origins.FunctionOf(a.By), int64(s.t.Origins.List[a.By].Tid)
	}
	row := table.Add(report.Values{
		"before": s.label(a.Fault), "state": a.State.String(), "kernel_short": shortKernel(a.Launch),
		"parameter": int64(a.Index), "inside_bytes": a.Inside, "value": fmt.Sprintf("%#x", uint64(a.Word)),
		"offset_bytes": offset, "bytes": bytes, "memory_kind": units.TextOrNil(a.Memory),
		"launched_ns": since(a.Launch.StartNs), "freed_ns": since(a.FreedNs), "allocated_ns": allocatedNs,
		"freed_name": freedName, "freed_tid": freedTid, "stream": query.StreamName(a.Launch.Stream),
		"pid": int64(a.Fault.Pid), "tid": int64(a.Launch.Tid), "layout": a.Layout, "confidence": a.Level,
		"confidence_reasons": a.Reasons, "kernel": units.TextOrNil(a.Launch.Kernel),
		"allocated_site": units.TextOrNil(allocated), "freed_site": units.TextOrNil(freed), "site": s.LaunchSite(a),
	})
	row.StackID, row.Evidence = a.Launch.Stack, s.Text(a)
}

// shortKernel returns the name of the kernel of a launch.
func shortKernel(l *Launch) string {
	if l.Kernel == "" {
		return l.Name
	}
	return symbolize.ShortKernel(l.Kernel)
}

// maxLaunchRows is the largest number of launches of a failure in the table of launches.
const maxLaunchRows = 16

// launchTable returns a table with the last launches before each failure.
func (s *Scan) launchTable() report.Table {
	table := report.Table{
		Name: "launches", Title: "launches before the failures, the last first", Columns: launchColumns,
		Secondary: true, Keys: []string{}, HideFirst: []string{"before"},
	}
	for _, one := range s.Faults {
		for i := range one.Launches {
			if i == maxLaunchRows {
				table.OmittedRows += len(one.Launches) - i
				break
			}
			l := &one.Launches[i]
			var layout, arguments any
			if l.HasArguments {
				layout, arguments = l.Arguments.Layout, kernelargs.FormatText(&l.Arguments)
				if l.Arguments.Layout == format.ArgumentsUnknown && len(l.Arguments.Values) == 0 {
					arguments = l.Arguments.Missing
				}
			}
			table.Add(report.Values{
				"before": s.label(one), "before_ns": one.EndNs - l.StartNs, "kernel_short": shortKernel(l),
				"stream": query.StreamName(l.Stream), "tid": int64(l.Tid), "suspects": int64(l.Suspects),
				"layout": layout, "arguments": arguments, "site": s.t.SiteOfCall(l.Stack, l.Site),
			}).Brief = true
		}
	}
	return table
}
