//go:build linux && cgo

package record

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/simtest"
	"github.com/gpurec/gpurec/symbolize"
)

// randomOperations is a random program and how it is recorded.
type randomOperations struct {
	args      []string
	channels  string
	rate      progress.Rate
	isSampled bool // launches are recorded for a part of the time
	isBusy    bool // next to two busy processes
	hasSlips  bool // some operations add another one that no call shows
}

// newRandomOperations draws a program. Half of the seeds are sampled, and half of these and of the others are busy.
func newRandomOperations(seed uint64) randomOperations {
	r := rand.New(rand.NewPCG(seed, 5))
	w := randomOperations{rate: progress.RateAuto, isSampled: seed%2 == 1, isBusy: seed/2%2 == 1, hasSlips: seed%5 == 4}
	if seed/4%2 == 1 {
		w.rate = progress.RateFull
	}
	shortest := 2 + r.IntN(10)
	w.channels = fmt.Sprintf("tear_ns=0,kernel_us=%d-%d", shortest, shortest*(3+r.IntN(15)))
	if w.hasSlips {
		w.channels += ",extra=0.01"
	}
	operations := 40_000 + r.IntN(60_000)
	if w.isSampled {
		operations *= 6
	}
	w.args = []string{
		"--seed", strconv.FormatUint(seed, 10), "--works", strconv.Itoa(operations),
		"--streams", strconv.Itoa(1 + r.IntN(6)), "--plain-graphs",
	}
	if threads := 1 + r.IntN(3); threads > 1 {
		w.args = append(w.args, "--threads", strconv.Itoa(threads))
		if r.IntN(2) == 0 {
			w.args = append(w.args, "--share-streams")
		}
	}
	return w
}

// meanCounts counts the estimated means of kernels.
type meanCounts struct{ estimated, outside, exchanged int }

// countMeans compares the means of kernels with the ledger. An exchanged mean is less than half of the truth or more
// than twice of it.
func (review *operationReview) countMeans(c *meanCounts) {
	type kernel struct {
		name string
		grid [3]int32
	}
	sums, operations := make(map[kernel]float64), make(map[kernel]float64)
	for i := range review.run.ledger.Operations {
		if w := &review.run.ledger.Operations[i]; w.Kind == "kernel" {
			k := kernel{symbolize.Demangle(w.Kernel), w.Grid}
			sums[k] += float64(w.EndNs - w.StartNs)
			operations[k]++
		}
	}
	for i := range review.result.Durations {
		d := &review.result.Durations[i]
		e := d.Estimate()
		if d.Op != activity.OpKernel || d.Label < 0 || e.Quality != activity.Estimated {
			continue
		}
		label := review.result.Labels[d.Label]
		k := kernel{label.Kernel, label.Grid}
		if operations[k] == 0 {
			review.t.Errorf("no kernel %s %v in the ledger", label.Kernel, label.Grid)
			continue
		}
		truth := sums[k] / operations[k]
		c.estimated++
		switch off := math.Abs(e.MeanNs - truth); {
		case off <= 2*e.ErrorNs:
		case e.MeanNs > 2*truth || e.MeanNs < truth/2:
			c.exchanged++
			fallthrough
		default:
			c.outside++
			review.t.Logf("%s %v: %.0f ± %.0f ns, truth %.0f ns", label.Kernel, label.Grid, e.MeanNs, e.ErrorNs, truth)
		}
	}
}

// checkNumbers checks that enough operations have a number, in programs without slips.
func (p *randomOperations) checkNumbers(t *testing.T, v *operationReview) {
	t.Helper()
	shares, least := v.numbered(), 70.0
	if p.rate == progress.RateFull {
		least = 90
	}
	t.Logf(
		"numbered: %.1f %% of %d operations; %.1f %% of %d between recorded launches; %.1f %% of %d between empty queues; "+
			"recorded %d of %d",
		shares.all.pct(),
		shares.all.of,
		shares.between.pct(),
		shares.between.of,
		shares.provable.pct(),
		shares.provable.of,
		v.seen,
		len(v.run.ledger.Operations),
	)
	share := shares.all
	if p.isSampled {
		share = shares.provable
	}
	if !p.hasSlips && share.pct() < least {
		t.Errorf("%.1f %% of the operations have numbers, want %.0f %%", share.pct(), least)
	}
}

// TestRandomGPUTimes records random programs: GPUREC_SEEDS of them (make gpu-times SEEDS=100). No value that is called
// measured or bounded may miss the ledger, at most 5 % of the estimates are more than two standard errors off, and none
// is that of another kernel. Programs without slips have numbers for most operations. Where
// launches are not recorded, those count between whose neighbours the queue was empty.
func TestRandomGPUTimes(t *testing.T) {
	testclass.Lab(t, "gpu-times")
	simtest.LoadSimulatedNVML(t, simcudaDir)
	var means meanCounts
	for seed := range uint64(gpuprogram.Seeds(8)) {
		p := newRandomOperations(seed)
		t.Run(fmt.Sprintf("%d, sampled %t, busy %t, slips %t, %s", seed, p.isSampled, p.isBusy, p.hasSlips, p.rate),
			func(t *testing.T) {
				if p.isBusy {
					keepBusy(t, 2)
				}
				run := recordOperationsWith(t, func(opt *Options) {
					opt.GPUTime, opt.NVMLInterval = p.rate, time.Second
					if p.isSampled { // in windows of at least 100 ms in each second
						opt.MaxOverheadPct, opt.governor.SampledShare = 2, 1
						opt.governor.MinPeriod, opt.governor.MaxPeriod = time.Second, time.Second
						opt.governor.MostInSecond = 1000
					}
				}, p.channels, p.args...)
				run.check()
				v := reviewOperations(t, run)
				if len(v.wrong) > 0 {
					t.Errorf("%d of %d operations are wrong; words up to %d ns late", len(v.wrong), v.tried, v.lateNs)
				}
				v.countMeans(&means)
				p.checkNumbers(t, v)
			})
	}
	t.Logf(
		"%d estimated means: %d outside of two errors, %d exchanged",
		means.estimated,
		means.outside,
		means.exchanged,
	)
	if means.exchanged > 0 || means.outside*20 > means.estimated {
		t.Errorf("%d of %d means are outside of two errors, %d are those of another kernel",
			means.outside, means.estimated, means.exchanged)
	}
}
