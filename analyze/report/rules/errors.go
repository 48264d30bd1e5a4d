package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/analyze/units"
)

var xidRule = Rule{
	ID:     "xid",
	About:  "the NVIDIA driver reported an Xid or SXid error of a GPU or NVSwitch during the recording",
	Report: "xid",
	check:  checkXid,
}

func checkXid(s *Scan) ([]Hit, error) {
	list := slices.DeleteFunc(xid.SelectXids(s.t, s.filter, s.Window), func(x facts.Xid) bool { return x.Before })
	if len(list) == 0 {
		return nil, nil
	}
	h := Hit{Severity: SeverityProblem, Confidence: report.ConfidenceHigh}
	for i := range list {
		x := &list[i]
		e, known := x.Describe()
		if !known {
			h.lowerConfidence(report.ConfidenceMedium, "this version of gpurec does not know %s %d", x.Kind(), x.Code)
		}
		where := x.Pci
		if x.Device >= 0 {
			where = s.gpuLabel(x.Device)
		}
		if x.Pid != 0 {
			where = strings.TrimSpace(where + ", process " + cmp.Or(s.t.PidLabel(x.Pid), x.Process))
		}
		h.Evidence = append(
			h.Evidence,
			Evidence{
				Where:   where,
				Count:   int64(1),
				FirstNs: x.AtNs,
				lastNs:  x.AtNs,
				Detail:  strings.TrimSuffix(fmt.Sprintf("%s %d: %s: %s", x.Kind(), x.Code, e.Meaning, x.Text), ": "),
			},
		)
	}
	first := &list[0]
	e, _ := first.Describe()
	h.Summary = fmt.Sprintf("%s %d (%s)", first.Kind(), first.Code, e.Name)
	if n := len(list) - 1; n > 0 {
		h.Summary += fmt.Sprintf(" and %d more", n)
	}
	h.Advice = "The cause is the hardware, the driver or the machine. Drain the GPU and reset it, and have the " +
		"hardware checked if the error returns."
	if e.Causes&catalog.CauseApplication != 0 {
		h.Advice = "The program can cause this error. Check the launches before it, and run the program under " +
			"compute-sanitizer."
	}
	return []Hit{h}, nil
}

// HangRule is the rule for processes that hang, or only poll, at the end of the recording.
var HangRule = Rule{
	ID: "hang",
	About: "at the end of the recording a process is inside of a call for 1 s or longer, three times as long as any " +
		"call before: a problem. If other threads make calls, it is 20 s or longer. A process without calls hangs, " +
		"too, if its thread waits for 1 s in CUDA, in NCCL or in a reduction of ranks. So does one that waits " +
		"for a lock whose owner does not run. A rank for which others wait so hangs, too. Ranks that wait in other " +
		"collectives on the host, and a process that only polls for the end of GPU work, are notices. These are the " +
		"verdicts hanging, waiting and polling of analyze hang",
	Report: "hang",
	advice: "Check the call and the last launches on each stream. With several ranks, start with the rank that " +
		"differs from the others.",
	check: checkHang,
}

