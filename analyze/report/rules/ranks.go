package rules

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
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
	About: "ranks have waited for 1 s or longer for a rank that has not called their operation, or that died: a " +
		"problem. That rank waits for no other",
	Report: "hang",
	advice: "Look at the host of the missing rank: its stack, its Xids, its data loader. The waiting ranks are " +
		"healthy.",
	check:      checkRankMissing,
	needsRanks: true,
}

func checkCollectiveMismatch(s *Scan) ([]Hit, error) {
	return s.rankHits(func(k waitgraph.Kind) bool { return k == waitgraph.Mismatch })
}

func checkRankMissing(s *Scan) ([]Hit, error) {
	return s.rankHits(func(k waitgraph.Kind) bool { return k == waitgraph.Died || k == waitgraph.Missing })
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

// readRanks reads the states of the ranks of the recording.
func (s *Scan) readRanks() (err error) {
	if collective.HasRows(s.t) {
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
		e.Where = fmt.Sprintf("rank %s (pid %d)", r.Member.Label, r.Member.Pid)
		e.Stack, e.Count = r.Stack, int64(1)
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
