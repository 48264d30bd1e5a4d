package frag

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Options configure the fragmentation report.
type Options struct {
	query.Options
	// Request is the size of an allocation request, bytes. The report has the unused memory that
	// could serve it. 0 means the largest request of the program.
	Request int64
	// At selects the point in time to report. query.MomentPeak is the time with most stranded
	// bytes.
	At query.ReportMoment
	// AtNs is the point in time for query.MomentGivenTime, Unix ns.
	AtNs int64
	// Maps adds address maps to the report, as tables of characters.
	Maps bool
}

// Run is RunWithOptions for the largest request, at the peak and without maps.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	r, _, err := RunWithOptions(t, Options{Options: opt})
	return r, err
}

// RunWithOptions reports reserved memory that cannot be used, with a verdict for each space. A
// space is a set of segments, reserved addresses or a memory pool. RunWithOptions also returns the
// address maps, one per owner that had memory. It returns a *report.SortError for an unknown
// opt.Sort.
func RunWithOptions(t *timeline.Timeline, opt Options) (r *report.Report, maps []AddressMap, err error) {
	var s *Scan
	r, err = report.RunSurvey(t, opt.Options, func(sv *survey.Survey, _ query.Options) (report.FinishFunc, error) {
		if s, err = scanOf(sv, &opt); err != nil {
			return nil, err
		}
		return func() (*report.Report, error) { return s.finish(sv) }, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return r, s.Maps, nil
}

// scanKey is the key of the Scan of a survey.
type scanKey struct{}

// Collect adds the observers of the report to a survey. Its errors are those of reading addresses.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	s, err := scanOf(sv, &Options{Options: opt})
	if err != nil {
		return nil, err
	}
	return func() (*report.Report, error) { return s.finish(sv) }, nil
}

// MapsOf returns the address maps of the report of a survey, after it was made; nil if it was not collected.
func MapsOf(sv *survey.Survey) []AddressMap {
	if s := survey.Shared[*Scan](sv, scanKey{}); s != nil {
		return s.Maps
	}
	return nil
}

// scanOf returns a Scan that observes a survey.
func scanOf(sv *survey.Survey, opt *Options) (*Scan, error) {
	s := NewScan(sv.Timeline, opt)
	if err := s.FindAddressRanges(); err != nil {
		return nil, err
	}
	s.before = earlier.ScanOf(sv, &opt.Filter)
	sv.Add(survey.Observer{Driver: s.OnDriverChange, Allocator: s.OnAllocatorChange})
	return survey.Share(sv, scanKey{}, func() *Scan { return s }), nil
}

// finish returns the report after the survey, and sets Maps.
func (s *Scan) finish(sv *survey.Survey) (r *report.Report, err error) {
	if err := s.Finish(sv.Memory.Allocators); err != nil {
		return nil, err
	}
	r, s.Maps, err = s.report(&sv.Memory)
	return r, err
}

// report returns the report and the address maps after a replay. p is the program's memory at its end.
func (s *Scan) report(p *timeline.ProgramMemory) (*report.Report, []AddressMap, error) {
	t, opt := s.t, s.opt
	r := &report.Report{Command: "frag", Window: s.window, Quality: quality.OfProgramReplay(t, p), Notes: t.Facts.Notes}
	owners := s.sortedOwners()
	frees := p.DriverCounts().Frees
	p.Allocators.EachAllocator(func(a *caching.Allocator) { frees += a.Counts.Frees })
	level, reasons := r.Quality.Confidence(frees)
	growth := s.caches.Finish()
	spaces := s.spaceTable(s.findSpaces(owners, growth, level, reasons), level, reasons)
	pins := s.pinningSiteTable(owners)
	found := findStrandedTrends(owners)
	trends := s.trendTable(found)
	if len(owners) == 0 && len(s.callers.Pids) > 0 && len(spaces.Rows) == 0 {
		r.NoMatch = s.callers.ExplainNoMatch(&opt.Filter)
	}
	r.Facts = append(s.computeFacts(len(spaces.Rows)), s.caches.Facts(growth)...)
	r.Totals = s.computeTotals(&spaces, owners, found)
	processes.AddRankColumn(t, &spaces, &pins, &trends)
	if err := spaces.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, nil, err
	}
	_ = pins.SortAndCut("", opt.Top) // cannot fail without a sort column
	frames.FillRowStacks(t, &pins, &opt.Options)
	r.Tables = []report.Table{spaces, pins, trends, s.momentTable(owners)}
	s.before.Append(r)
	var pictures []AddressMap
	for _, o := range owners {
		if !slices.ContainsFunc(o.levels, func(l ownerUsage) bool { return l.reserved > 0 }) {
			continue // it had memory only between the surveyed times
		}
		o.addressMap.Title, o.addressMap.Failures = s.mapTitle(o), o.failures
		pictures = append(pictures, *o.addressMap)
		if opt.Maps {
			r.Tables = append(r.Tables, o.addressMap.textTable(fmt.Sprintf("map%d", len(pictures))))
		}
	}
	return r, pictures, nil
}
