package analyze

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/pointers"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/analyze/report/streams"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/report/works"
	"github.com/gpurec/gpurec/analyze/report/xid"
)

// Report describes a report: its name, what --explain prints, and how to run it.
type Report struct {
	Name     string             // name on the command line: gpurec analyze NAME
	Sections []report.Section   // tables and columns that --explain prints
	Page     report.HTMLSection // the report's section of the HTML page
	Needs    []string           // classes of calls that the report needs, see gpurec record --record
	// Run computes the report with the options common to all reports.
	Run func(*timeline.Timeline, query.Options) (*report.Report, error)
}

// Reports are all reports. Those with a section of the HTML page are in the order of the page.
var Reports = []Report{
	{"summary", summary.Sections, report.HTMLSection{}, nil, summary.Run},
	{"rules", rules.Sections, report.HTMLSection{}, nil, rules.Run},
	{"leaks", leaks.Sections, leaks.HTMLSection, leaks.NeededCallClasses, leaks.Run},
	{"memory", memory.Sections, memory.HTMLSection, memory.NeededCallClasses, memory.Run},
	{"objects", objects.Sections, objects.HTMLSection, nil, objects.Run},
	{"allocator", allocator.Sections, allocator.HTMLSection, nil, allocator.Run},
	{"frag", frag.Sections, frag.HTMLSection, nil, frag.Run},
	{"oom", oom.Sections, oom.HTMLSection, oom.NeededCallClasses, oom.Run},
	{"kernels", kernels.Sections, kernels.HTMLSection, kernels.NeededCallClasses, kernels.Run},
	{"streams", streams.Sections, streams.HTMLSection, streams.NeededCallClasses, streams.Run},
	{"works", works.Sections, report.HTMLSection{}, works.NeededCallClasses, works.Run},
	{"api", api.Sections, api.HTMLSection, nil, api.Run},
	{"copies", copies.Sections, copies.HTMLSection, copies.NeededCallClasses, copies.Run},
	{"sync", waits.Sections, waits.HTMLSection, waits.NeededCallClasses, waits.Run},
	{"gaps", gaps.Sections, gaps.HTMLSection, gaps.NeededCallClasses, gaps.Run},
	{"changes", changes.Sections, changes.HTMLSection, nil, changes.Run},
	{"steps", steps.Sections, steps.HTMLSection, steps.NeededCallClasses, steps.Run},
	{"cpu", cpu.Sections, cpu.HTMLSection, nil, cpu.Run},
	{"gpu", gpu.Sections, gpu.HTMLSection, nil, gpu.Run},
	{"hang", hang.Sections, hang.HTMLSection, hang.NeededCallClasses, hang.Run},
	{"ranks", ranks.Sections, report.HTMLSection{}, nil, ranks.Run},
	{"xid", xid.Sections, xid.HTMLSection, nil, xid.Run},
	{"pointers", pointers.Sections, pointers.HTMLSection, pointers.NeededCallClasses, pointers.Run},
	{"errors", cudaerrors.Sections, cudaerrors.HTMLSection, nil, cudaerrors.Run},
	{"stacks", stacks.Sections, report.HTMLSection{}, nil, stacks.Run},
}

// FindReport returns the report with a name, or nil if there is none.
func FindReport(name string) *Report {
	if i := slices.IndexFunc(Reports, func(r Report) bool { return r.Name == name }); i >= 0 {
		return &Reports[i]
	}
	return nil
}
