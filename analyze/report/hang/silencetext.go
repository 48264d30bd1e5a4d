package hang

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// DescribeSilence returns a sentence on processes without calls, with the rank that differs and its line, and the
// confidence with its reasons. list has verdicts of one state, as ClassifySilent orders them, and is not empty.
func (s *Scan) DescribeSilence(list []SilentVerdict) (text, confidence string, reasons []string) {
	first := &list[0]
	var awaited, others []SilentVerdict
	for _, v := range list {
		switch {
		case v.isRank() != first.isRank() || v.isRank() && v.Job != first.Job:
		case v.IsAwaited:
			awaited = append(awaited, v)
		default:
			others = append(others, v)
		}
	}
	switch {
	case len(awaited) > 0:
		text = s.awaitedText(awaited, others)
	case first.isRank():
		text = s.equalText(others)
	default:
		text = fmt.Sprintf("%s hangs: %s", s.nameOf(first), s.whatItDoes(first))
		if more := len(others) - 1; more > 0 {
			text += fmt.Sprintf("; %s", units.CountWithNoun(int64(more), "more process"))
		}
	}
	if more := len(list) - len(awaited) - len(others); more > 0 {
		text += fmt.Sprintf("; outside of this job, %s", units.CountWithNoun(int64(more), "more process"))
	}
	confidence, reasons = s.silenceConfidence(list)
	return text, confidence, reasons
}

// awaitedText says that ranks wait for those that differ.
func (s *Scan) awaitedText(awaited, others []SilentVerdict) string {
	first := &awaited[0]
	hangs := map[bool]string{true: "the job hangs", false: "the job may hang"}[first.State == StateHanging]
	text := fmt.Sprintf("%s: %s %s", hangs, s.nameOf(first), s.whatItDoes(first))
	if more := len(awaited) - 1; more > 0 {
		text += fmt.Sprintf(", and %s like it", units.CountWithNoun(int64(more), "more rank"))
	}
	if len(others) == 0 {
		return text + "; the other ranks wait for it"
	}
	wait := map[bool]string{true: "waits", false: "wait"}[len(others) == 1]
	return fmt.Sprintf("%s; %s %s for it: %s %s", text, units.CountWithNoun(int64(len(others)), "rank"), wait,
		s.nameOf(&others[0]), s.whatItDoes(&others[0]))
}

// equalText describes ranks that all wait. If most of them do the same, it names one that does
// not. If they do two things, it names both.
func (s *Scan) equalText(list []SilentVerdict) string {
	var members []threadstate.Member
	for i := range list {
		members = append(members, list[i].Member)
	}
	groups := threadstate.GroupMembers(members)
	most := slices.IndexFunc(list, func(v SilentVerdict) bool { return v.Snapshot == groups[0].Members[0].Snapshot })
	text := fmt.Sprintf("the job hangs: no rank is known to be late; %s %s", s.nameOf(&list[most]),
		s.whatItDoes(&list[most]))
	if more := len(groups[0].Members) - 1; more > 0 {
		text += fmt.Sprintf(", and %s like it", units.CountWithNoun(int64(more), "more rank"))
	}
	if len(groups) < 2 {
		return text
	}
	odd := &groups[1].Members[0]
	i := slices.IndexFunc(list, func(v SilentVerdict) bool { return v.Snapshot == odd.Snapshot })
	switch {
	case 2*len(groups[0].Members) > len(list):
		text += fmt.Sprintf("; %s differs: it %s", s.nameOf(&list[i]), describeMember(odd))
	case len(groups) == 2:
		text += fmt.Sprintf("; %s %s", s.nameOf(&list[i]), describeMember(odd))
		if more := len(groups[1].Members) - 1; more > 0 {
			text += fmt.Sprintf(", and %s like it", units.CountWithNoun(int64(more), "more rank"))
		}
	}
	return text
}

// nameOf names a process by its rank, or by its pid and name.
func (s *Scan) nameOf(v *SilentVerdict) string {
	if v.isRank() {
		return fmt.Sprintf("rank %d", v.Rank)
	}
	return "process " + s.T.PidLabel(v.Snapshot.Pid)
}

// whatItDoes returns what the thread of a process does, its line, and since when.
func (s *Scan) whatItDoes(v *SilentVerdict) string {
	text := v.Snapshot.Why(v.Thread)
	if site := s.SiteOfSilent(v); site != "" {
		text += ", at " + site
	}
	if v.SinceNs > 0 {
		text += ", for at least " + units.FormatDuration(v.SinceNs)
	}
	return text
}

// SiteOfSilent returns the line at which a process without calls is, "" if it is unknown.
func (s *Scan) SiteOfSilent(v *SilentVerdict) string {
	return cmp.Or(s.siteOfStack(v.Thread), v.Thread.Site())
}

// longProofNs is the time from which on a wait is taken for a hang with high confidence. Kernels, loads of checkpoints
// and first steps may take seconds.
const longProofNs = int64(10 * time.Second)

// silenceConfidence returns the confidence in verdicts of one state, and the reasons that lower it.
func (s *Scan) silenceConfidence(list []SilentVerdict) (level string, reasons []string) {
	level = report.ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if level == report.ConfidenceHigh || to == report.ConfidenceLow {
			level = to
		}
		reasons = append(reasons, fmt.Sprintf(format, args...))
	}
	first := &list[0]
	longest := slices.MaxFunc(list, func(a, b SilentVerdict) int { return cmp.Compare(a.SinceNs, b.SinceNs) })
	if longest.SinceNs < longProofNs {
		lower(report.ConfidenceMedium, "the recording shows only %s of the wait", units.FormatDuration(longest.SinceNs))
	}
	switch {
	case first.State == StateWaiting:
		lower(report.ConfidenceMedium, "no rank waits in a call of CUDA or NCCL")
	case first.IsAwaited && isRunning(first.Thread):
		lower(report.ConfidenceMedium, "%s runs: it may only be slow", s.nameOf(first))
	case first.IsAwaited && waitsForInput(first.Thread):
		lower(report.ConfidenceMedium, "%s waits for input: so does a server without requests", s.nameOf(first))
	case !first.IsAwaited && len(list) == 1:
		lower(report.ConfidenceMedium, "a single process may wait for long work of the GPU")
	}
	if lost := s.T.Rec.Meta.Totals().Lost; lost > 0 {
		lower(report.ConfidenceLow, "%s lost", units.CountWithNoun(lost, "call"))
	}
	return level, reasons
}
