package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// rankFactColumns are the columns of rankFacts.
var rankFactColumns = []report.Column{
	{
		Key: "hangs", Title: "HANGS", Unit: report.UnitText,
		About: "the operation that does not end on the ranks of a job, and the ranks that it waits for",
	},
	{
		Key: "fault", Title: "fault", Unit: report.UnitText,
		About: "why these ranks are the cause: they wait for no other rank, died, or call something else",
	},
	{
		Key: "more", Title: "also", Unit: report.UnitText,
		About: "other ranks or operations at which waits end; absent if there are none",
	},
	{
		Key: "order", Title: "order", Unit: report.UnitText,
		About: "whether the death of a rank was before the waits of the others, with the error of the clocks",
	},
	{
		Key: "missing", Title: "missing", Unit: report.UnitText,
		About: "ranks that were not recorded, and whether the verdict depends on them",
	},
	{
		Key: "next", Title: "next", Unit: report.UnitText,
		About: "when the watchdog of PyTorch aborts the job with its default timeout of 10 minutes",
	},
	{
		Key: "rank_confidence", Title: "confidence", Unit: report.UnitText,
		About: "confidence in the verdict on ranks, and the reasons that lower it",
	},
}

// rankSentences are the facts on ranks that text output wraps.
var rankSentences = []string{"census", "hangs", "fault", "more", "order", "missing", "next", "rank_confidence"}

// rankFacts returns the verdict on the ranks of a job.
func rankFacts(s *rankstate.State) []report.Fact {
	values := report.Values{
		"hangs": noHangText(s), "fault": nil, "more": nil, "order": nil, "missing": nil, "next": nil,
		"rank_confidence": nil,
	}
	if absent := absentText(s); absent != "" {
		values["missing"] = absent
	}
	if len(s.Verdict.Faults) > 0 {
		f := &s.Verdict.Faults[0]
		values["hangs"], values["fault"] = hangText(s, f), faultText(s, f)
		values["more"] = units.TextOrNil(otherFaultsText(s))
		values["order"] = units.TextOrNil(orderText(s, f))
		values["next"] = units.TextOrNil(watchdogText(s))
		level, reasons := rankConfidence(s, f)
		values["rank_confidence"] = confidenceText(level, reasons)
	}
	if s.FirstDeath != nil {
		var level string
		var reasons []string
		values["hangs"], values["fault"], level, reasons = DescribeFirstDeath(s)
		values["rank_confidence"] = confidenceText(level, reasons)
	}
	explainByCounts(s, values)
	return append(report.NewFacts(rankFactColumns, values), censusFacts(s)...)
}

// noHangText is the sentence for jobs without a fault.
func noHangText(s *rankstate.State) string {
	recorded := fmt.Sprintf("%d of %d ranks recorded", len(s.Ranks), max(s.WorldSize, len(s.Ranks)))
	standing := s.Verdict.Standing
	if !slices.ContainsFunc(s.Ranks, func(r rankstate.Rank) bool { return r.DeadNs == 0 }) {
		return fmt.Sprintf("no hang: all recorded ranks have ended; %s", recorded)
	}
	if standing == 0 {
		return fmt.Sprintf("no hang: all recorded ranks call new operations; %s", recorded)
	}
	return fmt.Sprintf("no hang is known: %d ranks made no new call for %s, but all operations that they called could "+
		"end; %s", standing, units.FormatDuration(s.Graph.LongNs), recorded)
}

// hangText says what hangs.
func hangText(s *rankstate.State, f *waitgraph.Fault) string {
	w := &f.Waits[0]
	ago := agoText(s, w)
	what := waitText(s, w)
	if c := calledOperation(s, w); c != nil && !s.Communicators[w.Communicator].Init && f.Kind != waitgraph.Mismatch &&
		!c.ByCensus {
		what += ", " + amountText(c) + ","
	}
	switch f.Kind {
	case waitgraph.Mismatch:
		differs := fmt.Sprintf("#%d of %s differs", w.Number, communicatorText(s, w.Communicator))
		if len(f.Ranks) == 0 {
			return fmt.Sprintf("the ranks call different operations: %s, for %s", differs, ago)
		}
		return fmt.Sprintf("%s %s something else: %s, for %s", ranksText(s, f.Ranks), verbFor(f.Ranks, "calls", "call"),
			differs, ago)
	case waitgraph.Cycle:
		return fmt.Sprintf("%s wait for each other: %s has waited for %s", ranksText(s, f.Ranks), what, ago)
	case waitgraph.Stuck:
		return fmt.Sprintf("%s does not end, for %s: all its ranks called it", what, ago)
	case waitgraph.Unrecorded:
		return fmt.Sprintf("%s has not ended for %s; it may wait for ranks that were not recorded", what, ago)
	case waitgraph.UnknownPeer:
		return fmt.Sprintf("%s may not have ended for %s; which rank it waits for is unknown", what, ago)
	}
	return fmt.Sprintf("%s has waited for %s for %s", what, ranksText(s, f.Ranks), ago)
}

// agoText returns the time since which an operation waits. Counters of NCCL show only the least one.
func agoText(s *rankstate.State, w *waitgraph.Wait) string {
	ago := units.FormatDuration(max(0, s.EndNs-w.SinceNs))
	if isByCensus(s, w) {
		return "at least " + ago
	}
	return ago
}

// isByCensus reports whether an operation follows from counters of NCCL.
func isByCensus(s *rankstate.State, w *waitgraph.Wait) bool {
	c := calledOperation(s, w)
	return c != nil && c.ByCensus
}

