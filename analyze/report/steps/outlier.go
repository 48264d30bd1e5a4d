package steps

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// cause is the kind of difference between an outlier and a typical step.
type cause string

// Causes. They are values of the column "cause".
const (
	causeOutside  cause = "outside CUDA"  // longer between two calls
	causeCall     cause = "in a call"     // longer in a call that does not wait for the GPU
	causeWait     cause = "waits for GPU" // longer in a wait
	causeLaunches cause = "more launches" // launches that a typical step does not have
	causeKernel   cause = "slow kernel"   // a GPU operation took longer than its mean
	causeMany     cause = "many places"   // no place explains a quarter of the extra time
)

// outlier is a step that takes much longer than the median.
type outlier struct {
	step   int // index of Process.Steps
	places []placeTime
	labels []labelCount
	phases []int32         // launches by phase
	slow   []slowOperation // slow operations that ran in the step
	host   hosttime.Parts  // how the launching thread spent the step
	stall  *slowOperation  // the operation after which no other started for the longest time
	// finding is set by scan.explainOutliers.
	finding finding
}

// finding is the difference of an outlier from a typical step.
type finding struct {
	cause        cause
	ns           int64  // time that the cause explains
	site, kernel string // "" if there is none
	quality      string // of GPU times; "" for causes on the host
	detail       string
}

// explainOutliers finds the causes of all outliers.
func (sc *scan) explainOutliers() {
	for _, s := range sc.processes {
		for _, o := range s.outliers {
			o.finding = sc.explain(s, o)
		}
	}
}

// explain returns what explains most of the extra time of an outlier.
func (sc *scan) explain(s *processScan, o *outlier) finding {
	if s.Steps[o.step].IsPartial {
		return finding{detail: "launches of the step were not recorded"}
	}
	excessNs := s.Steps[o.step].DurNs() - s.medianNs()
	if f, ok := sc.explainByKernel(s, o, excessNs); ok {
		return f
	}
	best, bestNs := s.longestPlace(o)
	if bestNs < 0 {
		return finding{detail: "no recorded call differs"}
	}
	newest, newestNs, newNs := s.newPlaces(o)
	extra, label := s.extraLaunches(o)
	isWait := s.current.keys[best.place].kind == placeWait
	if f, ok := sc.explainByStall(s, o, excessNs); ok && isWait && 2*bestNs >= excessNs && extra < 1 {
		return f
	}
	many := extra >= 1 && extra*minExtraShare >= float64(s.Steps[o.step].Operations)
	if newestNs >= 0 && many && (isWait || 2*newNs >= excessNs) {
		return sc.describeLaunches(s, o, newest, newNs, extra, label)
	}
	if f, ok := sc.explainByEarlierLaunches(s, o, bestNs); ok && isWait && 2*bestNs >= excessNs {
		return f
	}
	if 4*bestNs < excessNs {
		return sc.describeMany(s, o, best)
	}
	return sc.describePlace(s, o, best, bestNs)
}

// longestPlace returns the place with the most time above that of a typical step, and this time; -1: there
// is none.
func (s *processScan) longestPlace(o *outlier) (best placeTime, bestNs int64) {
	bestNs = -1
	for _, p := range o.places {
		if ns := p.ns - s.typical.meanNs(p.place); ns > bestNs {
			best, bestNs = p, ns
		}
	}
	return best, bestNs
}

// newPlaces returns the time at places with launches that a typical step does not have, and the longest of
// them with its time; -1: there is none.
func (s *processScan) newPlaces(o *outlier) (newest placeTime, newestNs, sumNs int64) {
	newestNs = -1
	for _, p := range o.places {
		if p.operations == 0 || float64(p.calls) <= 1.5*s.typical.meanCalls(p.place)+0.5 {
			continue
		}
		ns := p.ns - s.typical.meanNs(p.place)
		sumNs += ns
		if ns > newestNs {
			newest, newestNs = p, ns
		}
	}
	return newest, newestNs, sumNs
}

// explainByEarlierLaunches returns the launches of a step shortly before an outlier, which a typical step
// does not have. ns is the time for which the outlier waited longer.
func (sc *scan) explainByEarlierLaunches(s *processScan, o *outlier, ns int64) (best finding, ok bool) {
	most := 0.0
	for i := o.step - 1; i >= max(0, o.step-maxQueuedSteps); i-- {
		before := s.outlierOf[i]
		if before == nil {
			continue
		}
		extra, label := s.extraLaunches(before)
		newest, newestNs, _ := s.newPlaces(before)
		if newestNs < 0 || extra <= most || extra*minExtraShare < float64(s.Steps[i].Operations) {
			continue
		}
		most, ok = extra, true
		best = sc.describeLaunches(s, before, newest, ns, extra, label)
		best.detail += fmt.Sprintf(" in step %d; the host waits for them here", i+1)
	}
	return best, ok
}

