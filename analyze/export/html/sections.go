package html

import (
	"html/template"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/format"
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
	Title  string // where a section has several
	Facts  []htmlFact
	Tables []htmlTable
	Totals string
	// Unscripted parts say what a chart says, for readers without scripts.
	Unscripted bool
}

// sectionOf describes a section: of which reports it is made, which of their tables it shows,
// and what it says where there is nothing to show.
type sectionOf struct {
	id, title, about, chart string
	reports                 []reportOf
	empty                   string
	// nothing, if set, tells that there is nothing although a report has rows.
	nothing func(b *htmlBuilder) bool
}

type reportOf struct {
	command, title string
	make           func(b *htmlBuilder) (*reportpkg.Report, error) // nil: it is made already
	tables         []string                                        // nil: all
	skip           func(b *htmlBuilder) bool                       // there is nothing to tell, and that is known already
}

// simple makes a report that takes nothing but Options.
func simple(report func(*timeline.Timeline, query.Options) (*reportpkg.Report, error)) func(*htmlBuilder) (*reportpkg.Report, error) {
	return func(b *htmlBuilder) (*reportpkg.Report, error) { return report(b.t, b.opt.Options) }
}

// without tells that there were no calls of a kind.
func without(kind string) func(*htmlBuilder) bool {
	return func(b *htmlBuilder) bool { return b.calls.kinds[kind] == 0 }
}

// htmlSections are the page, from top to bottom.
var htmlSections = []sectionOf{
	{id: "memory", title: "Memory over time", chart: "memory",
		about: "Live bytes by the place that allocated them, exact at each point: of every 200th part of the time those with most and with least. A click, or the arrow keys, tells who held what then.",
		empty: "The recording has no calls or events about memory."},
	{id: "leaks", title: "Leaks", about: "What became of the memory that each place allocated.",
		reports: []reportOf{{command: "leaks"}}, empty: "Nothing was allocated in the window."},
	{id: "flame", title: "Flame graph", chart: "flame",
		about: "Stacks from the thread's start downwards, as wide as what they stand for. A click, or Enter, zooms; frames of CUDA, CPython and the inside of PyTorch are left out.",
		empty: "The recording has no stacks."},
	{id: "holders", title: "Who has the driver's memory", about: "What calls explain of what the driver counts, by library and place, at the end.",
		reports: []reportOf{{command: "memory", make: func(b *htmlBuilder) (*reportpkg.Report, error) {
			return memory.MemoryReport(b.t, b.holders, b.t.Counts)
		}}}, empty: "The recording has no calls about the driver's memory."},
	{id: "allocator", title: "PyTorch's allocator", about: "Its books, exactly.",
		reports: []reportOf{{command: "allocator", tables: []string{"allocators", "peaks", "pools", "events"},
			skip: func(b *htmlBuilder) bool { return len(b.t.Allocations) == 0 },
			make: func(b *htmlBuilder) (*reportpkg.Report, error) {
				return b.books.Report(b.program.Allocators, b.t.Counts)
			}}}, empty: "No events of PyTorch's caching allocator were recorded."},
	{id: "frag", title: "Fragmentation and address map", about: "What is reserved and cannot be used, whose blocks keep it, and what addresses were used for over time.",
		reports: []reportOf{{command: "frag", tables: []string{"spaces", "pins", "trends"}, skip: func(b *htmlBuilder) bool { return b.frag == nil }, make: (*htmlBuilder).fragmentation}},
		empty:   "Nothing that can fragment is known: no caching allocator, no mapped addresses, no memory pool that the program asked about."},
	{id: "oom", title: "Out of memory", about: "Every allocation that failed, why, and who held the memory.",
		reports: []reportOf{{command: "oom", skip: (*htmlBuilder).nothingFailed, make: (*htmlBuilder).outOfMemory}}, empty: "No allocation failed."},
	{id: "activity", title: "Calls over time", chart: "activity", about: "Calls a second. Durations everywhere are those of calls on the CPU, never of kernels on the GPU.", empty: "No calls in the window."},
	{id: "kernels", title: "Kernels", about: "Which kernels were launched, how often and from where.",
		reports: []reportOf{{command: "kernels", skip: without(format.KindLaunch), make: simple(kernels.Run)}}, empty: "No kernel was launched in the window."},
	{id: "api", title: "CUDA calls", about: "How often each function of the driver was called, and how long that took the CPU.",
		reports: []reportOf{{command: "api", make: simple(api.Run)}}, empty: "No calls in the window."},
	{id: "copies", title: "Copies", about: "By direction, size and kind of host memory.",
		reports: []reportOf{{command: "copies", skip: without(format.KindMemcpy), make: simple(copies.Run)}}, empty: "No copies in the window."},
	{id: "sync", title: "Waiting", about: "Where threads waited for the GPU.",
		reports: []reportOf{{command: "sync", skip: without(format.KindSync), make: simple(waits.Run)}}, empty: "No thread waited for the GPU in the window."},
	{id: "gaps", title: "Gaps", about: "When a process gave the GPU nothing to do, and what it did then.",
		reports: []reportOf{{command: "gaps", skip: without(format.KindLaunch), make: func(b *htmlBuilder) (*reportpkg.Report, error) {
			return gaps.Run(b.t, gaps.Options{Options: b.opt.Options})
		}}},
		empty: "Nothing was launched in the window."},
	{id: "gpu", title: "GPUs", chart: "gpus", about: "What NVML sampled: how busy the GPUs were, what held their clocks down, how healthy they are.",
		reports: []reportOf{{command: "gpu", tables: []string{"verdicts", "throttling", "health", "processes"}, make: simple(gpu.Run)}},
		empty:   "The recording has no NVML samples.", nothing: func(b *htmlBuilder) bool { return len(b.t.Facts.Samples) == 0 }},
	{id: "hang", title: "Hangs", about: "What processes and threads did at the end.",
		reports: []reportOf{{command: "hang", make: func(b *htmlBuilder) (*reportpkg.Report, error) {
			return hang.Run(b.t, hang.Options{Options: b.opt.Options})
		}}}, empty: "No calls in the window."},
	{id: "xid", title: "Xids", about: "Errors that the GPU's driver wrote down.",
		reports: []reportOf{{command: "xid", make: simple(xid.Run)}}, empty: "The driver reported no error in the window, as far as it was watched: see the notes below."},
	{id: "errors", title: "Failed calls", about: "Which calls failed, and what that means.",
		reports: []reportOf{{command: "errors", make: simple(cudaerrors.Run)}}, empty: "No call failed."},
	{id: "processes", title: "Processes", about: "Rank, job, container and cgroup of each process.",
		reports: []reportOf{{command: "processes", make: func(b *htmlBuilder) (*reportpkg.Report, error) {
			table := processes.NewTable(b.t, &b.opt.Filter)
			return &reportpkg.Report{Command: "processes", Tables: []reportpkg.Table{table}}, table.Arrange("", b.opt.Top)
		}}},
		empty: "Nothing is recorded of the processes' ranks, jobs or containers, and their cgroup is the same."},
}

