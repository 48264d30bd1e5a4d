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
	"sync"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// The page is one file without external resources. It contains its style sheet, its scripts and
// their libraries. Its Content-Security-Policy (CSP) forbids any network request. Tables are plain
// HTML, so they can be read without scripts. Scripts make tables sortable, and draw charts from a
// JSON block.

//go:embed web/report.html web/report.css web/bundle.js web/lib
var webFiles embed.FS

// scriptFiles are the scripts of the page, in the order in which they run. scripts/bundle_page.sh
// builds bundle.js from the modules in web/src.
var scriptFiles = []string{
	"web/lib/uPlot.iife.min.js",
	"web/lib/d3.min.js",
	"web/lib/d3-flamegraph.umd.min.js",
	"web/bundle.js",
}

// licenceFiles are the licences of the libraries in web/lib. The page contains them.
var licenceFiles = []string{"web/lib/uplot.LICENSE", "web/lib/d3.LICENSE", "web/lib/d3-flame-graph.LICENSE"}

// styleFiles are the style sheets of the page. Later ones override earlier ones.
var styleFiles = []string{"web/lib/uPlot.min.css", "web/report.css"}

// DefaultTableRows is the largest number of rows of each table if Options.Top is 0.
const DefaultTableRows = 50

// maxTableRows is the largest value of Options.Top. It limits the size of the page.
const maxTableRows = 500

// Options are the options of WritePage. The zero value selects the whole recording.
type Options struct {
	// Options.Top is the largest number of rows of each table, at most 500; 0 means
	// DefaultTableRows. GroupBy and Sort are ignored.
	query.Options
	// Name is the name of the recording in the title of the page and in commands.
	Name string
	// Progress, if not nil, is called with the name of each step, one call at a time.
	Progress func(step string)
}

// PageStats describe a page that WritePage has written.
type PageStats struct {
	Hits    int           // hits of rules with severity problem or notice
	Bytes   int64         // size of the page
	Totals  []report.Fact // totals of the report leaks, for --fail-on
	Quality report.Quality
	NoMatch *query.NoMatchError // set if the filter selects nothing
}

// pageView is the data of the template web/report.html.
type pageView struct {
	Name     string // name of the recording
	Policy   string // value of Content-Security-Policy
	Styles   []template.CSS
	Data     template.JS // chartData as JSON
	Scripts  []template.JS
	Licences []string
	Facts    []factView
	Weakened []string // reasons for a confidence below high
	Level    string   // confidence of the verdicts about memory
	Quality  string
	Notes    []string
	Recorder string // version of the gpurec that made the recording
	Verdicts []hitView
	Rules    int // number of checked rules
	Findings []findingView
	Sections []sectionView
}

// WritePage writes the page of a recording to out: hits of rules, memory and calls over time, flame
// graph, address maps and tables. The size of the page is limited, independent of the recording's
// size. WritePage returns an error if it cannot read the recording or write to out.
func WritePage(t *timeline.Timeline, out io.Writer, opt Options) (*PageStats, error) {
	t = t.NewView()
	opt.GroupBy, opt.Sort, opt.MaxTimedCalls = "", "", query.PageTimedCalls
	opt.Top = min(cmp.Or(opt.Top, DefaultTableRows), maxTableRows)
	opt.MaxFrames = cmp.Or(min(opt.MaxFrames, maxStackFrames), maxStackFrames)
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	b := &pageBuilder{
		t: t, opt: &opt, reports: make(map[string]*report.Report), survey: survey.New(t, &opt.Filter),
	}
	if err := b.runReports(); err != nil {
		return nil, err
	}
	page, err := b.newPageView()
	if err != nil {
		return nil, err
	}
	text, err := template.ParseFS(webFiles, "web/report.html")
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
	stats := &PageStats{
		Hits:    b.countProblemsAndNotices(),
		Bytes:   n,
		Totals:  b.rules.Leaks.Totals(b.rules.LeakFindings),
		Quality: b.rules.Quality,
	}
	if leaks := b.reports["leaks"]; leaks != nil {
		stats.NoMatch = leaks.NoMatch
	}
	return stats, nil
}

// pageBuilder collects the data of a page.
type pageBuilder struct {
	t       *timeline.Timeline
	opt     *Options
	mu      sync.Mutex                // of reports and Options.Progress
	reports map[string]*report.Report // reports of the page, by command
	survey  *survey.Survey            // of the charts, the rules and most reports
	rules   *rules.Scan
	hits    []rules.Hit // hits of all rules, the most severe first

	memory   *momentScan
	flame    *flameScan
	lines    *memoryLines
	calls    *callsOverTime
	gpuTimes *gpuFlame
	host     *hostFlame
	idle     *idle.Result         // of readIdleTimes
	steps    []steps.ProcessSteps // of runSteps
	ranks    []ranks.Lateness     // of runRanks
	changes  []changes.Mark       // of addChanges
	levels   *change.Memory       // memory of the programs, for addChanges
	// comparedRanks is the number of ranks that the report ranks compares, of runRanks.
	comparedRanks int
	failures      [numWindowBuckets]bucketFailures
	failed        bool // an allocation failed in the window
	// hasChanges is set if the report changes has the classes of calls that it needs.
	hasChanges bool
}

