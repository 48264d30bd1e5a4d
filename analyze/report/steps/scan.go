package steps

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	model "github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// scan computes the statistics of all processes with steps.
type scan struct {
	t         *timeline.Timeline
	reader    *model.Reader
	found     *model.Result
	processes []*processScan
	byPid     map[int32]*processScan
	sites     siteNumbers
	activity  *activity.Activity // nil without GPU times
	labels    []int32            // cache of labelOf by Activity.Labels, plus 1
	places    operationPlaces
}

// processScan has the statistics of the steps of a process.
type processScan struct {
	*model.Process
	complete         int64 // steps that are not cut
	sorted           []int64
	sumNs            int64
	full             fullSteps
	limitNs          int64 // longest duration of a step that is no outlier, ns
	outliers         []*outlier
	outlierOf        map[int]*outlier
	outliersOmitted  int64
	slower           int64 // longer steps that recur, and are no outliers
	phases           []phaseTotals
	between          map[[2]int32]*phaseTotals // time outside CUDA from a phase to another
	insideNs, waitNs int64                     // time in calls, and of it in waits, in complete steps
	begins           map[int32]int64           // steps by the phase of their first launch
	gpu              processGPU
	lastStep         int             // of stepAt
	host             *hostSteps      // nil without rows of class host
	callsOf          map[int32]int64 // calls in complete steps by thread, without lastCalls
	lastCalls        int64           // calls of lastTid, which made the last call
	lastTid          int32

	current account
	typical typicalStep
}

// fullSteps sums up the complete steps with all calls.
type fullSteps struct{ count, operations, ns int64 }

// phaseTotals sums up a phase of all complete steps.
type phaseTotals struct {
	hostNs, calls, operations int64
	gpu                       gpuTime
}

// maxOutliers bounds the outliers of a process whose causes are computed: the longest of them.
const maxOutliers = 256

// newScan finds the steps and their outliers.
func newScan(reader *model.Reader, opt model.Options) (*scan, error) {
	found, err := model.Find(reader, opt)
	if err != nil {
		return nil, err
	}
	sc := &scan{t: reader.T, reader: reader, found: found, byPid: make(map[int32]*processScan)}
	for _, p := range found.Processes {
		s := &processScan{
			Process: p, outlierOf: make(map[int]*outlier), between: make(map[[2]int32]*phaseTotals),
			begins: make(map[int32]int64), callsOf: make(map[int32]int64),
		}
		s.findOutliers()
		sc.processes = append(sc.processes, s)
		sc.byPid[p.Pid] = s
	}
	if err := reader.EachCall(sc.addCall); err != nil {
		return nil, err
	}
	for _, s := range sc.processes {
		s.closeStep()
	}
	return sc, nil
}

// medianNs returns the median duration of complete steps, ns.
func (s *processScan) medianNs() int64 { return s.quantileNs(0.5) }

// quantileNs returns a quantile of the durations of complete steps, ns.
func (s *processScan) quantileNs(q float64) int64 {
	if len(s.sorted) == 0 {
		return 0
	}
	return s.sorted[min(len(s.sorted)-1, int(q*float64(len(s.sorted))))]
}

// add adds a complete step.
func (f *fullSteps) add(st *model.Step) {
	if st.HasAllCalls() {
		f.count++
		f.operations += int64(st.Operations)
		f.ns += st.DurNs()
	}
}

// findOutliers selects the steps that take much longer than the median.
func (s *processScan) findOutliers() {
	const minSteps = 5
	for i := range s.Steps {
		if st := &s.Steps[i]; !st.IsCut {
			s.sorted = append(s.sorted, st.DurNs())
			s.sumNs += st.DurNs()
			s.full.add(st)
		}
	}
	s.complete = int64(len(s.sorted))
	slices.Sort(s.sorted)
	if len(s.sorted) < minSteps {
		s.limitNs = math.MaxInt64
		return
	}
	s.limitNs = outlierLimitNs(s.sorted)
	list := s.stepsAbove(s.limitNs)
	if s.recurs(list) {
		first, _ := slices.BinarySearch(s.sorted, s.limitNs+1)
		s.limitNs = outlierLimitNs(s.sorted[first:])
		all := len(list)
		list = s.stepsAbove(s.limitNs)
		s.slower = int64(all - len(list))
	}
	slices.SortStableFunc(list, func(a, b *outlier) int {
		return cmp.Compare(s.Steps[b.step].DurNs(), s.Steps[a.step].DurNs())
	})
	if len(list) > maxOutliers {
		s.outliersOmitted = int64(len(list) - maxOutliers)
		list = list[:maxOutliers]
	}
	s.outliers = list
	for _, o := range list {
		s.outlierOf[o.step] = o
	}
	s.addSuspects()
}

// maxQueuedSteps is in how many steps after its cause the host may wait for the GPU.
const maxQueuedSteps = 3

// addSuspects adds the steps with more launches than typical shortly before an outlier. They need not be
// longer themselves: the host may wait for their operations in a later step.
func (s *processScan) addSuspects() {
	var operations []int32
	for i := range s.Steps {
		if st := &s.Steps[i]; st.HasAllCalls() {
			operations = append(operations, st.Operations)
		}
	}
	if len(operations) == 0 {
		return
	}
	slices.Sort(operations)
	typical := operations[len(operations)/2]
	for _, o := range s.outliers {
		for i := max(0, o.step-maxQueuedSteps); i < o.step; i++ {
			st := &s.Steps[i]
			if st.HasAllCalls() && s.outlierOf[i] == nil && (st.Operations-typical)*minExtraShare > typical {
				s.outlierOf[i] = &outlier{step: i}
			}
		}
	}
}

// minExtraShare is the least share of the launches of a step, as a divisor, from which more launches may
// be the cause of a wait.
const minExtraShare = 20

