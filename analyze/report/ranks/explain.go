package ranks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/ranksteps"
	"github.com/gpurec/gpurec/analyze/model/straggler"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
)

// Verdict is a late rank with the evidence for its cause.
type Verdict struct {
	*straggler.Verdict
	Other   int    // member that does the same and is typical, -1 if there is none
	Because string // evidence for the cause with the largest part
	Why     string // cause in a few words
	// afterWait reports that the host spends its extra time after a wait for the GPU, which then has no work.
	afterWait bool
}

// maxExplained bounds the verdicts whose evidence is read from the recordings.
const maxExplained = 8

// otherThan returns the member of the same group whose own time is closest to that of the others.
func (s *State) otherThan(v *straggler.Verdict) int {
	best, distance := -1, math.Inf(1)
	for i := range s.Found.Figures {
		f := &s.Found.Figures[i]
		if i == v.Series || f.Group != s.Found.Figures[v.Series].Group || len(s.Series[i].Steps) == 0 {
			continue
		}
		if d := math.Abs(f.OwnNs - v.OthersNs); d < distance {
			best, distance = i, d
		}
	}
	return best
}

// side has the evidence about one rank during a verdict.
type side struct {
	host  *ranksteps.HostTimes
	gpu   ranksteps.GPUState
	steps int
}

// explain reads the evidence for the verdicts. open calls a function with recording i.
func (s *State) explain(open func(i int, read func(t *timeline.Timeline) error) error) error {
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		v.Why = v.Reasons[0].Cause.String()
		if i >= maxExplained || v.Other < 0 {
			continue
		}
		late, err := s.readSide(v, v.Series, open)
		if err != nil {
			return err
		}
		other, err := s.readSide(v, v.Other, open)
		if err != nil {
			return err
		}
		s.describe(v, &late, &other)
	}
	s.Verdicts = slices.DeleteFunc(s.Verdicts, func(v Verdict) bool { return !s.isProven(&v) })
	return nil
}

// leastOwnShare is the part of the step from which on a rank hardly waits: its host bounds the step.
const leastOwnShare = 0.9

// isProven reports whether other ranks wait for a late one. Without recorded collectives, the host of that rank may do
// its extra work while its GPU is busy, so that no rank waits for it.
func (s *State) isProven(v *Verdict) bool {
	return !s.Ranks[v.Series].ByLaunches || v.OwnNs >= leastOwnShare*v.StepNs || v.afterWait || s.isAwaited(v)
}

// isAwaited reports whether another rank waits in collectives on its host for most of the lateness of a rank.
func (s *State) isAwaited(v *Verdict) bool {
	if v.Other < 0 {
		return false
	}
	waits := func(member int) (ns float64) {
		steps := s.Series[member].Steps
		for i := min(v.FromStep, len(steps)); i < min(v.ToStep, len(steps)); i++ {
			ns += float64(steps[i].HostCollectiveNs)
		}
		return ns / float64(max(1, v.ToStep-v.FromStep))
	}
	return waits(v.Other)-waits(v.Series) >= v.LateNs/2
}

// readSide reads what a member did in the steps of a verdict.
func (s *State) readSide(
	v *Verdict,
	member int,
	open func(int, func(*timeline.Timeline) error) error,
) (p side, err error) {
	m, steps := &s.Job.Members[member], s.Series[member].Steps
	from, to := min(v.FromStep, len(steps)-1), min(v.ToStep, len(steps))
	fromNs, toNs := steps[from].AtNs, steps[to-1].AtNs+steps[to-1].DurNs
	p.steps = max(1, int(math.Round(float64(toNs-fromNs)/max(1, v.StepNs)))) // also those without GPU times
	return p, open(m.Recording, func(t *timeline.Timeline) error {
		p.gpu = ranksteps.ReadGPUState(t, m.Pid, fromNs, toNs)
		if v.Reasons[0].Cause != straggler.CauseHost {
			return nil
		}
		p.host, err = ranksteps.ReadHostTimes(t, m.Pid, fromNs, toNs)
		return err
	})
}