// describeMany describes an outlier with longer times at many places.
func (sc *scan) describeMany(s *processScan, o *outlier, most placeTime) finding {
	var sums [placeWait + 1]int64
	for _, p := range o.places {
		sums[s.current.keys[p.place].kind] += p.ns - s.typical.meanNs(p.place)
	}
	f := finding{cause: causeMany, site: sc.sites.list[s.current.keys[most.place].to]}
	f.ns = max(sums[placeOutside], 0) + max(sums[placeCall], 0) + max(sums[placeWait], 0)
	f.detail = fmt.Sprintf("longer at many places: %s outside CUDA, %s in calls, %s in waits; most at %s",
		signedDuration(sums[placeOutside]), signedDuration(sums[placeCall]), signedDuration(sums[placeWait]), f.site)
	return f
}

// signedDuration formats a difference of durations, ns.
func signedDuration(ns int64) string {
	if ns < 0 {
		return "-" + units.FormatDuration(-ns)
	}
	return "+" + units.FormatDuration(ns)
}

// extraLaunches returns the number of launches above a typical step, and the label with most of them.
func (s *processScan) extraLaunches(o *outlier) (extra float64, label int32) {
	most := 0.0
	label = -1
	for _, l := range o.labels {
		n := float64(l.count) - s.typical.meanLaunches(l.label)
		extra += n
		if n > most {
			most, label = n, l.label
		}
	}
	return extra, label
}

// describePlace describes a place with more time than in a typical step.
func (sc *scan) describePlace(s *processScan, o *outlier, p placeTime, ns int64) finding {
	key := s.current.keys[p.place]
	from, to := sc.sites.list[key.from], sc.sites.list[key.to]
	f := finding{ns: ns, site: to}
	longer := units.FormatDuration(ns) + " longer"
	switch key.kind {
	case placeOutside:
		f.cause = causeOutside
		f.detail = fmt.Sprintf("%s outside CUDA between %s and %s", longer, from, to)
		if key.from == key.to {
			f.detail = fmt.Sprintf("%s outside CUDA at %s", longer, to)
		}
	case placeWait:
		f.cause = causeWait
		f.detail = fmt.Sprintf("%s in %s at %s", longer, sc.reader.Names.List[key.name], to)
	default:
		f.cause = causeCall
		f.detail = fmt.Sprintf("%s in %s at %s", longer, sc.reader.Names.List[key.name], to)
	}
	if extra, label := s.extraLaunches(o); extra >= 1 && label >= 0 {
		f.detail += fmt.Sprintf("; %.0f more launches", extra)
	}
	return f
}

// describeLaunches describes launches that a typical step does not have.
func (sc *scan) describeLaunches(
	s *processScan,
	o *outlier,
	p placeTime,
	ns int64,
	extra float64,
	label int32,
) finding {
	f := finding{cause: causeLaunches, ns: ns, site: sc.sites.list[s.current.keys[p.place].to]}
	if label >= 0 {
		f.kernel = symbolize.ShortKernel(sc.reader.Labels.List[label])
	}
	if phase := s.typical.extraPhase(o.phases); phase >= 0 {
		f.site = s.Phases()[phase].Name
	}
	f.detail = fmt.Sprintf("%.0f more launches than typical at %s, most of %s", extra, f.site, f.kernel)
	return f
}

// explainByKernel returns the slow kernel of an outlier, if it explains half of the extra time.
func (sc *scan) explainByKernel(s *processScan, o *outlier, excessNs int64) (finding, bool) {
	var longest *slowOperation
	sumNs := int64(0)
	for i := range o.slow {
		w := &o.slow[i]
		sumNs += w.excessNs()
		if longest == nil || w.excessNs() > longest.excessNs() {
			longest = w
		}
	}
	if longest == nil || 2*sumNs < excessNs {
		return finding{}, false
	}
	return sc.describeKernel(o, longest, sumNs, longest.quality()), true
}

// describeKernel describes an operation that ran for long.
func (sc *scan) describeKernel(o *outlier, w *slowOperation, ns int64, quality string) finding {
	name := sc.gpuLabel(w.key).name
	f := finding{cause: causeKernel, ns: ns, kernel: name, site: sc.t.SiteOfStack(w.stack), quality: quality}
	f.detail = fmt.Sprintf("an operation of %s ran for at least %s", name, units.FormatDuration(w.atLeastNs))
	if quality == qualityEstimated {
		f.detail = fmt.Sprintf(
			"the GPU stayed in an operation of %s for about %s",
			name,
			units.FormatDuration(w.atLeastNs),
		)
	}
	f.detail += fmt.Sprintf("; typical are at most %s", units.FormatDuration(w.typicalNs))
	if w.step != o.step {
		f.detail += fmt.Sprintf("; launched in step %d", w.step+1)
	}
	return f
}
