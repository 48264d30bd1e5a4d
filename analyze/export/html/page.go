package html

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/oom"
	qualitypkg "github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// The page is one file that needs nothing else: its scripts, those of lib included, and its
// style are in it, and it forbids the browser to ask anybody for anything (CSP). What tables
// say stands in it as HTML, so that it can be read without scripts; scripts sort and filter
// them, and draw charts from one block of JSON.

//go:embed web/report.html web/report.css web/bundle.js web/lib
var web embed.FS

// htmlScripts run in this order. scripts/bundle_page.sh makes bundle.js from the modules in web/src.
var htmlScripts = []string{
	"web/lib/uPlot.iife.min.js",
	"web/lib/d3.min.js",
	"web/lib/d3-flamegraph.umd.min.js",
	"web/bundle.js",
}

// htmlLicences are those of lib; they go where the libraries go.
var htmlLicences = []string{"web/lib/uplot.LICENSE", "web/lib/d3.LICENSE", "web/lib/d3-flame-graph.LICENSE"}

var htmlStyles = []string{"web/lib/uPlot.min.css", "web/report.css"}

// DefaultRows is how many rows a table of a page has if HTMLOptions.Top is 0.
const DefaultRows = 50

// mostHTMLRows bounds them: a page is no place for a million rows.
const mostHTMLRows = 500

// Options shape a page; the zero value is the whole recording.
type Options struct {
	// Options.Top bounds the rows of each table; 0 is DefaultHTMLRows, and there are never more
	// than 500. GroupBy and Sort do not count.
	query.Options
	// Name is what the recording is called.
	Name string
	// Progress, if it is set, is told of each step before it begins.
	Progress func(step string)
}

// Stats say what a page holds.
type Stats struct {
	Hits    int // what should be looked at: hits of rules above info
	Bytes   int64
	Totals  []reportpkg.Fact // those of leaks, for --fail-on
	Quality reportpkg.Quality
	NoMatch *query.NoMatch
}

// htmlPage is what the template is filled with.
type htmlPage struct {
	Name     string
	Policy   string
	Styles   []template.CSS
	Data     template.JS
	Scripts  []template.JS
	Licences []string
	Facts    []htmlFact
	Weakened []string // what lowers the confidence of all verdicts
	Level    string   // that confidence
	Quality  string
	Notes    []string
	Recorder string // its version
	Verdicts []htmlHit
	Rules    int // how many were checked
	Findings []htmlFinding
	Sections []htmlSection
}

// Write writes a recording as one page that needs no network and nothing else: verdicts, memory
// and calls over time, flame graph, address maps, tables. Its size is bounded whatever the
// recording. The errors are those of reading the recording and of out.
func Write(t *timeline.Timeline, out io.Writer, opt Options) (*Stats, error) {
	t = t.View()
	opt.GroupBy, opt.Sort = "", ""
	opt.Top = min(cmp.Or(opt.Top, DefaultRows), mostHTMLRows)
	opt.MaxFrames = cmp.Or(min(opt.MaxFrames, htmlStackFrames), htmlStackFrames)
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	b := &htmlBuilder{t: t, opt: &opt, reports: make(map[string]*reportpkg.Report)}
	if err := b.read(); err != nil {
		return nil, err
	}
	page, err := b.page()
	if err != nil {
		return nil, err
	}
	text, err := template.ParseFS(web, "web/report.html")
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	var buffer bytes.Buffer
	if err := text.Execute(&buffer, page); err != nil {
		return nil, fmt.Errorf("make page: %w", err)
	}
	n, err := buffer.WriteTo(out)
	if err != nil {
		return nil, err
	}
	leaks := b.reports["leaks"]
	return &Stats{
		Hits:    b.attention(),
		Bytes:   n,
		Totals:  leaks.Totals,
		Quality: leaks.Quality,
		NoMatch: leaks.NoMatch,
	}, nil
}

// htmlBuilder gathers what a page is made of.
type htmlBuilder struct {
	t       *timeline.Timeline
	opt     *Options
	reports map[string]*reportpkg.Report // by command
	hits    []rules.Hit                  // of all rules
	maps    []frag.AddressMap
	frees   int64

	memory   *momentScan
	holders  *memory.Scan
	flame    *flameScan
	lines    *memoryLines
	calls    *callsOverTime
	failures [htmlBuckets]failures
	failed   bool

	// What the replay was for beside that.
	program *timeline.Program
	books   *allocator.Scan
	frag    *frag.Scan // nil: nothing fragments
	failing *oom.FailureScan
}

