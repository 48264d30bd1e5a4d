package activity_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// verdict compares the activity of a program with the truth.
type verdict struct {
	program *gpuprogram.Program
	result  *activity.Result
	counts  activity.OperationCounts
	// launches counts the kernels and graphs with a channel.
	launches map[activity.LaunchOrigin]int64
	// wrong are values that are called measured or bounded, and are not. wrongByTorn counts those next
	// to a torn sample.
	wrong       []string
	wrongByTorn int
	widthsNs    []int64 // of bounded starts
	busyWrong   []string
}

// judge computes the activity of a program, and compares each value with the truth.
func judge(t *testing.T, g *gpuprogram.Program) *verdict {
	t.Helper()
	v := &verdict{program: g, launches: make(map[activity.LaunchOrigin]int64)}
	var err error
	v.result, err = activity.Compute(g.Replay, g.Channels, activity.Options{
		OnOperation: v.checkOperation, Gaps: g.Gaps, EndNs: g.EndNs,
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(v.widthsNs)
	v.checkBusy()
	return v
}

func contains(i activity.Interval, ns int64) bool { return i.LoNs <= ns && ns <= i.HiNs }

// checkOperation compares an operation with the truth.
func (v *verdict) checkOperation(w *activity.Operation) {
	if w.Call.ID < 0 { // the record of an event without timing
		v.wrong = append(v.wrong, fmt.Sprintf("%+v is no operation", w))
		return
	}
	truth := v.program.Truth[w.Call.ID]
	v.counts.Operations++
	if c := &w.Call; c.Op == activity.OpKernel || c.Op == activity.OpGraph {
		v.launches[activity.LaunchOrigin{
			Stream: c.Stream, Pid: c.Pid, Tid: c.Tid, Device: c.Device, Stack: c.Stack, Label: c.Label, Op: c.Op,
		}]++
	}
	ok := w.Channel == truth.Channel
	ok = ok && (w.Number == 0 || w.Number == truth.Number)
	isCopy := w.Call.Op == activity.OpCopyToDevice && w.Call.Place == activity.OnEngine ||
		w.Call.Op == activity.OpCopyToHost
	switch w.StartQuality {
	case activity.Measured:
		v.counts.Measured++
		ok = ok && w.Number != 0 && !isCopy
	case activity.Bounded:
		if isCopy && w.EndQuality == activity.Measured { // of a copy, the end is measured
			v.counts.Measured++
			break
		}
		v.counts.Bounded++
		v.widthsNs = append(v.widthsNs, w.Start.WidthNs())
	case activity.Estimated:
		v.counts.Estimated++
	default:
		v.counts.Unknown++
	}
	if w.StartQuality >= activity.Bounded {
		ok = ok && contains(w.Start, truth.StartNs) && contains(w.QueueTime(), truth.StartNs-w.Call.StartNs)
	}
	if w.EndQuality >= activity.Bounded {
		ok = ok && contains(w.End, truth.EndNs)
	}
	if w.DurationQuality >= activity.Bounded {
		ok = ok && contains(w.Duration, truth.EndNs-truth.StartNs)
	}
	if w.EndQuality == activity.Measured {
		v.counts.Ended++
	}
	switch {
	case ok:
	case v.program.IsNearTorn(truth):
		v.wrongByTorn++
	default:
		v.wrong = append(v.wrong, fmt.Sprintf("%+v, truth %+v", w, truth))
	}
}

// checkBusy compares the busy times of channels with the truth.
func (v *verdict) checkBusy() {
	for _, c := range v.result.Channels {
		busyNs := v.program.BusyNs(c.Number)
		if len(c.Streams) > 0 && !contains(c.Busy, busyNs) {
			v.wrong = append(v.wrong, fmt.Sprintf("busy time %d of %+v", busyNs, c))
		}
		if len(c.Streams) > 0 && !contains(c.BusyTime(), busyNs) {
			v.busyWrong = append(v.busyWrong, fmt.Sprintf("busy time %d not in %+v of %+v", busyNs, c.BusyTime(), c))
		}
	}
}

// share returns the share of all operations of the program, in percent.
func (v *verdict) share(n int64) float64 { return 100 * float64(n) / float64(len(v.program.Truth)) }

func (v *verdict) medianWidthNs() int64 {
	if len(v.widthsNs) == 0 {
		return 0
	}
	return v.widthsNs[len(v.widthsNs)/2]
}

// check reports wrong values.
func (v *verdict) check(t *testing.T) {
	t.Helper()
	t.Logf(
		"operations: measured %.1f%%, bounded %.1f%% (median %d ns), estimated %.1f%%, unknown %.1f%%, unpaired %.1f%%, "+
			"ends measured %.1f%%, wrong by torn samples %d",
		v.share(v.counts.Measured),
		v.share(v.counts.Bounded),
		v.medianWidthNs(),
		v.share(v.counts.Estimated),
		v.share(v.counts.Unknown),
		v.share(v.result.UnpairedOperations),
		v.share(v.counts.Ended),
		v.wrongByTorn,
	)
	for i, w := range v.wrong {
		t.Error("wrong:", w)
		if i == 4 {
			t.Fatalf("and %d more", len(v.wrong)-i-1)
		}
	}
	operations := int64(0)
	for _, c := range v.program.Calls {
		if c.ID >= 0 {
			operations++
		}
	}
	if v.counts.Operations+v.result.UnpairedOperations != operations {
		t.Errorf(
			"%d operations and %d without a channel, want %d",
			v.counts.Operations,
			v.result.UnpairedOperations,
			operations,
		)
	}
	if len(v.busyWrong)*10 > len(v.result.Channels) {
		t.Error(v.busyWrong)
	}
	v.checkLaunches(t)
}

// checkLaunches compares the counts of launches with the operations.
func (v *verdict) checkLaunches(t *testing.T) {
	t.Helper()
	counts := make(map[activity.LaunchOrigin]int64)
	for _, l := range v.result.Launches {
		counts[l.LaunchOrigin] += l.Operations
	}
	if !maps.Equal(counts, v.launches) {
		t.Errorf("launches %v, want %v", counts, v.launches)
	}
}

// TestEveryValueIsRight runs programs of all kinds. No value that is called measured or bounded is
// wrong, and a part of the operations is measured.
func TestEveryValueIsRight(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		name        string
		plan        gpuprogram.Plan
		busy, auto  float64 // least share of measured operations, with a busy poller and without
		maxUnpaired float64
	}{
		{"one stream", gpuprogram.Plan{Streams: 1}, 80, 15, 10},
		{"streams", gpuprogram.Plan{Streams: 4}, 80, 15, 20},
		{"shared channels", gpuprogram.Plan{Streams: 4, Shared: true}, 90, 15, 5},
		{"threads", gpuprogram.Plan{Streams: 4, Threads: 3}, 80, 10, 5},
		{"processes", gpuprogram.Plan{Streams: 3, Processes: 3}, 80, 15, 10},
		{"extra operations", gpuprogram.Plan{Streams: 3, Extra: 0.05}, 25, 5, 40},
		{"lost calls", gpuprogram.Plan{Streams: 3, Lost: true}, 25, 5, 70},
		{"sampled launches", gpuprogram.Plan{Streams: 3, Sampled: true}, 60, 15, 20},
		{"no returns", gpuprogram.Plan{Streams: 3, Threads: 2, Ordered: true, NoReturns: true}, 70, 10, 5},
		{"torn samples", gpuprogram.Plan{Streams: 2, TornShare: 1e-4}, 80, 15, 20},
		{"empty queues", gpuprogram.Plan{Streams: 1, Idle: 0.6, MeanNs: 2000}, 80, 20, 15},
		{"full queues", gpuprogram.Plan{Streams: 2, Idle: 1e-4, Waits: 0.005}, 40, 10, 60},
		{"untimed events", gpuprogram.Plan{Streams: 3, Untimed: true}, 80, 15, 20},
		{"events of unknown timing", gpuprogram.Plan{Streams: 3, HalfTimed: true}, 80, 15, 20},
		{
			"torn samples, events of unknown timing",
			gpuprogram.Plan{Streams: 3, HalfTimed: true, TornShare: 1e-4},
			80, 15, 20,
		},
		{"events of unknown timing on shared channels", gpuprogram.Plan{Streams: 4, Shared: true, HalfTimed: true}, 80, 15, 5},
		{
			"events that get timing later",
			gpuprogram.Plan{Streams: 3, HalfTimed: true, Misled: true},
			80, 15, 20,
		},
		{"many events of unknown timing", gpuprogram.Plan{Streams: 1, HalfTimed: true, Events: 0.2}, 70, 10, 20},
		{"operations without a call on other channels", gpuprogram.Plan{Streams: 3, Hidden: 0.01}, 40, 10, 5},
		{"brief streams", gpuprogram.Plan{Streams: 3, Brief: true}, 85, 15, 1},
		{"graphs of several operations", gpuprogram.Plan{Streams: 1, Parts: 7}, 60, 8, 20},
		{"early starts", gpuprogram.Plan{Streams: 3, Early: 0.3}, 45, 10, 20},
		{"short copies", gpuprogram.Plan{Streams: 2, Short: 0.7}, 80, 15, 10},
		{"short copies of unknown place", gpuprogram.Plan{Streams: 2, Short: 1, AnyPlace: true}, 80, 15, 10},
		{"long copies of unknown place", gpuprogram.Plan{Streams: 2, AnyPlace: true}, 80, 15, 10},
		{"copies of random places", gpuprogram.Plan{Streams: 2, Short: 0.5, AnyPlace: true}, 5, 1.5, 15},
		{"words of ends", gpuprogram.Plan{Streams: 2, EndWords: true, MeanNs: 150_000, Waits: 0.05}, 0, 0, 100},
		{"no waits", gpuprogram.Plan{Streams: 1, NoWaits: true, Idle: 0.5, MeanNs: 3000}, 40, 5, 60},
		{
			"all",
			gpuprogram.Plan{
				Streams: 3, Processes: 2, Threads: 2, Ordered: true, Shared: true, Extra: 0.01, Lost: true, NoReturns: true,
			},
			2, 0.5, 90,
		},
	} {
		p := c.plan
		p.Operations, p.Kernels, p.PaceNs = 40_000, 20, 10_000
		p.Processes, p.Threads = max(1, p.Processes), max(1, p.Threads)
		if p.MeanNs == 0 {
			p.MeanNs = 20_000
		}
		if p.Idle == 0 {
			p.Idle = 0.05
		}
		if p.Waits == 0 {
			p.Waits = 0.02
		}
		for _, full := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, busy poller %v", c.name, full), func(t *testing.T) {
				p.Full = full
				least := c.auto
				if full {
					least = c.busy
				}
				for seed := range uint64(gpuprogram.Seeds(1)) {
					v := judge(t, gpuprogram.Run(seed, p))
					v.check(t)
					if v.share(v.counts.Measured) < least || v.share(v.result.UnpairedOperations) > c.maxUnpaired {
						t.Errorf("measured %.1f%%, want %.0f%%; without a channel %.1f%%, want at most %.0f%%",
							v.share(v.counts.Measured), least, v.share(v.result.UnpairedOperations), c.maxUnpaired)
					}
				}
			})
		}
	}
}

// TestStreamsWithoutOperations adds streams that only wait, or end unused. They must not change the pairs of
// the other streams.
func TestStreamsWithoutOperations(t *testing.T) {
	testclass.Unit(t)
	g := gpuprogram.Run(1, gpuprogram.Plan{
		Operations: 20_000,
		Streams:    2,
		Processes:  1,
		Threads:    1,
		Kernels:    20,
		MeanNs:     20_000,
		PaceNs:     10_000,
		Idle:       0.05,
		Waits:      0.02,
		Full:       true,
	})
	var unused []activity.Call
	for i, op := range []activity.Op{activity.OpHoldStream, activity.OpEndStream, activity.OpMarkEvent} {
		c := g.Calls[0]
		c.Op, c.Stream, c.ID = op, int64(0x77700+i), -1
		unused = append(unused, c)
	}
	g.Calls = slices.Insert(g.Calls, 0, unused...)
	v := judge(t, g)
	v.check(t)
	if v.share(v.counts.Measured) < 80 {
		t.Errorf("measured %.1f%%, want 80%%", v.share(v.counts.Measured))
	}
}
