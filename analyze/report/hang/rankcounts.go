package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/census"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// CountsText describes ranks that wait without a recorded call, by the counters of NCCL.
type CountsText struct {
	// Cause is the difference between the ranks, "" if there is none. Why says what it means. Waiting says which ranks
	// wait, and since when.
	Cause, Why, Waiting string
	// WaitNs is the time for which the ranks have waited at least, ns.
	WaitNs     int64
	Confidence string
	Reasons    []string
}

// What says what hangs.
func (d *CountsText) What() string {
	if d.WaitNs == 0 {
		return d.Cause + "; " + d.Waiting
	}
	return "the job hangs: " + d.Cause + "; " + d.Waiting
}

// Summary says what hangs, and why.
func (d *CountsText) Summary() string {
	return fmt.Sprintf("the job hangs: %s: %s; %s", d.Cause, d.Why, d.Waiting)
}

// DescribeCounts returns what the counters say of a job without a fault, nil if they say nothing.
func DescribeCounts(s *rankstate.State) *CountsText {
	v := &s.Counted
	if v.Kind == rankstate.CountsSilent {
		return nil
	}
	waitNs := waitNs(s, v)
	d := &CountsText{
		Waiting: waitingText(s, v, waitNs), WaitNs: waitNs, Confidence: report.ConfidenceMedium,
		Reasons: []string{"only counts of launches are known"},
	}
	switch v.Kind {
	case rankstate.CountsDifferent:
		d.Cause = censusText(s, v.Census)
		d.Why = "cannot say which call is wrong: the recording began after it" + linesText(s, v)
	case rankstate.CountsUneven:
		d.Cause, d.Why = v.Census.Text(), unevenText(s, v)
	case rankstate.CountsNotJoined:
		d.Cause = fmt.Sprintf(
			"%s %s not joined communicator %s",
			ranksText(s, v.Ranks),
			verbFor(v.Ranks, "has", "have"),
			communicatorName(s, v.Census.Communicator),
		)
		d.Why = whereText(s, v.Ranks[0])
		d.Reasons = []string{"only communicators that NCCL lists are known"}
	case rankstate.CountsAbsent:
		d.Cause = absentCause(s)
		d.Why, d.Reasons = absentReason(s), []string{"the recording does not say why"}
		if len(s.AbsentHosts) < len(s.Absent) {
			d.Confidence = report.ConfidenceLow
		}
	case rankstate.CountsEqual:
		d.Cause = fmt.Sprintf("all %d ranks launched the same number of each operation, so none is behind",
			len(v.Census.Sides))
		d.Why = equalCountsReason + linesText(s, v)
	}
	if waitNs > 0 && waitNs < longProofNs {
		d.Reasons = append(
			d.Reasons,
			fmt.Sprintf("the recording shows only %s of the wait", units.FormatDuration(waitNs)),
		)
	}
	return d
}

// equalCountsReason says what equal counters leave open.
const equalCountsReason = "cannot say which rank is wrong: a rank may pass another count, type or reduction, " +
	"or use communicators in another order; or a GPU or a link stands still. The counters do not show it, and the " +
	"recording began after the calls"

// waitingText says how many ranks wait, since when, and where the first of them is.
func waitingText(s *rankstate.State, v *rankstate.CountsVerdict, waitNs int64) string {
	if len(v.Waiting) == 0 {
		return "no rank is known to wait"
	}
	who := units.CountWithNoun(int64(len(v.Waiting)), "rank") + " " + verbFor(v.Waiting, "has", "have")
	if len(v.Waiting) == s.Communicators[v.Census.Communicator].Size {
		who = "all have"
	}
	text := fmt.Sprintf("%s waited for at least %s", who, units.FormatDuration(waitNs))
	if first := v.Waiting[0]; s.Ranks[first].Does != "" {
		text += ": " + whereText(s, first)
	}
	return text
}

// waitNs returns the time for which all ranks of Waiting have waited at least, ns; 0 if there are none.
func waitNs(s *rankstate.State, v *rankstate.CountsVerdict) int64 {
	if len(v.Waiting) == 0 {
		return 0
	}
	since := v.Census.SinceNs
	for i, rank := range v.Waiting {
		at := v.Census.SinceNs
		if thread := s.Ranks[rank].SinceNs; thread > 0 {
			at = min(at, thread)
		}
		if since = max(since, at); i == 0 {
			since = at
		}
	}
	return max(0, s.EndNs-since)
}