// read makes the reports, in one replay what can be had of one.
func (b *htmlBuilder) read() error {
	b.calls = newCallsOverTime(b.t, &b.opt.Filter)
	if err := timeline.RunParallel(b.replay, b.calls.scan); err != nil {
		return err
	}
	for _, s := range pageSections {
		if s.make == nil || s.skip != nil && s.skip(b) || len(qualitypkg.Missing(b.t, s.needs)) > 0 {
			continue
		}
		b.opt.Progress(s.command)
		r, err := s.make(b)
		if err != nil {
			return err
		}
		b.reports[s.command] = r
	}
	return nil
}

// replay surveys the recording, and follows memory in the same pass for all that is told of it.
func (b *htmlBuilder) replay() error {
	b.opt.Progress("memory")
	t, opt := b.t, &b.opt.Options
	s, err := rules.NewSurvey(t, opt)
	if err != nil {
		return err
	}
	allocators := allocator.NewTotalsScan(t, &opt.Filter, s.Window)
	b.memory, b.flame, b.lines = newMomentScan(
		t,
		&opt.Filter,
	), newFlameScan(
		t,
		&opt.Filter,
	), newMemoryLines(
		t,
		&opt.Filter,
	)
	b.holders = memory.NewScan(t, &memory.Options{Options: *opt, At: query.AtEnd, Reconcile: hasProcessSamples(t)})
	b.books, b.failing = allocator.NewScan(t, &allocator.Options{Options: *opt}), s.Failing
	if !b.nothingFragments() {
		b.frag = frag.NewScan(t, &frag.Options{Options: *opt})
		if err := b.frag.FindRanges(); err != nil {
			return err
		}
	}
	s.Consumer = func(p *timeline.Program, c *livemem.Change) {
		b.memory.consume(p, c)
		b.flame.consume(p, c)
		if c.Kind == livemem.AllocFailed {
			b.fail(c.AtNs)
		}
	}
	err = s.Run(func(c *livemem.Change) {
		b.holders.Consume(nil, c)
		b.lines.driver(c)
		if b.frag != nil {
			b.frag.Driver(c)
		}
	}, func(a *caching.Allocator, c *caching.Change) {
		allocators.Watch(a, c)
		b.lines.allocator(a, c)
		b.books.Step(a, c)
		if b.frag != nil {
			b.frag.Watch(a, c)
		}
		if c.Op == caching.OutOfMemory {
			b.fail(c.AtNs)
		}
	})
	if err != nil {
		return err
	}
	p := s.Program
	t.Counts = p.Counts()
	b.frees = p.Counts().Frees
	b.program = p
	p.Allocators.All(func(a *caching.Allocator) { b.frees += a.Counts.Frees })
	b.memory.finish()
	b.lines.finish()
	if b.hits, err = s.Check(rules.Checkable(b.t, rules.All())); err != nil {
		return err
	}
	b.reports["leaks"], err = s.Leaks.Report(p, allocators, opt)
	return err
}

// failures are the allocations that failed in a part of the window.
type failures struct{ count, firstNs int64 }

func (b *htmlBuilder) fail(atNs int64) {
	part := (buckets{b.memory.window}).of(atNs)
	if part < 0 || part == htmlBuckets {
		return
	}
	b.failed = true
	f := &b.failures[part]
	if f.count++; f.count == 1 {
		f.firstNs = atNs
	}
}

