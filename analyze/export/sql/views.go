package sql

import "github.com/gpurec/gpurec/analyze/report"

// View is one view over recordings. Its first column, except for recording_rows, is recording.
type View struct {
	Name string
	// Columns are the columns in their order, with their meaning. The view recording_rows has them from
	// FORMAT.md instead.
	Columns []report.Column
	query   string // "" if it depends on the recordings
	isOld   bool   // a former name of a view: --explain leaves it out
}

// Views lists all views. A view uses only views before it.
var Views = append([]View{
	{Name: "recording_rows"},
	{Name: "recordings", Columns: recordingColumns},
	{Name: "processes", Columns: processColumns, query: processQuery},
	{Name: "devices", Columns: deviceColumns, query: deviceQuery},
	{Name: "notes", Columns: noteColumns, query: noteQuery},
	{Name: "xids", Columns: xidColumns, query: xidQuery},
	{Name: "samples", Columns: sampleColumns, query: sampleQuery},
	{Name: "stacks", Columns: stackColumns, query: stackQuery},
}, callViews...)

// callViews are the views of calls, and of what follows from calls.
var callViews = []View{
	{Name: "calls", Columns: callColumns, query: callQuery},
	{Name: "launches", Columns: launchColumns, query: launchQuery},
	{Name: "allocations", Columns: allocationColumns, query: allocationQuery},
	{Name: "blocks", Columns: blockColumns, query: blockQuery},
	{Name: "kernel_args", Columns: kernelArgColumns, query: kernelArgQuery},
	{Name: "collectives", Columns: collectiveColumns, query: collectiveQuery},
	{Name: "operations", Columns: operationColumns, query: operationQuery},
	{Name: "works", Columns: workColumns, query: workQuery, isOld: true},
	{Name: "steps", Columns: stepColumns},
}

// Sections describe the columns of the views. --explain prints them.
var Sections = listSections()

func listSections() []report.Section {
	var list []report.Section
	for _, v := range Views {
		if v.Columns != nil && !v.isOld {
			list = append(list, report.Section{Title: v.Name, Columns: v.Columns})
		}
	}
	return list
}

// column returns the description of a column.
func column(name string, unit report.Unit, about string) report.Column {
	return report.Column{Key: name, Unit: unit, About: about}
}

// Columns that several views have.
var (
	recordingColumn   = column("recording", report.UnitText, "Path of the recording, as on the command line.")
	timeColumn        = column("time", report.UnitTime, "start_ns as a timestamp in UTC.")
	startColumn       = column("start_ns", report.UnitTime, "Start of the call or row, Unix ns.")
	durationColumn    = column("dur_ns", report.UnitNs, "Entry to return. NULL: unknown. Open calls: until the end.")
	pidColumn         = column("pid", report.UnitID, "Process.")
	tidColumn         = column("tid", report.UnitID, "Thread.")
	deviceColumn      = column("device", report.UnitID, "CUDA device ordinal in the process. NULL: unknown.")
	gpuColumn         = column("gpu", report.UnitID, "NVML index of the GPU. NULL: none, or unknown.")
	contextColumn     = column("context", report.UnitID, "The thread's current CUcontext at entry. 0: unknown.")
	streamColumn      = column("stream", report.UnitID, "CUstream argument. 0: default, 1: legacy, 2: per-thread.")
	resultColumn      = column("result", report.UnitID, "CUresult; 0 is success. NULL: unknown.")
	isCapturedColumn  = column("is_captured", report.UnitText, "The work was added to a graph and did not run.")
	stackIDColumn     = column("stack_id", report.UnitID, "Number of the stack in the view stacks. 0: no stack.")
	stackStatusColumn = column("stack_status", report.UnitText, "How the stack was recorded: complete, inferred, …")
	siteColumn        = column("site", report.UnitText, "Call site: the innermost frame of the program itself.")
	bytesColumn       = column("bytes", report.UnitBytes, "Requested, copied or set bytes.")
	ptrColumn         = column("ptr", report.UnitID, "Address or handle that the call is about.")
)
