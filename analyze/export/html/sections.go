package html

import (
	"cmp"
	"html/template"
	"slices"

	"github.com/gpurec/gpurec/analyze"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// htmlSection is a part of the page.
type htmlSection struct {
	ID, Title string
	About     string // one sentence
	Chart     string // what scripts draw into it: memory, flame, activity, gpus
	Parts     []htmlPart
	Maps      []template.HTML
	Empty     string // why there is nothing, "" if there is something
}

// htmlPart is what the page shows of one report.
type htmlPart struct {
	Facts  []htmlFact
	Tables []htmlTable
	Totals string
	// Unscripted parts say what a chart says, for readers without scripts.
	Unscripted bool
}

// A sectionOf is a section before it is filled in: the texts, and the report that it shows.
type sectionOf struct {
	report.Page
	command string // of the report; "": a chart only
	needs   []string
	// make makes the report; nil: the pass over the recording has made it.
	make func(b *htmlBuilder) (*report.Report, error)
	// skip, if set, reports whether there is nothing to show, and that is known already.
	skip func(b *htmlBuilder) bool
	// nothing, if set, reports whether there is nothing to show although the report has rows.
	nothing func(b *htmlBuilder) bool
}

// charts are sections of their own. Each stands before that of a report.
var charts = map[string]sectionOf{
	"leaks": {Page: report.Page{
		ID: "memory", Title: "Memory over time", Chart: "memory",
		About: "Live bytes by the place that allocated them, exact at each point: of every 200th part of the time " +
			"those with most and with least. A click, or the arrow keys, tells who held what then.",
		Empty: "The recording has no calls or events about memory.",
	}},
	"memory": {
		Page: report.Page{
			ID:    "flame",
			Title: "Flame graph",
			Chart: "flame",
			About: "Stacks from the thread's start downwards, as wide as what they stand for. A click, or Enter, " +
				"zooms; " +
				"frames of CUDA, CPython and the inside of PyTorch are left out.",
			Empty: "The recording has no stacks.",
		},
		nothing: func(b *htmlBuilder) bool { return len(b.calls.byStack) == 0 && len(b.flame.ever) == 0 },
	},
	"kernels": {
		Page: report.Page{
			ID:    "activity",
			Title: "Calls over time",
			Chart: "activity",
			About: "Calls a second. Durations everywhere are those of calls on the CPU, never of kernels on the GPU.",
			Empty: "No calls in the window.",
		},
		nothing: func(b *htmlBuilder) bool { return len(b.calls.byStack) == 0 },
	},
}

// inOnePass are reports of what the page's one pass over the recording has seen; the page does
// not run them again.
var inOnePass = map[string]sectionOf{
	"leaks": {},
	"memory": {make: func(b *htmlBuilder) (*report.Report, error) {
		return b.holders.Report(b.t.Counts)
	}},
	"allocator": {
		make: func(b *htmlBuilder) (*report.Report, error) {
			return b.books.Report(b.program.Allocators, b.t.Counts)
		},
		skip: func(b *htmlBuilder) bool { return len(b.t.Allocations) == 0 },
	},
	"frag": {make: (*htmlBuilder).fragmentation, skip: func(b *htmlBuilder) bool { return b.frag == nil }},
	"oom":  {make: (*htmlBuilder).outOfMemory, skip: (*htmlBuilder).nothingFailed},
}

// processList ends the page.
var processList = sectionOf{
	Page: report.Page{
		ID: "processes", Title: "Processes", About: "Rank, job, container and cgroup of each process.",
		Empty: "Nothing is recorded of the processes' ranks, jobs or containers, and their cgroup is the same.",
	},
	command: "processes",
	make: func(b *htmlBuilder) (*report.Report, error) {
		table := processes.NewTable(b.t, &b.opt.Filter)
		return &report.Report{Command: "processes", Tables: []report.Table{table}}, table.Arrange("", b.opt.Top)
	},
}

// pageSections are the page, from top to bottom.
var pageSections = allSections()

func allSections() (list []sectionOf) {
	for _, r := range analyze.Reports {
		if r.Page.Title == "" {
			continue
		}
		if chart, ok := charts[r.Name]; ok {
			list = append(list, chart)
		}
		list = append(list, sectionOfReport(r))
	}
	return append(list, processList)
}

func sectionOfReport(r analyze.Report) sectionOf {
	s, seen := inOnePass[r.Name]
	if !seen {
		s.make = func(b *htmlBuilder) (*report.Report, error) { return r.Run(b.t, b.opt.Options) }
	}
	s.Page, s.command, s.needs = r.Page, r.Name, r.Needs
	s.ID = cmp.Or(s.ID, r.Name)
	if s.Kind != "" {
		s.skip = func(b *htmlBuilder) bool { return b.calls.kinds[s.Kind] == 0 }
	}
	if r.Name == "gpu" {
		s.nothing = func(b *htmlBuilder) bool { return len(b.t.Facts.Samples) == 0 }
	}
	return s
}

func sectionTitle(id string) string {
	i := slices.IndexFunc(pageSections, func(s sectionOf) bool { return s.ID == id })
	return pageSections[i].Title
}

// fragmentation keeps the address maps, too.
func (b *htmlBuilder) fragmentation() (r *report.Report, err error) {
	if err := b.frag.Finish(b.program.Allocators); err != nil {
		return nil, err
	}
	r, b.maps, err = b.frag.Report(b.program)
	return r, err
}

// caching.OutOfMemory tells of the failures that the replay has found.
func (b *htmlBuilder) outOfMemory() (*report.Report, error) {
	all, err := b.failing.Finish()
	if err != nil {
		return nil, err
	}
	return oom.NewReport(b.t, all, b.program, &b.opt.Options)
}

// hasProcessSamples reports whether NVML's counts of processes can be compared with calls.
func hasProcessSamples(t *timeline.Timeline) bool {
	_, ok := t.Facts.Metrics.Ids[catalog.MetricOfProcess]
	return ok
}

// mostMaps is how many address maps a page has.
const mostMaps = 8

// sections fills in the page; a section without anything says why in a sentence.
func (b *htmlBuilder) sections() (list []htmlSection) {
	for i := range pageSections {
		of := &pageSections[i]
		s := htmlSection{ID: of.ID, Title: of.Title, About: of.About, Chart: of.Chart}
		if part, ok := of.part(b.reports[of.command]); ok {
			s.Parts = append(s.Parts, part)
		}
		switch of.ID {
		case "memory":
			if peaks := b.memory.peaks(&b.opt.Options); len(peaks.Rows) > 0 {
				s.Parts = append(s.Parts, htmlPart{Unscripted: true, Tables: []htmlTable{html(&peaks, "memory")}})
			}
		case "frag":
			for i := range b.maps[:min(mostMaps, len(b.maps))] {
				// a strings.Builder takes everything
				if picture, err := svg(&b.maps[i], b.t.Recording().FromNs); err == nil {
					s.Maps = append(s.Maps, picture)
				}
			}
		}
		if b.hasNothing(of, &s) {
			s = htmlSection{ID: of.ID, Title: of.Title, Empty: b.whyEmpty(of)}
		}
		list = append(list, s)
	}
	return list
}

// whyEmpty says why a section has nothing to show.
func (b *htmlBuilder) whyEmpty(of *sectionOf) string {
	if err := quality.Check(b.t, of.command, of.needs); err != nil {
		return "Not known: " + err.Error() + "."
	}
	return of.Empty
}

// hasNothing tells whether there is nothing to show in a section.
func (b *htmlBuilder) hasNothing(of *sectionOf, s *htmlSection) bool {
	if of.nothing != nil {
		return of.nothing(b)
	}
	return !slices.ContainsFunc(s.Parts, func(p htmlPart) bool { return len(p.Tables) > 0 })
}

// part is what the page shows of a report; false if that is nothing.
func (of *sectionOf) part(r *report.Report) (p htmlPart, ok bool) {
	if r == nil {
		return p, false
	}
	p = htmlPart{Totals: render.FactLine(r.Totals)}
	for _, f := range r.Facts {
		if render.IsFactShown(&f) {
			p.Facts = append(p.Facts, htmlFact{f.Title, shortText(f.Unit.Text(f.Value))})
		}
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		if render.IsTableShown(t) && (of.Tables == nil || slices.Contains(of.Tables, t.Name)) {
			p.Tables = append(p.Tables, html(t, of.command))
		}
	}
	return p, len(p.Tables) > 0
}