// faultText says why the culprits are the cause.
func faultText(s *rankstate.State, f *waitgraph.Fault) string {
	who := ranksText(s, f.Ranks)
	waiting := units.CountWithNoun(
		int64(f.Waiting),
		"rank",
	) + " " + map[bool]string{true: "waits", false: "wait"}[f.Waiting == 1]
	switch f.Kind {
	case waitgraph.Died:
		return fmt.Sprintf("%s died; %s for %s", deathsText(s, f.Ranks), waiting, verbFor(f.Ranks, "it", "them"))
	case waitgraph.Missing:
		return missingText(s, f, waiting)
	case waitgraph.Mismatch:
		return mismatchText(s, f)
	case waitgraph.Cycle:
		text := fmt.Sprintf("%s first wait in one operation and call the other later, in different orders", who)
		if f.Guessed {
			text += "; this holds if the operations of a rank do not run at the same time"
		}
		return text
	case waitgraph.Stuck:
		return "no rank is missing: look at the GPUs, the links and the network between " + commonPlace(s, f.Ranks)
	case waitgraph.Unrecorded:
		text := fmt.Sprintf("cannot say: all recorded ranks called it, %d %s not recorded", f.Waits[0].Unknown,
			map[bool]string{true: "was", false: "were"}[f.Waits[0].Unknown == 1])
		if len(s.AbsentHosts) > 0 {
			text += "; " + absentReason(s)
		}
		return text
	}
	return "cannot say: the calls of the ranks have no common numbers, because the recording began after the " +
		"communicator was made"
}

// deathsText says how ranks died, at most three of them.
func deathsText(s *rankstate.State, ranks []int) string {
	var list []string
	for _, rank := range ranks[:min(len(ranks), 3)] {
		r := &s.Ranks[rank]
		list = append(list, fmt.Sprintf("rank %s (%s pid %d: %s)", r.Member.Label, r.Host, r.Member.Pid, r.Fate))
	}
	text := strings.Join(list, ", ")
	if more := len(ranks) - 3; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// missingText describes ranks that have not called an operation.
func missingText(s *rankstate.State, f *waitgraph.Fault, waiting string) string {
	w := &f.Waits[0]
	text := fmt.Sprintf(
		"%s %s for no other rank; %s for %s",
		ranksText(s, f.Ranks),
		verbFor(f.Ranks, "waits", "wait"),
		waiting,
		verbFor(f.Ranks, "it", "them"),
	)
	if f.Guessed {
		text = fmt.Sprintf("%s %s not known to wait for another rank; %s for %s", ranksText(s, f.Ranks),
			verbFor(f.Ranks, "is", "are"), waiting, verbFor(f.Ranks, "it", "them"))
	}
	if same := agreement(s, w); same != "" {
		text += ". " + same
	}
	if len(w.Called) < len(w.NotCalled) {
		text += fmt.Sprintf(". Or %s %s one operation more than the others", ranksText(s, w.Called),
			verbFor(w.Called, "calls", "call"))
	}
	return text
}

// agreement says in what the calls of the waiting ranks are equal.
func agreement(s *rankstate.State, w *waitgraph.Wait) string {
	var first *rankstate.Call
	sameSite := true
	for _, rank := range w.Called {
		c := callOf(s, rank, w)
		switch {
		case c == nil, c.ByCensus:
			return ""
		case first == nil:
			first = c
		}
		sameSite = sameSite && c.Site == first.Site
	}
	if len(w.Called) < 2 || s.Communicators[w.Communicator].Init {
		return ""
	}
	text := fmt.Sprintf("These %d agree: operation, type, size", len(w.Called))
	if sameSite && first.Site != "" {
		text += ", line (" + first.Site + ")"
	}
	return text
}

// mismatchText describes the calls after a mismatch.
func mismatchText(s *rankstate.State, f *waitgraph.Fault) string {
	if len(f.Ranks) == 0 {
		return "cannot say which ranks are wrong: no side has clearly fewer ranks"
	}
	who, n := ranksText(s, f.Ranks), f.Waits[0].Number
	site := s.Ranks[f.Sides[0].Ranks[0]].Calls[f.Sides[0].Operation].Site
	other := s.Ranks[f.Sides[len(f.Sides)-1].Ranks[0]].Calls[f.Sides[len(f.Sides)-1].Operation].Site
	switch f.Shift {
	case waitgraph.ExtraCall:
		return fmt.Sprintf(
			"from here on #%d of %s equals #%d of the others: one call more%s",
			n+1,
			who,
			n,
			atText(site),
		)
	case waitgraph.SkippedCall:
		return fmt.Sprintf("from here on #%d of %s equals #%d of the others: one call less, which the others make%s", n,
			who, n+1, atText(other))
	}
	return fmt.Sprintf("%s %s fewer than those that agree", who, verbFor(f.Ranks, "is", "are"))
}

// atText returns " at SITE", or "".
func atText(site string) string {
	if site == "" {
		return ""
	}
	return ", at " + site
}

// commonPlace names the hosts of ranks.
func commonPlace(s *rankstate.State, ranks []int) string {
	var hosts []string
	for _, rank := range ranks {
		if h := s.Ranks[rank].Host; !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	if len(hosts) > 4 {
		return fmt.Sprintf("%d hosts", len(hosts))
	}
	return units.JoinWithAnd(hosts)
}

// confidenceText returns a level of confidence and the reasons that lower it.
func confidenceText(level string, reasons []string) string {
	if len(reasons) == 0 {
		return level
	}
	return level + ": " + strings.Join(reasons, ", ")
}