func checkHang(s *Scan) ([]Hit, error) {
	hits, err := s.silentHits()
	if err != nil {
		return nil, err
	}
	for _, state := range []hang.HangState{hang.StateHanging, hang.StatePolling} {
		h := Hit{Severity: SeverityProblem, Confidence: report.ConfidenceHigh}
		if state == hang.StatePolling {
			h.Severity = SeverityNotice
		}
		for i := range s.processVerdicts {
			p := &s.processVerdicts[i]
			if p.State != state || p.IsSilent { // silentHits has it
				continue
			}
			where, stack := s.t.PidLabel(p.History.Pid), int32(0)
			for k := range p.Threads {
				if j := &p.Threads[k]; j.State == state {
					d := s.hang.Details(j.Call)
					where, stack = fmt.Sprintf("%s in process %s", s.t.SiteOfCall(d.Stack, d.Site), where), d.Stack
					break
				}
			}
			detail := slices.Clone(p.Evidence)
			if len(p.Differences) > 0 {
				detail = append(detail, "differs from the other processes: "+units.JoinWithAnd(p.Differences))
			}
			if len(h.Evidence) == 0 || p.Level == report.ConfidenceLow {
				h.Confidence, h.Reasons = p.Level, p.Reasons
			}
			h.Evidence = append(h.Evidence, Evidence{
				Where:   where,
				Stack:   stack,
				Pid:     p.History.Pid,
				Count:   int64(1),
				Ns:      p.SilentNs,
				FirstNs: s.hang.EndNs - p.SilentNs,
				lastNs:  s.hang.EndNs,
				Detail:  strings.Join(detail, "; "),
			})
		}
		if len(h.Evidence) == 0 {
			continue
		}
		h.Summary = fmt.Sprintf("%s: %s", state, h.Evidence[0].Detail)
		if n := len(h.Evidence); n > 1 {
			h.Summary = fmt.Sprintf(
				"%s: %d processes, for up to %s",
				state,
				n,
				units.FormatDuration(h.Evidence[0].Ns.(int64)),
			)
		}
		s.addOutlierProcesses(&h, state)
		hits = append(hits, h)
	}
	return hits, nil
}

// addOutlierProcesses adds, as evidence, the processes that do not hang but differ from the others.
// Processes that hang usually wait for an outlier.
func (s *Scan) addOutlierProcesses(h *Hit, state hang.HangState) {
	outliers := slices.DeleteFunc(
		slices.Clone(s.processVerdicts),
		func(p hang.ProcessVerdict) bool { return p.State == state || len(p.Differences) == 0 },
	)
	for i := range outliers {
		p := &outliers[i]
		where := "process " + s.t.PidLabel(p.History.Pid)
		if i == 0 {
			h.Summary += fmt.Sprintf("; check %s: %s", where, p.Differences[0])
		}
		h.Evidence = append(h.Evidence, Evidence{
			Where: where, Count: int64(1), Ns: p.SilentNs, FirstNs: s.hang.EndNs - p.SilentNs, lastNs: s.hang.EndNs,
			Detail: "differs from the other processes: " +
				strings.Join(append(slices.Clone(p.Differences), p.Evidence...), "; "),
		})
	}
	if len(outliers) > 1 {
		h.Summary += fmt.Sprintf(", and %d more", len(outliers)-1)
	}
}

var brokenContextRule = Rule{
	ID: "broken-context",
	About: "a call returned an asynchronous error, such as an illegal address: earlier GPU work failed, and every " +
		"later call in that CUDA context fails too",
	Report: "errors",
	advice: "The call that returned the error did not cause it. Run the program under compute-sanitizer or with " +
		"CUDA_LAUNCH_BLOCKING=1.",
	check: checkBrokenContext,
}

func checkBrokenContext(s *Scan) ([]Hit, error) {
	h := s.newHit(SeverityProblem, "")
	h.Confidence, h.Reasons = report.ConfidenceHigh, nil // the result was recorded: lost calls do not matter
	for key, e := range s.errors.Groups {
		name := s.errors.Names.List[key.Name]
		if cudaerrors.ClassOfError(name, key.Result) == cudaerrors.ErrorClasses[0] {
			h.Evidence = append(h.Evidence, Evidence{
				Where:   s.errors.Names.List[key.Site],
				Stack:   e.Stack,
				Pid:     processOf(e),
				Count:   e.Calls,
				FirstNs: e.FirstNs,
				lastNs:  e.LastNs,
				Detail: fmt.Sprintf(
					"%s: %s, %s",
					name,
					catalog.ResultName(key.Result),
					catalog.ResultMeaning(key.Result),
				),
			})
		}
	}
	if len(h.Evidence) == 0 {
		return nil, nil
	}
	// The first call that returned the error is nearest to the cause.
	slices.SortFunc(h.Evidence, func(a, b Evidence) int {
		return cmp.Or(
			cmp.Compare(a.FirstNs, b.FirstNs),
			strings.Compare(a.Detail, b.Detail),
			strings.Compare(a.Where, b.Where),
		)
	})
	h.Summary = "asynchronous error, first returned by " + h.Evidence[0].Detail
	s.noteUnknownLaunchResults(&h)
	return []Hit{h}, nil
}

