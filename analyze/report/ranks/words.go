package ranks

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/ranksteps"
	"github.com/gpurec/gpurec/analyze/model/straggler"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the columns of the facts.
var factColumns = []report.Column{
	{Key: "job", Title: "job", Unit: report.UnitText, About: "ranks, hosts and steps that were compared"},
	{
		Key:   "verdict",
		Title: "VERDICT",
		Unit:  report.UnitText,
		About: "the rank for which the others wait, or that there is none. A rank is late if its own time " +
			"exceeds that of " +
			"ranks that do the same, by more than 2 % of the step and more than chance allows. The own time " +
			"is the step without waits",
	},
	{
		Key:   "because",
		Title: "because",
		Unit:  report.UnitText,
		About: "part of the step that is longer, and what shows it",
	},
	{
		Key:   "gain",
		Title: "gain",
		Unit:  report.UnitText,
		About: "estimate of the time a step that the job gains if the rank were as fast as the others: the " +
			"mean distance " +
			"to the next latest rank",
	},
	{Key: "also", Title: "also", Unit: report.UnitText, About: "further late ranks"},
	{
		Key:   "basis",
		Title: "basis",
		Unit:  report.UnitText,
		About: "times on which the verdict rests, and what they cannot show",
	},
	{Key: "next", Title: "next", Unit: report.UnitText, About: "command that shows more"},
}

// sentences are the facts that text output wraps.
var sentences = []string{"job", "verdict", "because", "gain", "also", "basis", "next"}

// facts returns the verdict.
func (s *State) facts() []report.Fact {
	values := report.Values{
		"job":     s.jobText(),
		"verdict": s.noVerdictText(),
		"because": nil,
		"gain":    nil,
		"also":    nil,
		"basis":   s.basisText(),
		"next":    nil,
	}
	switch {
	case len(s.Verdicts) > 0:
		v := &s.Verdicts[0]
		values["verdict"], values["because"] = s.verdictText(v), units.TextOrNil(v.Because)
		values["gain"], values["also"] = s.gainText(v), units.TextOrNil(s.alsoText())
		values["next"] = s.nextText(v)
	case len(s.Network) > 0:
		values["verdict"], values["because"] = s.networkText(
			&s.Network[0],
		), units.TextOrNil(
			s.networkReason(&s.Network[0]),
		)
	case s.slower() != "":
		values["because"] = s.slower()
	}
	return report.NewFacts(factColumns, values)
}

// rankName names a member, such as "rank 3" or "pid 4242".
func (s *State) rankName(member int) string {
	m := &s.Job.Members[member]
	if m.Rank == job.UnknownRank {
		return m.Label
	}
	return fmt.Sprintf("rank %d", m.Rank)
}

// jobText describes the job.
func (s *State) jobText() string {
	size := len(s.Ranks)
	for i := range s.Job.Members {
		size = max(size, s.Job.Members[i].WorldSize)
	}
	text := fmt.Sprintf(
		"%d of %d ranks recorded, on %s",
		len(s.Ranks),
		size,
		units.CountWithNoun(int64(len(s.Job.Hosts)), "host"),
	)
	if s.Steps == 0 {
		return text + "; no steps found"
	}
	for i := range s.Ranks {
		r := &s.Ranks[i]
		if r.ByLaunches {
			return fmt.Sprintf("%s; %s of %s, found by launches that repeat: no collective was recorded", text,
				units.CountWithNoun(int64(s.Steps), "step"), units.CountWithNoun(int64(len(s.Ranks)), "rank"))
		}
		if s.Found.Figures[i].Steps != s.Steps || r.Communicator == 0 {
			continue
		}
		if r.WindowSize > 0 {
			return fmt.Sprintf("%s; %s of %s, because no operation repeats regularly", text,
				units.CountWithNoun(int64(s.Steps), "window"), units.CountWithNoun(r.WindowSize, "collective"))
		}
		return fmt.Sprintf("%s; %s of %s, each from one %s of %s to the next", text,
			units.CountWithNoun(int64(s.Steps), "step"), units.CountWithNoun(int64(r.PerStep), "collective"), r.Marker,
			communicatorName(r.Communicator, ""))
	}
	return text
}