func sectionTitle(id string) string {
	i := slices.IndexFunc(htmlSections, func(s sectionOf) bool { return s.id == id })
	return htmlSections[i].title
}

// fragmentation keeps the address maps, too.
func (b *htmlBuilder) fragmentation() (r *reportpkg.Report, err error) {
	if err := b.frag.Finish(b.program.Allocators); err != nil {
		return nil, err
	}
	r, b.maps, err = b.frag.Report(b.program)
	return r, err
}

// caching.OutOfMemory tells of the failures that the replay has found.
func (b *htmlBuilder) outOfMemory() (*reportpkg.Report, error) {
	all, err := b.failing.Finish()
	if err != nil {
		return nil, err
	}
	return oom.OomReport(b.t, all, b.program, &b.opt.Options)
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
	for i := range htmlSections {
		of := &htmlSections[i]
		s := htmlSection{ID: of.id, Title: of.title, About: of.about, Chart: of.chart}
		for _, r := range of.reports {
			if part, ok := r.part(b.reports[r.command]); ok {
				s.Parts = append(s.Parts, part)
			}
		}
		switch of.id {
		case "memory":
			if peaks := b.memory.peaks(&b.opt.Options); len(peaks.Rows) > 0 {
				s.Parts = append(s.Parts, htmlPart{Unscripted: true, Tables: []htmlTable{html(&peaks, "memory")}})
			}
		case "frag":
			for i := range b.maps[:min(mostMaps, len(b.maps))] {
				if picture, err := svg(&b.maps[i], b.t.Recording().FromNs); err == nil { // a strings.Builder takes everything
					s.Maps = append(s.Maps, picture)
				}
			}
		}
		if b.hasNothing(of, &s) {
			s = htmlSection{ID: of.id, Title: of.title, Empty: b.whyEmpty(of)}
		}
		list = append(list, s)
	}
	return list
}

// whyEmpty says why a section has nothing to show.
func (b *htmlBuilder) whyEmpty(of *sectionOf) string {
	for _, r := range of.reports {
		if err := quality.Needs(b.t, r.command); err != nil {
			return "Not known: " + err.Error() + "."
		}
	}
	return of.empty
}

// hasNothing tells whether there is nothing to show in a section.
func (b *htmlBuilder) hasNothing(of *sectionOf, s *htmlSection) bool {
	switch {
	case of.nothing != nil:
		return of.nothing(b)
	case of.id == "flame":
		return len(b.calls.byStack) == 0 && len(b.flame.ever) == 0
	case of.id == "activity":
		return len(b.calls.byStack) == 0
	}
	return !slices.ContainsFunc(s.Parts, func(p htmlPart) bool { return len(p.Tables) > 0 })
}

// part is what the page shows of a report; false if that is nothing.
func (of *reportOf) part(r *reportpkg.Report) (p htmlPart, ok bool) {
	if r == nil {
		return p, false
	}
	p = htmlPart{Title: of.title, Totals: render.FactLine(r.Totals)}
	for _, f := range r.Facts {
		if render.Shown(&f) {
			p.Facts = append(p.Facts, htmlFact{f.Title, shortText(f.Unit.Text(f.Value))})
		}
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		if render.OfTableShown(t) && (of.tables == nil || slices.Contains(of.tables, t.Name)) {
			p.Tables = append(p.Tables, html(t, of.command))
		}
	}
	return p, len(p.Tables) > 0
}
