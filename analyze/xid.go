package analyze

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// xid is an error that the GPU's driver reported.
type xid struct {
	atNs        int64
	device, pid int32
	code        int64
	sxid        bool // of an NVSwitch
	pci         string
	process     string
	text        string
	sources     []string
	before      bool // the recording
}

func newXid(atNs int64, device, pid int32, name string, code float64, message string) xid {
	x := xid{atNs: atNs, device: device, pid: pid, code: units.RoundInt(code), sxid: name == format.NameSXid, text: message}
	var said format.XidFact
	if strings.HasPrefix(message, "{") && json.Unmarshal([]byte(message), &said) == nil {
		x.pci, x.process, x.text, x.sources, x.before = said.PCI, said.Process, said.Text, said.Sources, said.Before
	}
	return x
}

// kind is what the driver calls it.
func (x *xid) kind() string {
	if x.sxid {
		return "SXid"
	}
	return "Xid"
}

func (x *xid) describe() (catalog.XidEntry, bool) {
	if x.sxid {
		return catalog.DescribeSXid(x.code)
	}
	return catalog.DescribeXid(x.code)
}

var xidColumns = []Column{
	{"at_ns", "AT", UnitNs, "when, from the recording's start; negative: before it began, from the kernel's log"},
	{"time_ns", "", UnitTime, "when"},
	{"device", "DEVICE", UnitText, "GPU, as NVML counts; of an NVSwitch its PCI address"},
	{"kind", "KIND", UnitText, "Xid, or SXid: of an NVSwitch"},
	{"code", "CODE", UnitID, "number of the error"},
	{"pid", "PID", UnitID, "process that the driver names; absent if it names none"},
	{"process", "PROCESS", UnitText, "name of the process"},
	{"causes", "CAUSE", UnitText, "what it can come from, by NVIDIA's catalogue, in no order: application, driver (or firmware), hardware, host (PCIe, power, cooling), another error or action"},
	{"error", "CUDA ERROR", UnitText, "the first asynchronous CUDA error that a call of the process returned from 100 ms before the Xid on (clocks differ): the call and its CUresult"},
	{"error_after_ns", "", UnitNs, "from the Xid to the return of that call"},
	{"meaning", "", UnitText, "what it means, in plain words"},
	{"action", "", UnitText, "what to do"},
	{"text", "", UnitText, "the driver's words"},
	{"pci", "", UnitText, "PCI address that the driver names"},
	{"sources", "", UnitText, "who saw it: tracepoint, kmsg, nvml"},
	{"in_catalogue", "", UnitCount, "1 if this version of gpurec knows the code"},
	{"name", "NAME", UnitText, "what the code is called"},
}

var xidFacts = []Column{
	{"result", "result", UnitText, "set if there is nothing to tell"},
}

var xidTotals = []Column{
	{"xids", "Xids", UnitCount, "errors of GPUs, those before the recording included"},
	{"sxids", "SXids", UnitCount, "errors of NVSwitches"},
	{"xids_before", "before the recording", UnitCount, "of both, those from the kernel's log before the recording began"},
	{"hardware_xids", "not of the program", UnitCount, "of both, those that no application can cause: hardware, host or driver"},
	{"unknown_codes", "of unknown codes", UnitCount, "of both, those whose code this version of gpurec does not know"},
}

