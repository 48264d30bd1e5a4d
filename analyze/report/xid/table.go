package xid

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// xidColumns are the columns of the table of Xids.
var xidColumns = []report.Column{
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "time of the error, from the start of the recording; negative for earlier errors from the kernel log",
	},
	{Key: "time_ns", Title: "", Unit: report.UnitTime, About: "time of the error"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "NVML index of the GPU, or PCI address of the NVSwitch",
	},
	{
		Key: "kind", Title: "KIND", Unit: report.UnitText,
		About: "Xid for an error of a GPU, SXid for an error of an NVSwitch",
	},
	{Key: "code", Title: "CODE", Unit: report.UnitID, About: "number of the Xid"},
	{
		Key: "pid", Title: "PID", Unit: report.UnitID,
		About: "id of the process that the driver names; absent if it names none",
	},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "name of the process"},
	{
		Key: "causes", Title: "CAUSE", Unit: report.UnitText,
		About: "possible causes by NVIDIA's Xid catalogue, unordered: application, driver (or firmware), hardware, " +
			"host (PCIe, power, cooling), another error or action",
	},
	{
		Key: "error", Title: "CUDA ERROR", Unit: report.UnitText,
		About: "first asynchronous CUDA error that a call of the process returned: the call and its CUresult. The " +
			"search starts 100 ms before the Xid, because clocks differ",
	},
	{
		Key: "error_after_ns", Title: "", Unit: report.UnitNs,
		About: "time from the Xid to the return of the call in CUDA ERROR",
	},
	{Key: "meaning", Title: "", Unit: report.UnitText, About: "meaning of the Xid code"},
	{Key: "action", Title: "", Unit: report.UnitText, About: "advice on what to do"},
	{Key: "text", Title: "", Unit: report.UnitText, About: "message of the driver"},
	{Key: "pci", Title: "", Unit: report.UnitText, About: "PCI address in the driver's message"},
	{Key: "sources", Title: "", Unit: report.UnitText, About: "sources that reported the Xid: tracepoint, kmsg, nvml"},
	{Key: "in_catalogue", Title: "", Unit: report.UnitCount, About: "1 if this version of gpurec knows the code"},
	{Key: "name", Title: "NAME", Unit: report.UnitText, About: "name of the Xid code"},
}

// factColumns are the columns of xidFacts.
var factColumns = []report.Column{
	{
		Key:   "result",
		Title: "result",
		Unit:  report.UnitText,
		About: "sentence that is set only if the recording has no Xid",
	},
}

// totalColumns are the columns of totals.
var totalColumns = []report.Column{
	{Key: "xids", Title: "Xids", Unit: report.UnitCount, About: "errors of GPUs, including those before the recording"},
	{Key: "sxids", Title: "SXids", Unit: report.UnitCount, About: "errors of NVSwitches"},
	{
		Key: "xids_before", Title: "before the recording", Unit: report.UnitCount,
		About: "Xids and SXids from before the recording, from the kernel log",
	},
	{
		Key: "hardware_xids", Title: "not of the program", Unit: report.UnitCount,
		About: "Xids and SXids that no application can cause: hardware, host or driver",
	},
	{
		Key: "unknown_codes", Title: "of unknown codes", Unit: report.UnitCount,
		About: "Xids and SXids whose code this version of gpurec does not know",
	},
}

// newXidTable returns a table with one row per Xid.
func newXidTable(t *timeline.Timeline, list []facts.Xid, faults []fault.GPUFault) report.Table {
	table := report.Table{
		Name:      "xids",
		Title:     "errors reported by the driver",
		Columns:   slices.Clone(xidColumns),
		HideFirst: []string{"kind", "process", "error"},
	}
	hasSwitches := false
	for i := range list {
		addXidRow(t, &table, &list[i], faults)
		hasSwitches = hasSwitches || list[i].Sxid
	}
	if !hasSwitches {
		report.HideTitle(table.Columns, "kind")
	}
	processes.AddRankColumn(t, &table)
	return table
}

