package xid

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

var XidColumns = []report.Column{
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when, from the recording's start; negative: before it began, from the kernel's log"},
	{Key: "time_ns", Title: "", Unit: report.UnitTime, About: "when"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "GPU, as NVML counts; of an NVSwitch its PCI address"},
	{Key: "kind", Title: "KIND", Unit: report.UnitText, About: "Xid, or SXid: of an NVSwitch"},
	{Key: "code", Title: "CODE", Unit: report.UnitID, About: "number of the error"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process that the driver names; absent if it names none"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "name of the process"},
	{Key: "causes", Title: "CAUSE", Unit: report.UnitText, About: "what it can come from, by NVIDIA's catalogue, in no order: application, driver (or firmware), hardware, host (PCIe, power, cooling), another error or action"},
	{Key: "error", Title: "CUDA ERROR", Unit: report.UnitText, About: "the first asynchronous CUDA error that a call of the process returned from 100 ms before the Xid on (clocks differ): the call and its CUresult"},
	{Key: "error_after_ns", Title: "", Unit: report.UnitNs, About: "from the Xid to the return of that call"},
	{Key: "meaning", Title: "", Unit: report.UnitText, About: "what it means, in plain words"},
	{Key: "action", Title: "", Unit: report.UnitText, About: "what to do"},
	{Key: "text", Title: "", Unit: report.UnitText, About: "the driver's words"},
	{Key: "pci", Title: "", Unit: report.UnitText, About: "PCI address that the driver names"},
	{Key: "sources", Title: "", Unit: report.UnitText, About: "who saw it: tracepoint, kmsg, nvml"},
	{Key: "in_catalogue", Title: "", Unit: report.UnitCount, About: "1 if this version of gpurec knows the code"},
	{Key: "name", Title: "NAME", Unit: report.UnitText, About: "what the code is called"},
}

var XidFacts = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"},
}

var XidTotals = []report.Column{
	{Key: "xids", Title: "Xids", Unit: report.UnitCount, About: "errors of GPUs, those before the recording included"},
	{Key: "sxids", Title: "SXids", Unit: report.UnitCount, About: "errors of NVSwitches"},
	{Key: "xids_before", Title: "before the recording", Unit: report.UnitCount, About: "of both, those from the kernel's log before the recording began"},
	{Key: "hardware_xids", Title: "not of the program", Unit: report.UnitCount, About: "of both, those that no application can cause: hardware, host or driver"},
	{Key: "unknown_codes", Title: "of unknown codes", Unit: report.UnitCount, About: "of both, those whose code this version of gpurec does not know"},
}

// Run reports the errors that the GPU's driver wrote down, what they mean and what the process did just before.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	counts, err := calls.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	faults, err := fault.Find(t)
	if err != nil {
		return nil, err
	}
	r := &report.Report{Command: "xid", Window: opt.Window(t.Recording()), Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	list := XidsOf(t, &opt.Filter, r.Window)
	if len(list) == 0 && len(t.Facts.Xids) > 0 {
		r.NoMatch = noXid(t, &opt.Filter)
	}
	table := report.Table{Name: "xids", Title: "errors reported by the driver", Columns: slices.Clone(XidColumns), Spare: []string{"kind", "process", "error"}}
	switches := false
	for i := range list {
		table.Rows = append(table.Rows, xidRow(t, &list[i], faults))
		switches = switches || list[i].Sxid
	}
	if !switches {
		report.Hide(table.Columns, "kind")
	}
	r.Totals = xidSums(list)
	if r.Facts = report.Fill(XidFacts, ""); len(list) == 0 {
		r.Facts[0].Value = "the driver reported no error, as far as the recorder could see"
	}
	processes.AddRanks(t, &table)
	if err := table.Arrange("", opt.Top); err != nil {
		return nil, err
	}
	launches, err := launchesBeforeXids(t, list[:len(table.Rows)], &opt)
	if err != nil {
		return nil, err
	}
	r.Tables = []report.Table{table, launches}
	return r, nil
}