// minIgnoredErrors is the smallest number of equal failures at one call site that rule
// unchecked-error reports. A program that checks results may retry once.
const minIgnoredErrors = 3

// UncheckedErrorRule is the rule for programs that seem to ignore the results of CUDA calls.
var UncheckedErrorRule = Rule{
	ID: "unchecked-error",
	About: "a call site fails 3 times or more with the same error, and the program continues. A problem if the call " +
		"launches, copies or allocates after an asynchronous error broke the context. " +
		"A notice for other calls, if the process launched kernels afterwards. Out-of-memory errors, queries and " +
		"invalid frees do not count",
	Report: "errors",
	advice: "Check the result of every CUDA call, and cudaGetLastError after every launch. Results that were " +
		"computed after an unchecked error may be wrong.",
	check: checkUncheckedError,
}

func checkUncheckedError(s *Scan) ([]Hit, error) {
	broken, ignored := s.newHit(SeverityProblem, ""), s.newHit(SeverityNotice, "")
	invalid := cudaerrors.CountInvalidFrees(s.invalidFrees)
	for key, e := range s.errors.Groups {
		name := s.errors.Names.List[key.Name]
		class := cudaerrors.ClassOfError(name, key.Result)
		h := &ignored
		switch {
		case e.Calls < minIgnoredErrors:
			continue
		case class == "asynchronous" && submitsGPUWork(name):
			h = &broken
		case class != "call" || !s.launchedAfterError(e) || invalid[key] == e.Calls:
			continue
		}
		h.Evidence = append(h.Evidence, Evidence{
			Where: s.errors.Names.List[key.Site], Stack: e.Stack, Count: e.Calls, FirstNs: e.FirstNs, lastNs: e.LastNs,
			Pid:    processOf(e),
			Detail: fmt.Sprintf("%s: %s, %s", name, catalog.ResultName(key.Result), catalog.ResultMeaning(key.Result)),
		})
	}
	var hits []Hit
	for _, h := range []Hit{broken, ignored} {
		if len(h.Evidence) == 0 {
			continue
		}
		sortEvidence(h.Evidence)
		var failed int64
		for _, p := range h.Evidence {
			failed += p.Count.(int64)
		}
		h.Summary = fmt.Sprintf("%s failed, but the program continued", units.CountWithNoun(failed, "call"))
		if h.Severity == SeverityProblem {
			h.Summary = fmt.Sprintf(
				"%s failed in a context broken by an earlier error, but the program continued",
				units.CountWithNoun(failed, "call"),
			)
		} else {
			h.lowerConfidence(report.ConfidenceMedium, "the program may expect this failure")
		}
		s.noteUnknownLaunchResults(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// processOf returns the process of a group of failed calls, 0 for several.
func processOf(e *cudaerrors.ErrorGroup) (pid int32) {
	for th := range e.Threads {
		if pid != 0 && pid != th.Pid {
			return 0
		}
		pid = th.Pid
	}
	return pid
}

// launchedAfterError reports whether a process launched kernels after its first call of the group e
// failed.
func (s *Scan) launchedAfterError(e *cudaerrors.ErrorGroup) bool {
	for th := range e.Threads {
		if p := s.hang.Processes[th.Pid]; p != nil && p.Launches > 0 && p.LaunchedNs > e.FirstNs {
			return true
		}
	}
	return false
}

// noteUnknownLaunchResults adds a reason to the confidence if the results of some launches were not
// recorded.
func (s *Scan) noteUnknownLaunchResults(h *Hit) {
	var launches, unreturned int64
	for _, track := range s.gaps.Tracks {
		launches, unreturned = launches+track.Launches, unreturned+track.Unreturned
	}
	if unreturned > 0 {
		h.Reasons = append(h.Reasons, fmt.Sprintf("the result of %.0f%% of the launches was not recorded, so more "+
			"may have failed", units.Percent(unreturned, launches)))
	}
}