// describe sets the words on the cause of a verdict.
func (s *State) describe(v *Verdict, late, other *side) {
	reason := &v.Reasons[0]
	name := s.rankName(v.Other)
	switch reason.Cause {
	case straggler.CauseHost:
		v.Because, v.Why = describeHost(late, other, name)
		site, ns := late.host.Latest(other.host, late.steps, other.steps)
		v.afterWait = ns >= v.LateNs/2 && strings.HasSuffix(late.host.Gaps[site].Call, "Synchronize")
	case straggler.CauseGPU:
		v.Because = fmt.Sprintf(
			"its GPU: the same kernels take %.2f times as long as on the other ranks",
			reason.Factor,
		)
		if reason.Factor == 0 {
			v.Because = "its GPU: it begins the collectives late, its host calls them in time, and it copies no more " +
				"than the other ranks; the times of its kernels are not known"
		}
		if state := describeGPU(&late.gpu, &other.gpu, name); state != "" {
			v.Because += "; " + state
			v.Why = "GPU: " + cmp.Or(late.gpu.Throttled, "slow kernels")
		}
	case straggler.CauseWork:
		v.Because = fmt.Sprintf(
			"uneven work: its kernels take %.2f times as long together, and it launches more of them",
			reason.Factor,
		)
		if reason.Factor == 0 {
			v.Because = "uneven work: it launches more kernels than the other ranks; their times are not known"
		}
	case straggler.CauseCopies:
		v.Because = fmt.Sprintf("copies: they take %s a step more than on the other ranks", msText(reason.Ns))
		switch {
		case reason.Bytes > 0:
			v.Because = fmt.Sprintf("copies: it copies %s a step more than the other ranks, which takes %s or longer",
				units.FormatBytes(units.RoundInt(reason.Bytes)), msText(straggler.LeastCopyNs(reason.Bytes)))
		case reason.Factor > 0:
			v.Because += fmt.Sprintf(", %.2f times as long", reason.Factor)
		}
	default:
		v.Because = "the recorded times do not say why; record --gpu-time auto --host auto"
	}
}

// describeHost says where a late host was.
func describeHost(late, other *side, name string) (because, why string) {
	const leastNs = 100_000
	site, ns := late.host.Latest(other.host, late.steps, other.steps)
	if ns < leastNs {
		return "its host; no call site has much more time after it than on " + name, "host"
	}
	gap, mine := late.host.Gaps[site], late.host.PerStep(site, late.steps)
	because = fmt.Sprintf("its host makes no call for %s a step after %s at %s; on %s it is %s", msText(mine), gap.Call,
		cmp.Or(site, "an unknown line"), name, msText(other.host.PerStep(site, other.steps)))
	why = "host: after " + site
	if len(gap.Lines) > 0 {
		if line := &gap.Lines[0]; line.Cause.IsKnown() && line.Ns/float64(late.steps) >= ns/2 {
			because += fmt.Sprintf("; %s of it: %s", msText(line.Ns/float64(late.steps)), line.Cause)
			if line.Site != "" {
				because += " at " + line.Site
				why = fmt.Sprintf("host: %s", line.Site)
			}
			return because, why
		}
	}
	if late.host.Snapshot != "" {
		because += "; at the end of the recording it " + late.host.Snapshot
	}
	return because, why
}

// describeGPU says how the state of a GPU differs from that of another.
func describeGPU(late, other *ranksteps.GPUState, name string) (text string) {
	const differs = 0.97 // of the clock
	if late.ClockMHz > 0 && other.ClockMHz > 0 && late.ClockMHz < differs*other.ClockMHz {
		text = fmt.Sprintf("SM clock %s MHz, %s MHz on %s", units.FormatCount(units.RoundInt(late.ClockMHz)),
			units.FormatCount(units.RoundInt(other.ClockMHz)), name)
	}
	if late.Throttled != "" && late.ThrottledShare > 2*other.ThrottledShare {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("throttled %.0f %% of the time: %s", 100*late.ThrottledShare, late.Throttled)
	}
	return text
}

// msText formats a time in ms.
func msText(ns float64) string { return units.FormatDuration(units.RoundInt(ns)) }