// XidsOf returns the Xids that the filter lets through. Those before the recording are left out where --from says so.
func XidsOf(t *timeline.Timeline, f *query.Filter, w query.Window) []timeline.Xid {
	var list []timeline.Xid
	for _, x := range t.Facts.Xids {
		early := x.AtNs < w.FromNs && (f.FromNs != 0 || !x.Before)
		if early || x.AtNs > w.ToNs || len(f.Pids) > 0 && !slices.Contains(f.Pids, x.Pid) || len(f.Devices) > 0 && !slices.Contains(f.Devices, x.Device) {
			continue
		}
		list = append(list, x)
	}
	return list
}

func noXid(t *timeline.Timeline, f *query.Filter) *query.NoMatch {
	pids, devices := make(map[int32]bool), make(map[int32]bool)
	for _, x := range t.Facts.Xids {
		pids[x.Pid], devices[x.Device] = true, true
	}
	return query.FirstNoMatch(f.NoProcess(pids), query.NewNoMatch("device", f.Devices, devices, query.PidText))
}

func xidRow(t *timeline.Timeline, x *timeline.Xid, faults []fault.Fault) report.Row {
	e, inCatalogue := x.Describe()
	pid, process, device := xidProcess(t, x)
	var failed, after any
	if f := fault.After(faults, x.Pid, x.AtNs); f != nil && x.Pid != 0 && !x.Before && !x.Sxid {
		failed, after = fmt.Sprintf("%s: %d %s", f.Name, f.Result, catalog.ResultName(f.Result)), f.EndNs-x.AtNs
	}
	knows := int64(0)
	if inCatalogue {
		knows = 1
	}
	evidence := e.Meaning
	if x.Text != "" {
		evidence += "; the driver says: " + strings.TrimSpace(x.Text)
	}
	evidence += "; what to do: " + e.Action
	if failed != nil {
		evidence += fmt.Sprintf("; noticed by %s, %s later: %s", failed, units.Duration(after.(int64)), "see analyze errors")
	}
	if len(x.Sources) > 0 {
		evidence += "; seen by " + units.Enumerated(x.Sources)
	}
	return report.Row{Evidence: evidence, Cells: []any{x.AtNs - t.Recording().FromNs, x.AtNs, device, x.Kind(), x.Code, pid, process, e.Causes.Names(), failed, after,
		e.Meaning, e.Action, units.Known(x.Text), units.Known(x.Pci), x.Sources, knows, e.Name}}
}

// xidProcess names the process and the device of an Xid, as far as they are known.
func xidProcess(t *timeline.Timeline, x *timeline.Xid) (pid, process, device any) {
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
	return pid, units.Known(name), device
}

func xidSums(list []timeline.Xid) []report.Fact {
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
		case e.Causes&(catalog.ByApplication|catalog.ByAnother) == 0:
			hardware++
		}
	}
	return report.Fill(XidTotals, xids, sxids, before, hardware, unknown)
}

// launchesBeforeXids lists what the processes of Xids launched before them.
func launchesBeforeXids(t *timeline.Timeline, list []timeline.Xid, opt *query.Options) (report.Table, error) {
	table := report.Table{Name: "launches_before", Title: "launches before them that may still have been running, the last first", Columns: LaunchColumns, Aside: true, Keys: []string{},
		Spare: []string{"tid"}}
	var moments []fault.Moment
	for i := range list {
		if x := &list[i]; x.Pid != 0 && !x.Before && !x.Sxid {
			moments = append(moments, fault.Moment{AtNs: x.AtNs, Pid: x.Pid})
		}
	}
	launches, err := fault.LaunchesBefore(t, moments, &opt.Filter)
	if err != nil {
		return table, err
	}
	for i := range list {
		x := &list[i]
		if x.Pid == 0 || x.Before || x.Sxid {
			continue
		}
		before := fmt.Sprintf("Xid %d at %s", x.Code, units.Duration(x.AtNs-t.Recording().FromNs))
		table.Rows = append(table.Rows, LaunchRows(t, before, x.AtNs, launches[0])...)
		launches = launches[1:]
	}
	frames.Fill(t, &table, opt)
	return table, nil
}
