package analyze

import (
	"fmt"
	"time"

	"github.com/gpurec/gpurec/format"
)

// verdict is what a group of allocations is, worst first.
type verdict int

const (
	growing verdict = iota
	exitLeak
	retained
	startup
	churn
	numVerdicts
)

func (v verdict) String() string {
	return [...]string{"growing", "exit leak", "retained", "startup", "churn"}[v]
}

func verdictNames() (list []string) {
	for v := range numVerdicts {
		list = append(list, v.String())
	}
	return list
}

// isSuspect reports whether somebody should look at memory with this verdict.
func (v verdict) isSuspect() bool { return v <= retained }

// minGrowth is the least growth that is called a leak: less is noise, or nobody's
// concern.
const minGrowth = 1 << 20

// judged is a group with its verdict and the numbers behind it.
type judged struct {
	*leakGroup
	label     string
	verdict   verdict
	trend     trend
	grown     int64   // rise of the floor by the trend over the series, bytes
	perMin    float64 // bytes
	medianAge int64   // ns
}

// judge decides what a group is. In this order:
//
//	growing    the floor of its live bytes rises all along (trend.lasting) by at
//	           least 1 MiB and 1 % of the peak over the window, or over a minute
//	           if the window is shorter
//	churn      nothing is left
//	startup    nine tenths of what is left were allocated during the warm-up
//	churn      nine tenths were freed, and half of the rest is younger than half
//	           of the window
//	exit leak  what is left was never freed before the process, or the last context
//	           that it used, ended
//	retained   the rest
func (s *leakScan) judge(i int) judged {
	g := &s.groups[i]
	series := s.series(g)
	j := judged{leakGroup: g, label: s.grouping.labels.list[i], trend: newTrend(series), medianAge: median(g.ages)}
	stepNs := float64(s.window.ToNs-s.warmNs) / checkpoints
	span := stepNs * float64(len(series))
	j.grown = roundInt(j.trend.slope * float64(len(series)))
	if stepNs > 0 {
		j.perMin = j.trend.slope / stepNs * float64(time.Minute)
	}
	threshold := max(minGrowth, float64(s.peak)/100)
	switch {
	case j.trend.lasting() && j.perMin/float64(time.Minute)*max(span, float64(time.Minute)) >= threshold:
		j.verdict = growing
	case g.liveCount == 0:
		j.verdict = churn
	case float64(g.startBytes) >= 0.9*float64(g.liveBytes):
		j.verdict = startup
	case float64(g.frees) >= 0.9*float64(g.allocs) && j.medianAge <= s.window.DurNs()/2:
		j.verdict = churn
	case g.gone() && s.t.kindLabel(g.memory) != format.MemoryTorch: // Python keeps things until it ends
		j.verdict = exitLeak
	default:
		j.verdict = retained
	}
	return j
}

// evidence says in one sentence why the verdict is what it is.
func (j *judged) evidence() string {
	freed := fmt.Sprintf("%s of %s freed", thousands(j.frees), thousands(j.allocs))
	switch j.verdict {
	case growing:
		return fmt.Sprintf("%s, lowest live bytes rose by %s over %d checkpoints (tau %.2f)", freed, bytesText(j.grown), j.trend.steps, j.trend.tau)
	case exitLeak:
		return freed + ", live when the process or its last context ended"
	case startup:
		return fmt.Sprintf("%s, %.0f%% of the live bytes are from the first tenth of the window", freed, percent(j.startBytes, j.liveBytes))
	}
	return fmt.Sprintf("%s, tau %.2f", freed, j.trend.tau)
}

// confidence lowers the recording's confidence for what is thin about one group.
func (j *judged) confidence(level string, reasons []string, w Window) (string, []string) {
	if j.verdict == churn {
		return level, reasons
	}
	lower := func(reason string) {
		if level == confidenceHigh {
			level = confidenceMedium
		}
		reasons = append(reasons[:len(reasons):len(reasons)], reason)
	}
	if d := w.DurNs(); d < int64(10*time.Second) {
		lower("only " + durText(d) + " of activity was recorded")
	}
	if j.verdict == growing && j.allocs-j.frees < 10 {
		lower(fmt.Sprintf("only %d allocations are left", j.allocs-j.frees))
	}
	return level, reasons
}