// Xids reports the errors that the GPU's driver wrote down, what they mean and what the process did just before.
func (t *Timeline) Xids(opt query.Options) (*Report, error) {
	counts, err := t.countsWhile(func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	faults, err := t.faults()
	if err != nil {
		return nil, err
	}
	r := &Report{Command: "xid", Window: opt.Window(t.Recording()), Quality: t.quality(counts), Notes: t.facts.notes}
	list := t.xidsOf(&opt.Filter, r.Window)
	if len(list) == 0 && len(t.facts.xids) > 0 {
		r.NoMatch = t.noXid(&opt.Filter)
	}
	table := Table{Name: "xids", Title: "errors reported by the driver", Columns: slices.Clone(xidColumns), Spare: []string{"kind", "process", "error"}}
	switches := false
	for i := range list {
		table.Rows = append(table.Rows, t.xidRow(&list[i], faults))
		switches = switches || list[i].sxid
	}
	if !switches {
		hide(table.Columns, "kind")
	}
	r.Totals = xidSums(list)
	if r.Facts = fill(xidFacts, ""); len(list) == 0 {
		r.Facts[0].Value = "the driver reported no error, as far as the recorder could see"
	}
	t.addRanks(&table)
	if err := table.arrange("", opt.Top); err != nil {
		return nil, err
	}
	launches, err := t.launchesBeforeXids(list[:len(table.Rows)], &opt)
	if err != nil {
		return nil, err
	}
	r.Tables = []Table{table, launches}
	return r, nil
}

// xidsOf returns the Xids that the filter lets through. Those before the recording are left out where --from says so.
func (t *Timeline) xidsOf(f *query.Filter, w query.Window) []xid {
	var list []xid
	for _, x := range t.facts.xids {
		early := x.atNs < w.FromNs && (f.FromNs != 0 || !x.before)
		if early || x.atNs > w.ToNs || len(f.Pids) > 0 && !slices.Contains(f.Pids, x.pid) || len(f.Devices) > 0 && !slices.Contains(f.Devices, x.device) {
			continue
		}
		list = append(list, x)
	}
	return list
}

func (t *Timeline) noXid(f *query.Filter) *query.NoMatch {
	pids, devices := make(map[int32]bool), make(map[int32]bool)
	for _, x := range t.facts.xids {
		pids[x.pid], devices[x.device] = true, true
	}
	return query.FirstNoMatch(f.NoProcess(pids), query.NewNoMatch("device", f.Devices, devices, query.PidText))
}

func (t *Timeline) xidRow(x *xid, faults []fault) Row {
	e, inCatalogue := x.describe()
	pid, process, device := t.xidProcess(x)
	var failed, after any
	if f := faultAfter(faults, x.pid, x.atNs); f != nil && x.pid != 0 && !x.before && !x.sxid {
		failed, after = fmt.Sprintf("%s: %d %s", f.name, f.result, catalog.ResultName(f.result)), f.endNs-x.atNs
	}
	knows := int64(0)
	if inCatalogue {
		knows = 1
	}
	evidence := e.Meaning
	if x.text != "" {
		evidence += "; the driver says: " + strings.TrimSpace(x.text)
	}
	evidence += "; what to do: " + e.Action
	if failed != nil {
		evidence += fmt.Sprintf("; noticed by %s, %s later: %s", failed, units.Duration(after.(int64)), "see analyze errors")
	}
	if len(x.sources) > 0 {
		evidence += "; seen by " + units.Enumerated(x.sources)
	}
	return Row{Evidence: evidence, Cells: []any{x.atNs - t.Recording().FromNs, x.atNs, device, x.kind(), x.code, pid, process, e.Causes.Names(), failed, after,
		e.Meaning, e.Action, units.Known(x.text), units.Known(x.pci), x.sources, knows, e.Name}}
}

// xidProcess names the process and the device of an Xid, as far as they are known.
func (t *Timeline) xidProcess(x *xid) (pid, process, device any) {
	if x.pid != 0 {
		pid = int64(x.pid)
	}
	name := x.process
	if name == "" && x.pid != 0 {
		name = t.facts.processes[x.pid].Name
	}
	switch {
	case x.device >= 0:
		device = t.deviceLabel(x.device)
	case x.pci != "":
		device = x.pci
	}
	return pid, units.Known(name), device
}

func xidSums(list []xid) []Fact {
	var xids, sxids, before, hardware, unknown int64
	for i := range list {
		e, inCatalogue := list[i].describe()
		if list[i].sxid {
			sxids++
		} else {
			xids++
		}
		if list[i].before {
			before++
		}
		switch {
		case !inCatalogue:
			unknown++
		case e.Causes&(catalog.ByApplication|catalog.ByAnother) == 0:
			hardware++
		}
	}
	return fill(xidTotals, xids, sxids, before, hardware, unknown)
}

// launchesBeforeXids lists what the processes of Xids launched before them.
func (t *Timeline) launchesBeforeXids(list []xid, opt *query.Options) (Table, error) {
	table := Table{Name: "launches_before", Title: "launches before them that may still have been running, the last first", Columns: launchColumns, Aside: true, Keys: []string{},
		Spare: []string{"tid"}}
	var moments []moment
	for i := range list {
		if x := &list[i]; x.pid != 0 && !x.before && !x.sxid {
			moments = append(moments, moment{atNs: x.atNs, pid: x.pid})
		}
	}
	launches, err := t.launchesBefore(moments, &opt.Filter)
	if err != nil {
		return table, err
	}
	for i := range list {
		x := &list[i]
		if x.pid == 0 || x.before || x.sxid {
			continue
		}
		before := fmt.Sprintf("Xid %d at %s", x.code, units.Duration(x.atNs-t.Recording().FromNs))
		table.Rows = append(table.Rows, t.launchRows(before, x.atNs, launches[0])...)
		launches = launches[1:]
	}
	t.addStacks(&table, opt)
	return table, nil
}
