package activity_test

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestMillionOperations requires that most operations are measured, that durations have small errors, and that
// these errors are honest.
func TestMillionOperations(t *testing.T) {
	testclass.Lab(t, "lab")
	if testing.Short() {
		t.Skip("simulates two million operations")
	}
	for name, c := range map[string]struct {
		full                       bool
		measured, totalPct, points float64
	}{
		"busy poller":           {true, 95, 3, 5},
		"1 kHz and at launches": {false, 30, 5, 15},
	} {
		t.Run(name, func(t *testing.T) {
			g := gpuprogram.Run(5, gpuprogram.Plan{
				Operations: 250_000, Processes: 4, Threads: 2, Streams: 4, OneThread: true, Kernels: 40, MeanNs: 20_000,
				PaceNs: 40_000, Idle: 0.05, Waits: 0.02, Extra: 0.001, NoReturns: true, Full: c.full,
			})
			v := judge(t, g)
			v.check(t)
			if v.share(v.counts.Measured) < c.measured {
				t.Errorf("%.1f%% of the operations are measured, want %.0f%%", v.share(v.counts.Measured), c.measured)
			}
			if v.medianWidthNs() > 100_000 {
				t.Errorf("the median of bounds is %d ns wide", v.medianWidthNs())
			}
			if len(v.busyWrong)*20 > len(v.result.Channels) {
				t.Errorf("busy times: %v", v.busyWrong)
			}
			v.checkBusyWidth(t, c.points)
			v.checkDurations(t, c.totalPct)
		})
	}
}

// checkBusyWidth requires that the bounds of the busy time of a channel are at most so many points of
// the recording apart, on average.
func (v *verdict) checkBusyWidth(t *testing.T, points float64) {
	t.Helper()
	widthNs, spanNs := int64(0), int64(0)
	for _, c := range v.result.Channels {
		if len(c.Streams) > 0 {
			busy := c.BusyTime()
			widthNs += busy.WidthNs()
			spanNs += c.LastNs - c.FirstNs
		}
	}
	width := 100 * float64(widthNs) / float64(spanNs)
	t.Logf("bounds of the busy time are %.1f points apart", width)
	if width > points {
		t.Errorf("bounds of the busy time are %.1f points apart, want %.0f", width, points)
	}
}

// durationID identifies a Duration.
type durationID struct {
	pid   int32
	op    activity.Op
	label int32
}

// checkDurations compares the estimated durations with the truth: the total within totalPct, the
// errors of costly kernels up to 10 %, and errors that cover the truth.
func (v *verdict) checkDurations(t *testing.T, totalPct float64) {
	t.Helper()
	sums, operations, allNs := make(map[durationID]float64), make(map[durationID]float64), 0.0
	for _, c := range v.program.Calls {
		if c.Op.IsOperation() {
			truth := v.program.Truth[c.ID]
			id := durationID{c.Pid, c.Op, c.Label}
			sums[id] += float64(truth.EndNs - truth.StartNs)
			operations[id]++
			allNs += float64(truth.EndNs - truth.StartNs)
		}
	}
	covered, estimated, totalNs, estimatedNs, worst := 0, 0, 0.0, 0.0, 0.0
	for _, d := range v.result.Durations {
		if !d.IsEstimated {
			continue
		}
		id := durationID{d.Pid, d.Op, d.Label}
		estimated++
		if math.Abs(d.MeanNs-sums[id]/operations[id]) <= 2*d.ErrorNs {
			covered++
		}
		if d.IsLimited {
			continue
		}
		sum, _ := d.TotalNs()
		totalNs += sum
		estimatedNs += sums[id]
		if sums[id] > 0.01*allNs {
			worst = max(worst, d.ErrorNs/d.MeanNs)
		}
	}
	t.Logf("durations: %d of %d within two errors, %.1f%% of the time estimated: total %.4f of the truth, "+
		"largest error of a costly kernel %.1f%%", covered, estimated, 100*estimatedNs/allNs, totalNs/estimatedNs, 100*worst)
	if estimated < 150 || covered*100 < estimated*95 || math.Abs(totalNs/estimatedNs-1)*100 > totalPct ||
		estimatedNs < 0.9*allNs || worst > 0.1 {
		t.Error("durations are wrong, or their errors")
	}
}
