package rules

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/report/hang"
)

// silentHits returns the hits of rule hang about processes that hung before the recording: they make no call in it.
// It returns errors of reading the recording.
func (s *Scan) silentHits() (hits []Hit, err error) {
	for severity, state := range []hang.HangState{
		SeverityProblem: hang.StateHanging,
		SeverityNotice:  hang.StateWaiting,
	} {
		list := hang.OfState(s.silent, state)
		if !hang.IsProven(list) {
			continue
		}
		h := Hit{Severity: severity}
		h.Summary, h.Confidence, h.Reasons = s.hang.DescribeSilence(list)
		h.IsOfJob = list[0].Rank != threadstate.UnknownRank
		if h.IsOfJob && !list[0].IsAwaited {
			more, err := s.describeRanks()
			if err != nil {
				return nil, err
			}
			h.Summary += more
		}
		for i := range list {
			h.Evidence = append(h.Evidence, s.silentEvidence(&list[i]))
		}
		hits = append(hits, h)
	}
	return hits, nil
}

// describeRanks describes ranks that all wait. It names the ranks without a process, or says that the counters of NCCL
// are equal. It returns "" if neither is known.
func (s *Scan) describeRanks() (string, error) {
	if s.ranks != nil && s.ranks.Counted.Kind == rankstate.CountsEqual {
		return ". All ranks launched the same number of each collective, so counters do not say which one differs", nil
	}
	var opt hang.Options
	opt.Filter, opt.LongNs = *s.filter, hang.DefaultLongCallNs
	absent, err := hang.DescribeAbsent(s.t, &opt)
	if err != nil || absent == "" {
		return "", err
	}
	return ". " + strings.ToUpper(absent[:1]) + absent[1:], nil
}

// silentEvidence returns the evidence about one process.
func (s *Scan) silentEvidence(v *hang.SilentVerdict) Evidence {
	where := "process " + s.t.PidLabel(v.Snapshot.Pid)
	if site := s.hang.SiteOfSilent(v); site != "" {
		where = site + " in " + where
	}
	detail := v.Snapshot.Describe(v.Thread, v.SinceNs)
	if v.IsAwaited {
		detail = "other ranks wait for it: " + detail
	}
	return Evidence{
		Where:   where,
		Stack:   v.Thread.Stack,
		Pid:     v.Snapshot.Pid,
		Count:   int64(1),
		Ns:      v.SinceNs,
		FirstNs: s.hang.EndNs - v.SinceNs,
		lastNs:  s.hang.EndNs,
		Detail:  detail,
	}
}