// addXidRow adds the row of one Xid.
func addXidRow(t *timeline.Timeline, table *report.Table, x *facts.Xid, faults []fault.GPUFault) {
	e, inCatalogue := x.Describe()
	pid, process, device := processAndDevice(t, x)
	var failed, after any
	if f := fault.FindFaultAfter(faults, x.Pid, x.AtNs); f != nil && namesProcess(x) {
		failed, after = fmt.Sprintf("%s: %d %s", f.Name, f.Result, catalog.ResultName(f.Result)), f.EndNs-x.AtNs
	}
	known := int64(0)
	if inCatalogue {
		known = 1
	}
	evidence := e.Meaning
	if x.Text != "" {
		evidence += "; the driver says: " + strings.TrimSpace(x.Text)
	}
	evidence += "; advice: " + e.Action
	if failed != nil {
		evidence += fmt.Sprintf(
			"; first CUDA error: %s, %s later: %s",
			failed,
			units.FormatDuration(after.(int64)),
			"run gpurec analyze errors",
		)
	}
	if len(x.Sources) > 0 {
		evidence += "; reported by " + units.JoinWithAnd(x.Sources)
	}
	table.Add(report.Values{
		"at_ns":          x.AtNs - t.RecordingWindow().FromNs,
		"time_ns":        x.AtNs,
		"device":         device,
		"kind":           x.Kind(),
		"code":           x.Code,
		"pid":            pid,
		"process":        process,
		"causes":         e.Causes.Names(),
		"error":          failed,
		"error_after_ns": after,
		"meaning":        e.Meaning,
		"action":         e.Action,
		"text":           units.TextOrNil(x.Text),
		"pci":            units.TextOrNil(x.Pci),
		"sources":        x.Sources,
		"in_catalogue":   known,
		"name":           e.Name,
	}).Evidence = evidence
}

// processAndDevice returns the process and the device of an Xid, with nil for unknown values.
func processAndDevice(t *timeline.Timeline, x *facts.Xid) (pid, process, device any) {
	if x.Pid != 0 {
		pid = int64(x.Pid)
	}
	name := x.Process
	if name == "" && x.Pid != 0 {
		name = t.Facts.Processes[x.Pid].Name
	}
	switch {
	case x.Device >= 0:
		device = t.DeviceLabel(x.Device)
	case x.Pci != "":
		device = x.Pci
	}
	return pid, units.TextOrNil(name), device
}

// launchTable returns a table with one row per launch. launches is the result of
// launchesBeforeXids.
func launchTable(t *timeline.Timeline, list []facts.Xid, launches [][]fault.Launch, opt *query.Options) report.Table {
	table := report.Table{
		Name: "launches_before", Title: "suspect launches before the Xids, " +
			"the last first", Columns: LaunchBeforeColumns, Secondary: true, Keys: []string{},
		HideFirst: []string{"tid"},
	}
	for i := range list {
		x := &list[i]
		if !namesProcess(x) {
			continue
		}
		before := fmt.Sprintf("Xid %d at %s", x.Code, units.FormatDuration(x.AtNs-t.RecordingWindow().FromNs))
		AddLaunchesBefore(t, &table, before, x.AtNs, launches[0])
		launches = launches[1:]
	}
	frames.FillRowStacks(t, &table, opt)
	return table
}

// xidFacts returns the facts of the report.
func xidFacts(list []facts.Xid) []report.Fact {
	result := ""
	if len(list) == 0 {
		result = "no source of the recorder reported an Xid"
	}
	return report.NewFacts(factColumns, report.Values{"result": result})
}

// computeTotals returns the totals of the report.
func computeTotals(list []facts.Xid) []report.Fact {
	var xids, sxids, before, hardware, unknown int64
	for i := range list {
		e, inCatalogue := list[i].Describe()
		if list[i].Sxid {
			sxids++
		} else {
			xids++
		}
		if list[i].Before {
			before++
		}
		switch {
		case !inCatalogue:
			unknown++
		case e.Causes&(catalog.CauseApplication|catalog.CauseOtherEvent) == 0:
			hardware++
		}
	}
	return report.NewFacts(totalColumns, report.Values{
		"xids":          xids,
		"sxids":         sxids,
		"xids_before":   before,
		"hardware_xids": hardware,
		"unknown_codes": unknown,
	})
}
