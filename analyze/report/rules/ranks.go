package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/census"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/report/hang"
)

var collectiveMismatchRule = Rule{
	ID: "collective-mismatch",
	About: "ranks of a communicator call different operations with the same number, and have waited for 1 s or " +
		"longer: a problem. Operations differ by function, type, count, root or reduction",
	Report: "hang",
	advice: "Compare the lines of both sides: all ranks must call the operations of a communicator in the same " +
		"order, with equal arguments.",
	check:      checkCollectiveMismatch,
	needsRanks: true,
}

var rankMissingRule = Rule{
	ID: "rank-missing",
	About: "ranks have waited for 1 s or longer for a rank that has not called their operation, or that died. That " +
		"rank waits for no other. Or a rank died, and the others ended within a minute after it: a problem",
	Report: "hang",
	advice: "Look at the host of the missing rank: its stack, its Xids, its data loader. The waiting ranks are " +
		"healthy.",
	check:      checkRankMissing,
	needsRanks: true,
}

func checkCollectiveMismatch(s *Scan) ([]Hit, error) {
	hits, err := s.rankHits(func(k waitgraph.Kind) bool { return k == waitgraph.Mismatch })
	return append(hits, s.countHits(rankstate.CountsDifferent, rankstate.CountsUneven)...), err
}

func checkRankMissing(s *Scan) ([]Hit, error) {
	hits, err := s.rankHits(func(k waitgraph.Kind) bool { return k == waitgraph.Died || k == waitgraph.Missing })
	hits = append(hits, s.countHits(rankstate.CountsNotJoined, rankstate.CountsAbsent)...)
	if s.ranks != nil && s.ranks.FirstDeath != nil {
		hits = append(hits, newDeathHit(s.ranks))
	}
	return hits, err
}

// newDeathHit returns the hit of the rank that died first.
func newDeathHit(ranks *rankstate.State) Hit {
	h := Hit{Severity: SeverityProblem}
	var why string
	h.Summary, why, h.Confidence, h.Reasons = hang.DescribeFirstDeath(ranks)
	r := &ranks.Ranks[ranks.FirstDeath.Rank]
	e := Evidence{Ns: ranks.FirstDeath.LeadNs, FirstNs: r.DeadNs, lastNs: ranks.EndNs, Detail: why}
	e.ofRank(r)
	h.Summary += "; " + why
	h.Evidence = []Evidence{e}
	return h
}

// rankHits returns a hit for each fault of some kinds.
func (s *Scan) rankHits(isKind func(waitgraph.Kind) bool) ([]Hit, error) {
	ranks := s.ranks
	if ranks == nil {
		return nil, nil
	}
	var hits []Hit
	for i := range ranks.Verdict.Faults {
		if f := &ranks.Verdict.Faults[i]; isKind(f.Kind) {
			hits = append(hits, newRankHit(ranks, f))
		}
	}
	return hits, nil
}

// countHits returns the hit of what the counters of NCCL say, if it is of one of some kinds.
func (s *Scan) countHits(kinds ...rankstate.CountsKind) []Hit {
	if s.ranks == nil || !slices.Contains(kinds, s.ranks.Counted.Kind) {
		return nil
	}
	d, v := hang.DescribeCounts(s.ranks), &s.ranks.Counted
	if d.WaitNs == 0 {
		return nil
	}
	h := Hit{Severity: SeverityProblem, Summary: d.Summary(), Confidence: d.Confidence, Reasons: d.Reasons}
	wait := Evidence{Ns: d.WaitNs, FirstNs: s.ranks.EndNs - d.WaitNs, lastNs: s.ranks.EndNs, Detail: d.Why}
	for _, rank := range v.Ranks[:min(len(v.Ranks), maxRankEvidence)] {
		e := wait
		e.ofRank(&s.ranks.Ranks[rank])
		h.Evidence = append(h.Evidence, e)
	}
	if len(v.Ranks) == 0 {
		wait.Where = "no rank is suspect"
		if v.Kind == rankstate.CountsAbsent {
			h.Advice = "Look for its end in its output and in the kernel log. If it runs, record all ranks of the job."
			wait.Where = census.RanksText(s.ranks.Absent)
		}
		h.Evidence = []Evidence{wait}
	}
	return []Hit{h}
}

// ofRank sets the place of evidence to a rank.
func (e *Evidence) ofRank(r *rankstate.Rank) {
	e.Where = fmt.Sprintf("rank %s (pid %d)", r.Member.Label, r.Member.Pid)
	e.Stack, e.Count, e.Pid = r.Stack, int64(1), r.Member.Pid
}

// hasOperations reports whether a recording has operations of ranks, or counters of NCCL of several processes.
func hasOperations(t *timeline.Timeline) bool {
	if collective.HasRows(t) {
		return true
	}
	if len(t.Facts.Processes) < 2 {
		return false
	}
	list, err := collective.ReadCommunicators(t.Pieces...)
	return err == nil && slices.ContainsFunc(list, func(c collective.Communicator) bool { return c.Fact.Census != nil })
}

// readRanks reads the states of the ranks of the recording.
func (s *Scan) readRanks() (err error) {
	if hasOperations(s.t) {
		var opt hang.Options
		opt.Filter, opt.LongNs = *s.filter, hang.DefaultLongCallNs
		s.ranks, err = hang.ReadRanks(s.t, &opt)
	}
	return err
}

// maxRankEvidence is the number of culprits that a hit lists.
const maxRankEvidence = 20

// newRankHit returns the hit of a fault. Its evidence has one row for each culprit, or one for the operation.
func newRankHit(ranks *rankstate.State, f *waitgraph.Fault) Hit {
	h := Hit{Severity: SeverityProblem}
	var text string
	h.Summary, text, h.Confidence, h.Reasons = hang.DescribeFault(ranks, f)
	w := &f.Waits[0]
	wait := Evidence{Ns: ranks.EndNs - w.SinceNs, FirstNs: w.SinceNs, lastNs: ranks.EndNs, Detail: text}
	for _, rank := range f.Ranks[:min(len(f.Ranks), maxRankEvidence)] {
		r, e := &ranks.Ranks[rank], wait
		e.ofRank(r)
		if r.Site != "" && f.Kind != waitgraph.Mismatch {
			e.Detail = strings.Join([]string{text, "it " + r.Does + ", at " + r.Site}, "; ")
		}
		h.Evidence = append(h.Evidence, e)
	}
	if len(f.Ranks) == 0 {
		wait.Where = "no rank is suspect"
		h.Evidence = []Evidence{wait}
	}
	return h
}