// newPageView returns the data of the template. runReports must have returned before.
func (b *pageBuilder) newPageView() (*pageView, error) {
	quality := &b.rules.Quality
	p := &pageView{Name: units.SanitizeText(b.opt.Name), Quality: quality.String(), Facts: b.newFactViews()}
	p.Recorder = units.SanitizeText(b.t.Rec.Meta.GpurecVersion)
	for _, note := range slices.Concat(b.t.Facts.Notes, quality.Notes()) {
		p.Notes = append(p.Notes, render.CutTextMiddle(units.SanitizeText(note), 2*maxTextChars))
	}
	p.Notes = p.Notes[:min(maxChartMarks, len(p.Notes))]
	p.Level, p.Weakened = quality.Confidence(b.countFrees())
	if n := quality.LostEvents; n > 0 && quality.LostMemoryEvents == 0 {
		p.Weakened = append(p.Weakened, units.CountWithNoun(n, "call")+" lost: counts and times are too low")
	}
	data, err := b.encodeChartData()
	if err != nil {
		return nil, fmt.Errorf("make page: %w", err)
	}
	p.Data = template.JS(data) // safe in HTML: encoding/json escapes <, > and &
	for _, name := range styleFiles {
		p.Styles = append(p.Styles, template.CSS(readAsset(name)))
	}
	sources := []string{
		"default-src 'none'",
		"style-src 'unsafe-inline'",
		"img-src data:",
		"base-uri 'none'",
		"form-action 'none'",
	}
	hashes := []string{"script-src"}
	for _, name := range scriptFiles {
		text := readAsset(name)
		p.Scripts = append(p.Scripts, template.JS(text))
		sum := sha256.Sum256([]byte(text))
		hashes = append(hashes, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	for _, name := range licenceFiles {
		p.Licences = append(p.Licences, readAsset(name))
	}
	p.Policy = strings.Join(append(sources, strings.Join(hashes, " ")), "; ")
	p.Verdicts, p.Findings, p.Rules = b.newHitViews(), b.newFindingViews(), len(
		rules.SelectCheckable(b.t, rules.AllRules()),
	)
	p.Sections = b.newSectionViews()
	return p, nil
}

// countFrees returns the number of frees of driver memory and of blocks of caching allocators.
func (b *pageBuilder) countFrees() int64 {
	p := &b.survey.Memory
	frees := p.DriverCounts().Frees
	p.Allocators.EachAllocator(func(a *caching.Allocator) { frees += a.Counts.Frees })
	return frees
}

// readAsset returns the text of an embedded file.
func readAsset(name string) string {
	text, err := webFiles.ReadFile(name)
	if err != nil {
		panic("embedded file " + name + " is missing") // a bug in this package: see go:embed above
	}
	return string(text)
}

// encodeChartData returns the data of the charts as JSON.
func (b *pageBuilder) encodeChartData() ([]byte, error) {
	t, w := b.t, b.opt.NarrowWindow(b.t.RecordingWindow())
	d := &chartData{
		FromS:    float64(secondsSinceStart(t, w.FromNs)),
		ToS:      float64(secondsSinceStart(t, w.ToNs)),
		Memory:   []memoryData{},
		Groups:   []allocationGroupData{},
		GPUs:     newGPUData(t, &b.opt.Filter),
		Activity: b.calls.newActivityData(),
		Busy:     b.newBusyData(),
	}
	var all textTable
	b.memory.addMemoryCharts(d, &all, b.opt.FrameRules())
	b.lines.addLinesToCharts(d)
	root, _ := newFlameTree(t, b.flame, b.calls, b.gpuTimes, b.host, b.opt.FrameRules(), &all)
	if len(root.Children) > 0 {
		d.Flame = &flameData{flameMetrics[:countFlameMetrics(t)], root}
	}
	d.Steps, d.Ranks = b.newStepsData(&all), b.newRanksData()
	d.Marks = newChartMarks(t, w, &b.failures, b.changes)
	d.Texts = all.List
	return d.encodeScript()
}

// newFactViews returns the facts about the recording at the top of the page.
func (b *pageBuilder) newFactViews() []factView {
	t, m, w := b.t, &b.t.Rec.Meta, b.t.RecordingWindow()
	list := []factView{
		{"processes", listProcessNames(t)},
		{"GPUs", listDeviceNames(t)},
		{"host", units.SanitizeText(m.Host)},
		{"driver", units.SanitizeText(m.DriverVersion)},
		{"started", report.UnitTime.FormatValue(w.FromNs)},
		{"duration", units.FormatDuration(w.DurNs())},
	}
	if win := b.opt.NarrowWindow(w); win != w {
		list = append(
			list,
			factView{
				"shown",
				fmt.Sprintf("from %s to %s", query.FormatOffset(win.FromNs, w), query.FormatOffset(win.ToNs, w)),
			},
		)
	}
	var known []factView
	for _, f := range list {
		if f.Value != "" {
			known = append(known, f)
		}
	}
	return known
}

// maxListedNames is the largest number of processes or devices that the page lists by name.
const maxListedNames = 12

func listProcessNames(t *timeline.Timeline) string {
	return joinNames(t.Facts.Processes, func(pid int32) string { return t.PidLabel(pid) })
}

func listDeviceNames(t *timeline.Timeline) string {
	return joinNames(t.Facts.Devices, func(d int32) string { return t.DeviceLabel(d) })
}

// hasNoFailedAllocation reports whether no allocation failed in the window.
func (b *pageBuilder) hasNoFailedAllocation() bool { return !b.failed }

// hasNoFragmentableMemory reports whether the recording has no memory that can fragment: no
// segments of caching allocators, no mapped address ranges and no memory pools.
func (b *pageBuilder) hasNoFragmentableMemory() bool {
	if len(b.t.Allocations) > 0 || len(b.t.MemoryPools(b.t.RecordingWindow(), new(query.Filter))) > 0 {
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
