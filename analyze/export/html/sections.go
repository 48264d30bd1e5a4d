package html

import (
	"cmp"
	"html/template"
	"slices"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// sectionView is a section of the page.
type sectionView struct {
	ID    string
	Title string
	About string // description of the section
	Notes []string
	Chart string // panel that scripts draw: memory, flame, activity, busy, steps, ranks, gpus; "" if none
	Parts []reportView
	Maps  []template.HTML // address maps as SVG
	Empty string          // reason why the section has no data; "" if it has
}

// reportView is the report of a section.
type reportView struct {
	Facts  []factView
	Tables []tableView
	Totals string
	// Unscripted is set for a table that replaces a chart if the browser does not run scripts.
	Unscripted bool
}

// sectionSpec describes a section: its texts, and the report or the chart that it shows.
type sectionSpec struct {
	report.HTMLSection
	command string   // name of the report; "" for a section with a chart only
	needs   []string // classes of calls without which there is no data
	// collect computes the report in the survey of the page.
	collect report.CollectFunc
	// run computes the report from the recording, if collect is nil. Several may run at a time.
	run func(*pageBuilder, *timeline.Timeline, query.Options) (*report.Report, error)
	// skip and isEmpty, if not nil, report whether the report would be empty and need not be made: before the survey of
	// the page, and after it.
	skip, isEmpty func(b *pageBuilder) bool
	// absent, if not nil, reports whether the page does not mention the section.
	absent func(b *pageBuilder) bool
	// nothing, if not nil, reports whether the section has no data, whatever rows its report has.
	nothing func(b *pageBuilder) bool
}

// chartSections are the sections with a chart only. The key is the report whose section follows.
var chartSections = map[string]sectionSpec{
	"leaks": {HTMLSection: report.HTMLSection{
		ID: "memory", Title: "Memory over time", Chart: "memory",
		About: "Live bytes by allocation site. The window has 200 parts, and the chart shows the exact maximum and " +
			"minimum of each part. Click, or use the arrow keys, to list the holders of memory at a time.",
		Empty: "The recording has no calls or events about memory.",
	}},
	"memory": {
		HTMLSection: report.HTMLSection{
			ID:    "flame",
			Title: "Flame graph",
			Chart: "flame",
			About: "Call stacks with the start of the thread at the top. The width of a frame shows the selected " +
				"metric. Click a frame, or press Enter, to zoom. " +
				"Frames of CUDA, of CPython and from the inside of PyTorch are left out.",
			Empty: "The recording has no stacks.",
		},
		nothing: func(b *pageBuilder) bool {
			return len(b.calls.byStack) == 0 && len(b.flame.allocated) == 0 && len(b.host.ns) == 0
		},
	},
	"kernels": {
		HTMLSection: report.HTMLSection{
			ID:    "activity",
			Title: "Calls over time",
			Chart: "activity",
			About: "CUDA driver calls per second. Durations of calls are those on the CPU, not those of kernels on " +
				"the GPU.",
			Empty: "No calls in the window.",
		},
		nothing: func(b *pageBuilder) bool { return len(b.calls.byStack) == 0 },
	},
	"gaps": {
		HTMLSection: report.HTMLSection{
			ID:    "busy",
			Title: "GPU busy over time",
			Chart: "busy",
			About: "Share of the time in which the GPU ran operations of the process, in 200 equal parts of the time " +
				"between its first and its last operation. The line is the probable share, the area is between its " +
				"bounds. The queue has the operations that the host has launched and that have not begun.",
			Empty: "The window has no GPU times. gpurec record --gpu-time auto records them.",
		},
		needs:   gaps.NeededCallClasses,
		nothing: func(b *pageBuilder) bool { return len(b.idle.Devices) == 0 },
	},
}

// processSection is the last section of the page.
var processSection = sectionSpec{
	HTMLSection: report.HTMLSection{
		ID: "processes", Title: "Processes", About: "Rank, job, container and cgroup of each process.",
		Empty: "The processes have no rank, job or container, and all are in the same cgroup.",
	},
	command: "processes",
	collect: func(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
		return func() (*report.Report, error) {
			table := processes.NewProcessTable(sv.Timeline, sv.Filter)
			return &report.Report{Command: "processes", Tables: []report.Table{table}}, table.SortAndCut("", opt.Top)
		}, nil
	},
}

// pageSections are the sections below the verdicts, from top to bottom.
var pageSections = newPageSections()

// newPageSections returns the sections of all reports and charts.
func newPageSections() (list []sectionSpec) {
	for _, r := range analyze.Reports {
		if r.Page.Title == "" {
			continue
		}
		if chart, ok := chartSections[r.Name]; ok {
			list = append(list, chart)
		}
		list = append(list, newReportSection(r))
	}
	return append(list, processSection)
}

// newReportSection returns the section of a report.
func newReportSection(r *report.Definition) sectionSpec {
	s := sectionSpec{HTMLSection: r.Page, command: r.Name, needs: r.Needs, collect: r.Collect}
	s.ID = cmp.Or(s.ID, r.Name)
	s.run = func(_ *pageBuilder, t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		return r.Run(t, opt)
	}
	if s.Kind != "" {
		s.isEmpty = func(b *pageBuilder) bool { return b.calls.kinds[s.Kind] == 0 }
	}
	switch r.Name {
	case "memory":
		s.collect = collectMemory
	case "allocator":
		s.skip = func(b *pageBuilder) bool { return len(b.t.Allocations) == 0 }
	case "blocks":
		s.absent = func(b *pageBuilder) bool { return !blockreadings.Has(b.t) }
		s.skip = s.absent
	case "frag":
		s.skip = (*pageBuilder).hasNoFragmentableMemory
	case "oom":
		s.isEmpty = (*pageBuilder).hasNoFailedAllocation
	case "steps":
		s.run = (*pageBuilder).runSteps
	case "ranks":
		s.absent = func(b *pageBuilder) bool { return !b.hasRanks() }
		s.skip, s.run = s.absent, (*pageBuilder).runRanks
	case "cpu":
		s.absent = func(b *pageBuilder) bool { return !hosttime.HasTimes(b.t) }
		s.skip = s.absent
	case "gpu":
		s.nothing = func(b *pageBuilder) bool { return len(b.t.Facts.Samples) == 0 }
	}
	return s
}

// collectMemory collects the report memory at the end of the window, as the page shows the peaks in a chart.
func collectMemory(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	return memory.CollectWithOptions(sv, memory.Options{
		Options: opt, At: query.MomentEnd, Reconcile: hasProcessSamples(sv.Timeline),
	})
}

// findSectionTitle returns the title of the section with an ID.
func findSectionTitle(id string) string {
	i := slices.IndexFunc(pageSections, func(s sectionSpec) bool { return s.ID == id })
	return pageSections[i].Title
}

// hasProcessSamples reports whether the recording has NVML samples of the memory of single
// processes.
func hasProcessSamples(t *timeline.Timeline) bool {
	_, ok := t.Facts.Metrics.Ids[catalog.MetricProcessMemory]
	return ok
}

// maxAddressMaps is the largest number of address maps in the page.
const maxAddressMaps = 8

// newSectionViews returns all sections. A section without data has only a sentence with the reason.
func (b *pageBuilder) newSectionViews() (list []sectionView) {
	for i := range pageSections {
		spec := &pageSections[i]
		if spec.absent != nil && spec.absent(b) {
			continue
		}
		s := sectionView{ID: spec.ID, Title: spec.Title, About: spec.About, Chart: spec.Chart}
		if part, ok := spec.newReportView(b.reports[spec.command]); ok {
			s.Parts = append(s.Parts, part)
		}
		switch spec.ID {
		case "memory":
			if peaks := b.memory.newPeakTable(&b.opt.Options); len(peaks.Rows) > 0 {
				s.Parts = append(
					s.Parts,
					reportView{Unscripted: true, Tables: []tableView{newTableView(&peaks, "memory")}},
				)
			}
		case "busy":
			s.Notes = b.newBusyNotes()
		case "steps":
			s.Notes = b.newStepsNotes()
		case "ranks":
			s.Notes = b.newRanksNotes()
			if len(b.ranks) == 0 {
				s.Chart = ""
			}
		case "frag":
			maps := frag.MapsOf(b.survey)
			for i := range maps[:min(maxAddressMaps, len(maps))] {
				// drawAddressMap writes to a strings.Builder, which returns no errors.
				if picture, err := drawAddressMap(&maps[i], b.t.RecordingWindow().FromNs); err == nil {
					s.Maps = append(s.Maps, picture)
				}
			}
		}
		if b.isSectionEmpty(spec, &s) {
			s = sectionView{ID: spec.ID, Title: spec.Title, Empty: b.explainEmptySection(spec)}
		}
		list = append(list, s)
	}
	return list
}

// explainEmptySection returns the reason, as a sentence, why a section has no data.
func (b *pageBuilder) explainEmptySection(spec *sectionSpec) string {
	if err := quality.CheckClasses(b.t, cmp.Or(spec.command, spec.Title), spec.needs); err != nil {
		return "Not known: " + err.Error() + "."
	}
	return spec.Empty
}

// isSectionEmpty reports whether a section has no data.
func (b *pageBuilder) isSectionEmpty(spec *sectionSpec, s *sectionView) bool {
	if spec.nothing != nil {
		return spec.nothing(b)
	}
	return !slices.ContainsFunc(s.Parts, func(p reportView) bool { return len(p.Tables) > 0 })
}

// newReportView returns the view of the section's report. ok is false if r is nil or has no table
// to show.
func (spec *sectionSpec) newReportView(r *report.Report) (p reportView, ok bool) {
	if r == nil {
		return p, false
	}
	p = reportView{Totals: render.JoinFacts(r.Totals)}
	for _, f := range r.Facts {
		if render.IsFactShown(&f) {
			p.Facts = append(p.Facts, factView{f.Title, shortenText(f.Unit.FormatValue(f.Value))})
		}
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		if render.IsTableShown(t) && (spec.Tables == nil || slices.Contains(spec.Tables, t.Name)) {
			p.Tables = append(p.Tables, newTableView(t, spec.command))
		}
	}
	return p, len(p.Tables) > 0
}
