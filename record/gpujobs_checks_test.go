//go:build linux && cgo

package record

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/simtest"
	"github.com/gpurec/gpurec/symbolize"
)

// checkIntervals compares the times of all operations with the ledger.
func (r *jobRun) checkIntervals() []string {
	r.check()
	return reviewOperations(r.t, r.gpuRun).wrong
}

// activity returns the activity of the whole recording.
func (r *jobRun) activity() *activity.Activity {
	a, err := activity.Of(r.timeline, r.timeline.RecordingWindow())
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// checkCallSites compares the call sites of the calls that the events name.
func (r *jobRun) checkCallSites() (wrong []string) {
	var calls []format.Row // of operations
	for _, list := range recordedCalls(r.t, r.result.Output) {
		for i := range list {
			if list[i].Kernel != "" || strings.HasPrefix(list[i].Name, "cuMemcpy") {
				calls = append(calls, list[i])
			}
		}
	}
	slices.SortFunc(calls, func(a, b format.Row) int { return cmp.Compare(a.StartNs, b.StartNs) })
	for _, e := range r.truth.Events {
		if e.Event == "step" || e.Event == "stuck" {
			continue
		}
		atNs := max(e.StartNs, e.EndNs) + r.result.Meta.ClockOffsetNs
		i := sort.Search(len(calls), func(i int) bool { return calls[i].StartNs >= atNs })
		if i == len(calls) {
			wrong = append(wrong, fmt.Sprintf("no call for %+v", e))
			continue
		}
		if site := r.timeline.SiteOfStack(calls[i].StackID); site != siteOf(e.Function, e.Line) {
			wrong = append(wrong, fmt.Sprintf("%s at %s, truth %+v", calls[i].Name, site, e))
		}
	}
	return wrong
}

// shortName returns the name of a kernel in reports.
func shortName(mangled string) string { return symbolize.ShortKernel(symbolize.Demangle(mangled)) }

// checkMeans compares the mean durations of frequent kernels with the ledger. It counts the means that
// lie within two standard errors.
func (r *jobRun) checkMeans() (wrong []string) {
	type key struct {
		kernel string
		grid   [3]int32
	}
	var allNs float64
	totals, counts := make(map[key]float64), make(map[key]float64)
	for i := range r.ledger.Operations {
		w := &r.ledger.Operations[i]
		if w.Kind == "kernel" && w.CallNs != r.stuckNs {
			k := key{shortName(w.Kernel), w.Grid}
			totals[k] += float64(w.EndNs - w.StartNs)
			counts[k]++
			allNs += float64(w.EndNs - w.StartNs)
		}
	}
	a := r.activity()
	for i := range a.Durations {
		d := &a.Durations[i]
		if d.Op != activity.OpKernel || !d.IsEstimated || d.Label < 0 {
			continue
		}
		l := &a.Labels[d.Label]
		k := key{l.Kernel, l.Grid}
		if counts[k] == 0 || totals[k] < allNs/100 {
			continue
		}
		meanNs, clockNs := totals[k]/counts[k], 1000.0
		r.score.values++
		if math.Abs(d.MeanNs-meanNs) <= 2*d.ErrorNs+clockNs {
			r.score.inside++
		} else {
			r.t.Logf("mean of %s: %.0f ± %.0f ns, truth %.0f ns", l.Kernel, d.MeanNs, d.ErrorNs, meanNs)
		}
	}
	return nil
}

// checkSlowLaunches checks that the operations whose duration is certainly a multiple of the mean are the
// slow ones. Only measured operations can be found.
func (r *jobRun) checkSlowLaunches() (wrong []string) {
	const factor = 5
	slow, found := make(map[int64]simtest.JobEvent), 0 // by start of the call
	for i, e := range r.slowOperations() {
		slow[r.ledger.Operations[i].CallNs] = e
	}
	a := r.activity()
	if err := a.EachOperation(func(w *activity.Operation) {
		if w.Call.Op != activity.OpKernel || w.Mean == nil || w.DurationQuality < activity.Bounded ||
			float64(w.Duration.LoNs) < factor*(w.Mean.MeanNs+2*w.Mean.ErrorNs) {
			return
		}
		offsetNs, kernel := r.result.Meta.ClockOffsetNs, a.Labels[w.Call.Label].Kernel
		for callNs, e := range slow { // the ledger's call begins after the probe
			if w.Call.StartNs-offsetNs <= callNs && callNs <= w.Call.EndNs-offsetNs && shortName(e.Kernel) == kernel {
				found++
				return
			}
		}
		wrong = append(
			wrong,
			fmt.Sprintf("%s took at least %d ns, mean %.0f ns", kernel, w.Duration.LoNs, w.Mean.MeanNs),
		)
	}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%d of %d slow launches are certainly slow", found, len(slow))
	return wrong
}