// verdictText says who is late.
func (s *State) verdictText(v *Verdict) string {
	m := &s.Job.Members[v.Series]
	var verb string
	if v.ToStep < s.Found.Figures[v.Series].Steps {
		verb = fmt.Sprintf("was late from %s to %s", clockText(v.FromNs), clockText(v.ToNs))
	} else if verb = "is late in all recorded steps"; v.SinceNs != 0 {
		verb = "is late since " + clockText(v.SinceNs)
	}
	return fmt.Sprintf(
		"%s (%s, pid %d) %s: %s a step, %.0f %% of the step; the others wait for it",
		s.rankName(v.Series),
		cmp.Or(s.Job.Hosts[m.Host].Name, "unknown host"),
		m.Pid,
		verb,
		msText(v.LateNs),
		100*v.Share,
	)
}

// gainText says what the job gains without the lateness.
func (s *State) gainText(v *Verdict) string {
	return fmt.Sprintf(
		"about %s a step if it were as fast as the others (%s -> %s)",
		msText(v.GainNs),
		msText(v.StepNs),
		msText(v.StepNs-v.GainNs),
	)
}

// maxAlso is the number of further verdicts in a sentence.
const maxAlso = 4

// alsoText names further late ranks.
func (s *State) alsoText() string {
	var list []string
	for i := 1; i < len(s.Verdicts) && i <= maxAlso; i++ {
		v := &s.Verdicts[i]
		text := fmt.Sprintf("%s: %s a step", s.rankName(v.Series), msText(v.LateNs))
		if v.SinceNs != 0 {
			text += " since " + clockText(v.SinceNs)
		}
		list = append(list, text+", "+cmp.Or(v.Because, v.Why))
	}
	if more := len(s.Verdicts) - 1 - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

// leastBlocked is the share of a step that hosts are blocked, from which on a late host shows.
const leastBlocked = 0.02

// isVisible reports whether a late host would show: the hosts of some ranks wait for the GPU in recorded calls.
func (s *State) isVisible() bool {
	return s.Found.Basis != straggler.BasisHost || slices.ContainsFunc(s.Found.Figures, func(f straggler.Figures) bool {
		return f.Steps > 0 && f.WaitNs >= leastBlocked*f.StepNs
	})
}

// noVerdictText says why no rank is accused.
func (s *State) noVerdictText() string {
	switch {
	case len(s.Ranks) < 2:
		return "no rank is compared: the recordings have " + units.CountWithNoun(int64(len(s.Ranks)), "rank") +
			"; record the other ranks, too"
	case s.Steps == 0 && len(s.Operations) == 0:
		return "no rank is accused: ranks have no recorded collective of NCCL in common, and their launches show no " +
			"steps"
	case s.Steps == 0:
		return "no rank is accused: the recordings have too few collectives to find steps"
	case s.Found.IsTooShort:
		return fmt.Sprintf(
			"no rank is accused: %s that ranks with the same work have in common are too few; record for longer",
			units.CountWithNoun(int64(s.Steps), "step"),
		)
	case !s.isVisible():
		return "no rank is accused, and none could be: no host waits for the GPU in a recorded call; record " +
			"--gpu-time auto"
	}
	return "no rank is late: the own times of ranks that do the same differ by less than 2 % of the step, or by chance"
}

// basisText says on which times the verdict rests.
func (s *State) basisText() any {
	if s.Steps == 0 {
		return nil
	}
	var list []string
	switch s.Found.Basis {
	case straggler.BasisGPU:
		list = append(list, "GPU times of all ranks: starts and ends of kernels, measured or bounded")
	case straggler.BasisArrivals:
		list = append(list, "starts of the kernels of collectives on the GPUs, measured or bounded")
	default:
		list = append(list, "host times only: a late host shows, a slow GPU or network does not")
		for i := range s.Ranks {
			if why := s.Ranks[i].GPUMissing; why != "" {
				list = append(list, fmt.Sprintf("%s: %s", s.rankName(i), why))
				break
			}
		}
	}
	for i := range s.Series {
		if len(s.Series[i].Steps) > 0 && !s.Series[i].IsNumbered {
			list = append(list, "steps have no common numbers, so those of different ranks may be shifted")
			break
		}
	}
	return strings.Join(list, "; ")
}

// nextText returns a command that shows more.
func (s *State) nextText(v *Verdict) string {
	name := map[straggler.Cause]string{
		straggler.CauseGPU: "gpu", straggler.CauseWork: "kernels", straggler.CauseCopies: "copies",
	}[v.Reasons[0].Cause]
	m := &s.Job.Members[v.Series]
	command := fmt.Sprintf("gpurec analyze %s", cmp.Or(name, "gaps"))
	if m.Rank != job.UnknownRank {
		command += fmt.Sprintf(" --rank %d", m.Rank)
	}
	return command + " " + filepath.Base(s.Job.Paths[m.Recording])
}

// networkText says that the transfer is slow.
func (s *State) networkText(n *ranksteps.SlowNetwork) string {
	o := &s.Operations[n.Operation]
	since := "all the time"
	if n.SinceNs != 0 {
		since = "since " + clockText(n.SinceNs)
	}
	return fmt.Sprintf(
		"network: no rank is late, but %s of %s takes %s %s, instead of %s; %s a step",
		operationText(
			o,
		),
		communicatorName(o.Communicator, o.Name),
		msText(n.TransferNs),
		since,
		msText(n.UsualNs),
		msText(n.CostNs),
	)
}

// networkReason says what the slow communicators have in common.
func (s *State) networkReason(n *ranksteps.SlowNetwork) string {
	text := "the transfer, from the last arrival to the end, is longer than it was before"
	if n.SlowerThanPeers {
		text = "the transfer, from the last arrival to the end, is longer than on other communicators of the same size"
	}
	if len(n.CommonHosts) == 1 {
		return text + "; only the slow communicators have " + s.Job.Hosts[n.CommonHosts[0]].Name
	}
	return text + "; the recordings cannot tell which link is slow"
}

// slower says that the steps of all ranks became longer, "" if they did not.
func (s *State) slower() string {
	sinceNs, before, after, ok := s.findRise()
	if !ok {
		return ""
	}
	text := fmt.Sprintf(
		"the steps of all ranks take %s since %s, %s before, and no rank is later than the others",
		msText(after),
		clockText(sinceNs),
		msText(before),
	)
	if s.Found.Basis == straggler.BasisHost {
		text += "; a slow GPU or network would look like this without GPU times"
	}
	return text
}

// findRise returns since when the steps of all ranks are longer, Unix ns, and their medians before and after, ns. ok is
// false if they did not become longer.
func (s *State) findRise() (sinceNs int64, before, after float64, ok bool) {
	for i := range s.Series {
		if len(s.Series[i].Steps) != s.Steps || s.Steps == 0 {
			continue
		}
		values := make([]float64, s.Steps)
		for k := range values {
			values[k] = float64(s.Series[i].Steps[k].DurNs)
		}
		split, before, after, ok := ranksteps.Rise(values)
		if !ok {
			return 0, 0, 0, false
		}
		return s.Series[i].Steps[split].AtNs, before, after, true
	}
	return 0, 0, 0, false
}

// communicatorName returns the name of a communicator, or its identity as NCCL_DEBUG prints it.
func communicatorName(id int64, name string) string {
	if id == 0 && name == "" {
		return "unknown"
	}
	return cmp.Or(name, fmt.Sprintf("%016x", uint64(id)))
}

// operationText names an operation with its size.
func operationText(o *ranksteps.Operation) string {
	if o.Function == collective.FunctionOther {
		return "another operation of " + units.FormatBytes(o.Bytes)
	}
	return fmt.Sprintf("%s of %s", o.Function, units.FormatBytes(o.Bytes))
}

// clockText formats a time of day.
func clockText(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05") + " UTC" }
