package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
)

// kernelTimes has the durations of one kernel with one grid.
type kernelTimes struct {
	key                   kernelKey
	operations, reference int64
	sumNs                 float64 // of the reference
	estimatedNs           float64 // mean
	errorNs               float64
	isLimited             bool // only bounds are known
}

func (k *kernelTimes) referenceMeanNs() float64 { return k.sumNs / float64(max(1, k.reference)) }

// addDuration adds the operations of one call site, with the errors that reports state.
func (k *kernelTimes) addDuration(d *activity.Duration) {
	e := d.Estimate()
	before, share := k.operations, float64(d.Operations)/float64(k.operations+d.Operations)
	k.operations += d.Operations
	k.estimatedNs += share * (e.MeanNs - k.estimatedNs)
	k.errorNs += share * (e.ErrorNs - k.errorNs)
	k.isLimited = e.Quality == activity.Bounded && (before == 0 || k.isLimited)
}

// isInside reports whether the reference's mean is within two stated errors.
func (k *kernelTimes) isInside() bool {
	return math.Abs(k.estimatedNs-k.referenceMeanNs()) <= 2*k.errorNs
}

// totalNs returns the time of all recorded operations by the reference's mean.
func (k *kernelTimes) totalNs() float64 { return float64(k.operations) * k.referenceMeanNs() }

// compareDurations compares mean durations.
func compareDurations(out io.Writer, result *activity.Result, r *reference) {
	byKey := make(map[kernelKey]*kernelTimes)
	timesOf := func(key kernelKey) *kernelTimes {
		if byKey[key] == nil {
			byKey[key] = &kernelTimes{key: key}
		}
		return byKey[key]
	}
	for i := range r.operations {
		if w := &r.operations[i]; w.what == 'k' || w.what == 's' || w.what == 'c' || w.what == 'g' {
			k := timesOf(keyOfReference(w))
			k.reference++
			k.sumNs += float64(w.endNs - w.startNs)
		}
	}
	for i := range result.Durations {
		d := &result.Durations[i]
		k := timesOf(keyOfDuration(result, d))
		if d.IsEstimated && d.Operations > 0 {
			k.addDuration(d)
		}
	}
	var list []*kernelTimes
	for _, k := range byKey {
		if k.operations > 0 && k.reference > 0 {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b *kernelTimes) int { return cmp.Compare(b.totalNs(), a.totalNs()) })
	printDurations(out, list)
}

// keyOfReference returns the key of a kernel, memset or copy. All graphs have one key.
func keyOfReference(w *referenceOperation) kernelKey {
	switch w.what {
	case 'g':
		return kernelKey{kernel: "graphs"}
	case 's':
		return kernelKey{kernel: "memset"}
	case 'c':
		const toDevice, toHost = 1, 2
		switch w.copyKind {
		case toDevice:
			return kernelKey{kernel: "copy HtoD"}
		case toHost:
			return kernelKey{kernel: "copy DtoH"}
		}
		return kernelKey{kernel: "copy DtoD"}
	}
	return w.key
}

func keyOfDuration(result *activity.Result, d *activity.Duration) kernelKey {
	switch d.Op {
	case activity.OpGraph:
		return kernelKey{kernel: "graphs"}
	case activity.OpFill:
		return kernelKey{kernel: "memset"}
	case activity.OpCopyOnDevice:
		return kernelKey{kernel: "copy DtoD"}
	case activity.OpCopyToDevice:
		return kernelKey{kernel: "copy HtoD"}
	case activity.OpCopyToHost:
		return kernelKey{kernel: "copy DtoH"}
	}
	if d.Label < 0 {
		return kernelKey{}
	}
	l := &result.Labels[d.Label]
	return kernelKey{l.Kernel, l.Grid}
}

// printDurations prints the costliest kernels, and how far all of them are off.
func printDurations(out io.Writer, list []*kernelTimes) {
	const shown = 20
	fmt.Fprintf(out, "%10s %10s %8s %8s %8s  %s\n", "CUPTI us", "gpurec us", "± us", "ratio", "operations", "kernel")
	for _, k := range list[:min(shown, len(list))] {
		mean, limited := k.referenceMeanNs(), ""
		if k.isLimited {
			limited = "bounds only: "
		}
		fmt.Fprintf(out, "%10.1f %10.1f %8.1f %8.3f %8d  %s%.70s %v\n", mean/1e3, k.estimatedNs/1e3, k.errorNs/1e3,
			k.estimatedNs/mean, k.operations, limited, k.key.kernel, k.key.grid)
	}
	for _, isLimited := range []bool{false, true} {
		printSums(out, list, isLimited)
	}
	printCostly(out, list)
}

// printCostly prints how many of the kernels that take a share of the time are within two stated errors, and how
// large these errors are.
func printCostly(out io.Writer, list []*kernelTimes) {
	allNs := 0.0
	for _, k := range list {
		allNs += k.totalNs()
	}
	for _, share := range []float64{0.01, 0.05} {
		kernels, inside, precise := 0, 0, 0
		for _, k := range list {
			if k.totalNs() < share*allNs {
				continue
			}
			kernels++
			if k.isInside() {
				inside++
			}
			if k.errorNs <= 0.15*k.estimatedNs {
				precise++
			}
		}
		fmt.Fprintf(
			out,
			"of %d kernels with at least %.0f%% of the time, %d within two errors, %d with an error of at most 15%%\n",
			kernels,
			100*share,
			inside,
			precise,
		)
	}
}

// printSums prints sums over the kernels with an estimate, or over those with bounds only.
func printSums(out io.Writer, list []*kernelTimes, isLimited bool) {
	var allNs, totalNs, estimatedNs, offNs, lowNs, highNs float64
	kernels, covered := 0, 0
	for _, k := range list {
		allNs += k.totalNs()
		if k.isLimited != isLimited {
			continue
		}
		kernels++
		mean, operations := k.referenceMeanNs(), float64(k.operations)
		totalNs += k.totalNs()
		estimatedNs += operations * k.estimatedNs
		lowNs += operations * (k.estimatedNs - 2*k.errorNs)
		highNs += operations * (k.estimatedNs + 2*k.errorNs)
		offNs += operations * math.Abs(k.estimatedNs-mean)
		if k.isInside() {
			covered++
		}
	}
	if kernels == 0 {
		return
	}
	if isLimited {
		fmt.Fprintf(
			out,
			"%d kernels with bounds only, %.1f%% of the time: CUPTI's sum %.1f ms, bounds %.1f to %.1f ms, "+
				"%d means in their bounds\n",
			kernels,
			100*totalNs/allNs,
			totalNs/1e6,
			lowNs/1e6,
			highNs/1e6,
			covered,
		)
		return
	}
	fmt.Fprintf(out, "%d kernels with an estimate, %.1f%% of the time: total %.4f of CUPTI's, sum of errors %.1f%%, "+
		"%d within two errors\n", kernels, 100*totalNs/allNs, estimatedNs/totalNs, 100*offNs/totalNs, covered)
}