// outlierLimitNs returns the longest duration that is no outlier among sorted durations, ns: the median
// plus a tenth of it, or plus six standard deviations.
func outlierLimitNs(sorted []int64) int64 {
	const (
		madFactor  = 6 * 1.4826 // the standard deviation of a normal distribution is 1.4826 MAD
		minShare   = 10
		minExtraNs = 5_000
	)
	median := sorted[len(sorted)/2]
	deviations := make([]int64, len(sorted))
	for i, ns := range sorted {
		deviations[i] = max(ns-median, median-ns)
	}
	slices.Sort(deviations)
	mad := deviations[len(deviations)/2]
	return median + max(int64(madFactor*float64(mad)), median/minShare, minExtraNs)
}

// stepsAbove returns the complete steps that are longer than a limit, in order of time.
func (s *processScan) stepsAbove(limitNs int64) (list []*outlier) {
	for i := range s.Steps {
		if st := &s.Steps[i]; !st.IsCut && st.DurNs() > limitNs {
			list = append(list, &outlier{step: i})
		}
	}
	return list
}

// recurs reports whether longer steps belong to the program: they are frequent, or come after the same
// number of steps, such as a step with logging.
func (s *processScan) recurs(list []*outlier) bool {
	const minSteps, minShare, frequent = 6, 0.7, 0.15
	if len(list) < minSteps {
		return false
	}
	intervals, most := make(map[int]int), 0
	for i := 1; i < len(list); i++ {
		n := list[i].step - list[i-1].step
		intervals[n]++
		most = max(most, intervals[n])
	}
	return float64(len(list)) > frequent*float64(s.complete) || float64(most) >= minShare*float64(len(list)-1)
}

// outlierCount returns the number of outliers.
func (s *processScan) outlierCount() int64 { return int64(len(s.outliers)) + s.outliersOmitted }

// addCall adds a call to the account of its step.
func (sc *scan) addCall(c *model.Call) {
	s := sc.byPid[c.Pid]
	if s == nil || !s.IsFound() {
		return
	}
	a := &s.current
	last := len(s.Steps) - 1
	for a.step <= last && (c.StartNs > s.Steps[a.step].EndNs || c.StartNs == s.Steps[a.step].EndNs && a.step < last) {
		s.closeStep()
	}
	if a.step == len(s.Steps) || !s.Steps[a.step].HasAllCalls() || c.StartNs < s.Steps[a.step].BeginNs {
		if s.Participates(c) {
			a.leave(c, sc.found.PhaseOf(s.Process, c), sc.siteOf(c))
		}
		return
	}
	if !s.Participates(c) {
		if c.IsOperation() {
			a.countLabel(c.Label)
		}
		return
	}
	sc.addToStep(s, c)
}

// addToStep adds the time of a call, and the time outside CUDA before it, to the open step.
func (sc *scan) addToStep(s *processScan, c *model.Call) {
	a := &s.current
	phase, site := sc.found.PhaseOf(s.Process, c), sc.siteOf(c)
	for int(phase) >= len(s.phases) {
		s.phases = append(s.phases, phaseTotals{})
	}
	step := &s.Steps[a.step]
	fromNs := max(a.endNs, step.BeginNs)
	if a.endNs == 0 {
		fromNs = step.BeginNs
	}
	endNs := min(c.EndNs, step.EndNs)
	gapNs, callNs := max(0, c.StartNs-fromNs), max(0, endNs-max(c.StartNs, fromNs))
	total := &s.phases[phase]
	total.calls++
	s.countCall(c.Tid)
	if c.IsOperation() {
		total.operations++
		a.countLabel(c.Label)
		a.countPhase(phase)
		if !a.begun {
			s.begins[phase]++
			a.begun = true
		}
	}
	total.hostNs += callNs
	s.insideNs += callNs
	if c.Kind == model.KindWait {
		s.waitNs += callNs
	}
	if a.phase == phase || a.endNs == 0 {
		total.hostNs += gapNs
	} else {
		s.addBetween(a.phase, phase, gapNs)
	}
	a.add(placeKey{kind: placeOutside, from: a.site, to: site, name: -1}, gapNs, c)
	kind := placeCall
	if c.Kind == model.KindWait {
		kind = placeWait
	}
	a.add(placeKey{kind: kind, from: site, to: site, name: c.Name}, callNs, c)
	a.endNs, a.phase, a.site = max(a.endNs, c.EndNs), phase, site
}

// countCall counts a call of a thread in a complete step.
func (s *processScan) countCall(tid int32) {
	if tid != s.lastTid {
		s.callsOf[s.lastTid] += s.lastCalls
		s.lastTid, s.lastCalls = tid, 0
	}
	s.lastCalls++
}

// addBetween adds time outside CUDA between two phases.
func (s *processScan) addBetween(from, to int32, ns int64) {
	const maxBetween = 1 << 12
	key := [2]int32{from, to}
	b := s.between[key]
	if b == nil {
		if len(s.between) >= maxBetween {
			key = [2]int32{-1, -1}
		}
		if b = s.between[key]; b == nil {
			b = new(phaseTotals)
			s.between[key] = b
		}
	}
	b.hostNs += ns
	b.calls++
}

// closeStep ends the open step and adds its account to the typical step or to its outlier.
func (s *processScan) closeStep() {
	a := &s.current
	if a.step < len(s.Steps) && s.Steps[a.step].HasAllCalls() {
		if o := s.outlierOf[a.step]; o != nil {
			o.places, o.labels, o.phases = a.copyPlaces(), a.copyLabels(), slices.Clone(a.byPhase)
		} else if s.Steps[a.step].DurNs() <= s.limitNs {
			s.typical.add(a)
		}
	}
	a.reset()
	a.step++
}