// unevenText says what different numbers of launches mean if all ranks wait for their GPUs.
func unevenText(s *rankstate.State, v *rankstate.CountsVerdict) string {
	if len(v.Ranks) == 0 {
		return "cannot say which ranks are wrong: no side has fewer ranks"
	}
	who := ranksText(s, v.Ranks)
	if slices.Contains(v.Census.Ranks, s.Ranks[v.Ranks[0]].Member.Rank) {
		return fmt.Sprintf("%s as the others do, so %s left out a call or made another one, or %s not end earlier work",
			who+" "+verbFor(v.Ranks, "waits", "wait"), verbFor(v.Ranks, "it", "they"),
			verbFor(v.Ranks, "its GPU does", "their GPUs do"))
	}
	return fmt.Sprintf("the others wait, so %s made a call that they did not make", who)
}

// whereText says what a rank does, and its line.
func whereText(s *rankstate.State, rank int) string {
	r := &s.Ranks[rank]
	if r.Does == "" {
		return ranksText(s, []int{rank}) + " makes no call"
	}
	return fmt.Sprintf("%s %s%s", ranksText(s, []int{rank}), r.Does, atText(r.Site))
}

// absentCause names the ranks without a process in the recording.
func absentCause(s *rankstate.State) string {
	return fmt.Sprintf("%s of %d %s no process in the recording", census.RanksText(s.Absent), s.WorldSize,
		verbFor(s.Absent, "has", "have"))
}

// DescribeAbsent names the ranks of a job without a process in the recording, although they belong to a recorded host. It
// returns "" if there are none, and errors of reading the recording.
func DescribeAbsent(t *timeline.Timeline, opt *Options) (string, error) {
	s, err := readRankStates(t, opt)
	if err != nil || s == nil || len(s.AbsentHosts) == 0 {
		return "", err
	}
	return absentCause(s) + ": " + absentReason(s), nil
}

// absentReason says why ranks may have no process in the recording.
func absentReason(s *rankstate.State) string {
	var here, elsewhere []int
	var hosts []string
	for _, rank := range s.Absent {
		host, ok := s.AbsentHosts[rank]
		if !ok {
			elsewhere = append(elsewhere, rank)
			continue
		}
		here = append(here, rank)
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	var parts []string
	if len(here) > 0 {
		parts = append(
			parts,
			fmt.Sprintf("%s belong%s to %s by LOCAL_RANK, so %s ended before the recording, or %s left out",
				census.RanksText(here), verbFor(here, "s", ""), units.JoinWithAnd(hosts), verbFor(here, "it", "they"),
				verbFor(here, "was", "were")),
		)
	}
	if len(elsewhere) > 0 {
		parts = append(parts, fmt.Sprintf("%s ended before the recording, or %s on another host",
			census.RanksText(elsewhere), verbFor(elsewhere, "runs", "run")))
	}
	return strings.Join(parts, "; ")
}

// linesText names the lines of ranks that wait at different ones, "" if all wait at the same.
func linesText(s *rankstate.State, v *rankstate.CountsVerdict) string {
	at := make(map[string][]int)
	var order []string
	for _, rank := range v.Waiting {
		site := s.Ranks[rank].Site
		if at[site] == nil {
			order = append(order, site)
		}
		at[site] = append(at[site], rank)
	}
	if len(order) < 2 || len(order) > maxLabels {
		return ""
	}
	var parts []string
	for _, site := range order {
		parts = append(parts, ranksText(s, at[site])+atText(site))
	}
	return ". They wait at different lines: " + strings.Join(parts, "; ")
}

// explainByCounts sets the verdict of a job whose operations show no fault.
func explainByCounts(s *rankstate.State, values report.Values) {
	d := DescribeCounts(s)
	switch {
	case d != nil:
		values["hangs"], values["fault"] = d.What(), d.Why
		values["rank_confidence"] = confidenceText(d.Confidence, d.Reasons)
		if s.Counted.Kind == rankstate.CountsAbsent {
			values["missing"] = absentText(s) + ": the verdict depends on " + verbFor(s.Absent, "it", "them")
		}
	case len(s.Verdict.Faults) == 0 && len(s.Census) > 0 && censusByDifference(s)[0].Kind == census.Equal:
		values["hangs"] = "all ranks have launched the same number of each operation: no rank is behind. The last " +
			"operations have ended, or do not end on the GPUs"
	}
}