func (b *htmlBuilder) page() (*htmlPage, error) {
	quality := &b.reports["leaks"].Quality
	p := &htmlPage{Name: units.OneLine(b.opt.Name), Quality: quality.String(), Facts: b.facts()}
	p.Recorder = units.OneLine(b.t.Rec.Meta.GpurecVersion)
	for _, note := range slices.Concat(b.t.Facts.Notes, quality.Notes()) {
		p.Notes = append(p.Notes, render.CutMiddle(units.OneLine(note), 2*longestText))
	}
	p.Notes = p.Notes[:min(mostMarks, len(p.Notes))]
	p.Level, p.Weakened = quality.Confidence(b.frees)
	if n := quality.LostEvents; n > 0 && quality.LostMemoryEvents == 0 {
		p.Weakened = append(p.Weakened, units.Plural(n, "call")+" lost: counts and times are too low by that")
	}
	data, err := b.data()
	if err != nil {
		return nil, fmt.Errorf("make page: %w", err)
	}
	p.Data = template.JS(data) // JSON as encoding/json writes it: no character of it ends a script
	for _, name := range htmlStyles {
		p.Styles = append(p.Styles, template.CSS(asset(name)))
	}
	sources := []string{
		"default-src 'none'",
		"style-src 'unsafe-inline'",
		"img-src data:",
		"base-uri 'none'",
		"form-action 'none'",
	}
	hashes := []string{"script-src"}
	for _, name := range htmlScripts {
		text := asset(name)
		p.Scripts = append(p.Scripts, template.JS(text))
		sum := sha256.Sum256([]byte(text))
		hashes = append(hashes, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	for _, name := range htmlLicences {
		p.Licences = append(p.Licences, asset(name))
	}
	p.Policy = strings.Join(append(sources, strings.Join(hashes, " ")), "; ")
	p.Verdicts, p.Findings, p.Rules = b.verdicts(), b.findings(), len(rules.Checkable(b.t, rules.All()))
	p.Sections = b.sections()
	return p, nil
}

// asset is an embedded file.
func asset(name string) string {
	text, err := web.ReadFile(name)
	if err != nil {
		panic("embedded file " + name + " is missing") // the binary was built without it: a mistake in this package
	}
	return string(text)
}

func (b *htmlBuilder) data() ([]byte, error) {
	t, w := b.t, b.opt.Window(b.t.Recording())
	d := &htmlData{
		FromS: float64(sinceStart(t, w.FromNs)), ToS: float64(sinceStart(t, w.ToNs)),
		Memory: []htmlMemory{}, Groups: []htmlGroup{}, GPUs: gpuData(t, &b.opt.Filter), Activity: b.calls.data(),
	}
	var all texts
	b.memory.data(d, &all, b.opt.FrameRules())
	b.lines.data(d)
	root, _ := flame(t, b.flame, b.calls, b.opt.FrameRules(), &all)
	if len(root.Children) > 0 {
		d.Flame = &htmlFlame{flameMetrics, root}
	}
	d.Marks = ofTimelineMarks(t, w, &b.failures)
	d.Texts = all.List
	return d.script()
}

// facts are what the page says of the recording at its top.
func (b *htmlBuilder) facts() []htmlFact {
	t, m, w := b.t, &b.t.Rec.Meta, b.t.Recording()
	list := []htmlFact{
		{"processes", processesText(t)},
		{"GPUs", devicesText(t)},
		{"host", units.OneLine(m.Host)},
		{"driver", units.OneLine(m.DriverVersion)},
		{"started", reportpkg.UnitTime.Text(w.FromNs)},
		{"duration", units.Duration(w.DurNs())},
	}
	if win := b.opt.Window(w); win != w {
		list = append(
			list,
			htmlFact{"shown", fmt.Sprintf("from %s to %s", query.Offset(win.FromNs, w), query.Offset(win.ToNs, w))},
		)
	}
	var known []htmlFact
	for _, f := range list {
		if f.Value != "" {
			known = append(known, f)
		}
	}
	return known
}

// mostNamed is how many processes or devices are named one by one.
const mostNamed = 12

func processesText(t *timeline.Timeline) string {
	return shortList(t.Facts.Processes, func(pid int32) string { return t.PidLabel(pid) })
}

func devicesText(t *timeline.Timeline) string {
	return shortList(t.Facts.Devices, func(d int32) string { return t.DeviceLabel(d) })
}

// nothingFailed tells that a report about failed allocations has nothing to say.
func (b *htmlBuilder) nothingFailed() bool { return !b.failed }

// nothingFragments tells that there is no memory that can fragment: segments, mapped addresses, pools.
func (b *htmlBuilder) nothingFragments() bool {
	if len(b.t.Allocations) > 0 || len(b.t.Pools(b.t.Recording(), new(query.Filter))) > 0 {
		return false
	}
	for _, s := range b.t.Memory {
		for _, kind := range s.Group.Kinds() {
			if kind == format.KindMap {
				return false
			}
		}
	}
	return true
}
