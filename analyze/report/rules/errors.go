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

var ruleXid = Rule{
	ID:     "xid",
	About:  "the driver reported an error of a GPU or NVSwitch during the recording",
	Report: "xid",
	check:  checkXid,
}

func checkXid(s *Survey) ([]Hit, error) {
	list := slices.DeleteFunc(xid.Select(s.t, s.filter, s.Window), func(x facts.Xid) bool { return x.Before })
	if len(list) == 0 {
		return nil, nil
	}
	h := Hit{Severity: SeverityProblem, Level: report.ConfidenceHigh}
	for i := range list {
		x := &list[i]
		e, known := x.Describe()
		if !known {
			h.lower(report.ConfidenceMedium, "this version of gpurec does not know %s %d", x.Kind(), x.Code)
		}
		where := x.Pci
		if x.Device >= 0 {
			where = s.gpuLabel(x.Device)
		}
		if x.Pid != 0 {
			where = strings.TrimSpace(where + ", process " + cmp.Or(s.t.PidLabel(x.Pid), x.Process))
		}
		h.Places = append(
			h.Places,
			Place{
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
	h.What = fmt.Sprintf("%s %d (%s)", first.Kind(), first.Code, e.Name)
	if n := len(list) - 1; n > 0 {
		h.What += fmt.Sprintf(" and %d more", n)
	}
	h.Advice = "The hardware, the driver or the machine is at fault: drain the GPU and reset it, and have it " +
		"checked if it comes back."
	if e.Causes&catalog.ByApplication != 0 {
		h.Advice = "Look at the launches before it, and run the program under compute-sanitizer."
	}
	return []Hit{h}, nil
}

var Hang = Rule{
	ID: "hang",
	About: "at the end of the recording a process hangs in a call for 1 s or longer, three times as long as any " +
		"before (a problem), or does nothing but ask whether work is done (a notice): " +
		"verdicts hanging and polling of analyze hang",
	Report: "hang",
	advice: "Look at the call and the last launches of each stream; of several ranks, at the one that is unlike the " +
		"others.",
	check: checkHang,
}

func checkHang(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, state := range []hang.State{hang.Hanging, hang.Polling} {
		h := Hit{Severity: SeverityProblem, Level: report.ConfidenceHigh}
		if state == hang.Polling {
			h.Severity = SeverityNotice
		}
		for i := range s.states {
			p := &s.states[i]
			if p.State != state {
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
				detail = append(detail, "unlike the others: "+units.Enumerated(p.Differences))
			}
			if len(h.Places) == 0 || p.Level == report.ConfidenceLow {
				h.Level, h.Reasons = p.Level, p.Reasons
			}
			h.Places = append(h.Places, Place{
				Where:   where,
				Stack:   stack,
				Count:   int64(1),
				Ns:      p.SilentNs,
				FirstNs: s.hang.EndNs - p.SilentNs,
				lastNs:  s.hang.EndNs,
				Detail:  strings.Join(detail, "; "),
			})
		}
		if len(h.Places) == 0 {
			continue
		}
		h.What = fmt.Sprintf("%s: %s", state, h.Places[0].Detail)
		if n := len(h.Places); n > 1 {
			h.What = fmt.Sprintf("%s: %d processes, for up to %s", state, n, units.Duration(h.Places[0].Ns.(int64)))
		}
		s.lookAtOthers(&h, state)
		hits = append(hits, h)
	}
	return hits, nil
}

// lookAtOthers adds the processes that differ from those that hang: these mostly wait for them.
func (s *Survey) lookAtOthers(h *Hit, state hang.State) {
	odd := slices.DeleteFunc(
		slices.Clone(s.states),
		func(p hang.ProcessVerdict) bool { return p.State == state || len(p.Differences) == 0 },
	)
	for i := range odd {
		p := &odd[i]
		where := "process " + s.t.PidLabel(p.History.Pid)
		if i == 0 {
			h.What += fmt.Sprintf("; look at %s: %s", where, p.Differences[0])
		}
		h.Places = append(h.Places, Place{
			Where: where, Count: int64(1), Ns: p.SilentNs, FirstNs: s.hang.EndNs - p.SilentNs, lastNs: s.hang.EndNs,
			Detail: "unlike the others: " + strings.Join(append(slices.Clone(p.Differences), p.Evidence...), "; "),
		})
	}
	if len(odd) > 1 {
		h.What += fmt.Sprintf(", and %d more", len(odd)-1)
	}
}

var ruleBrokenContext = Rule{
	ID: "broken-context",
	About: "a call returned an asynchronous error, such as an illegal address: work given to the GPU earlier " +
		"failed, and every later call of the context fails too",
	Report: "errors",
	advice: "Run it under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1: the call that noticed the error is not " +
		"the one that caused it.",
	check: checkBrokenContext,
}

func checkBrokenContext(s *Survey) ([]Hit, error) {
	h := s.newHit(SeverityProblem, "")
	h.Level, h.Reasons = report.ConfidenceHigh, nil // what was returned is known, whatever else was lost
	for key, e := range s.errors.Groups {
		name := s.errors.Names.List[key.Name]
		if cudaerrors.ClassOf(name, key.Result) == cudaerrors.Classes[0] {
			h.Places = append(h.Places, Place{
				Where:   s.errors.Names.List[key.Site],
				Stack:   e.Stack,
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
	if len(h.Places) == 0 {
		return nil, nil
	}
	// The first one to notice is nearest to the cause.
	slices.SortFunc(h.Places, func(a, b Place) int {
		return cmp.Or(
			cmp.Compare(a.FirstNs, b.FirstNs),
			strings.Compare(a.Detail, b.Detail),
			strings.Compare(a.Where, b.Where),
		)
	})
	h.What = "noticed by " + h.Places[0].Detail
	s.unseenResults(&h)
	return []Hit{h}, nil
}

// ignoredErrors is the number of equal failures from which on a program seems to ignore them. It may
// try twice.
const ignoredErrors = 3

var UncheckedError = Rule{
	ID: "unchecked-error",
	About: "a call fails 3 times or more in the same way at one place, and its threads go on: calls that give work " +
		"or get memory after an asynchronous error broke the context (a problem), " +
		"or others, if the process launched kernels afterwards (a notice). Out of memory, calls by which programs " +
		"ask for something, and invalid frees do not count",
	Report: "errors",
	advice: "Check what CUDA calls return, after every launch too. What is computed after an error that nobody saw " +
		"is not to be trusted.",
	check: checkUncheckedError,
}

func checkUncheckedError(s *Survey) ([]Hit, error) {
	broken, ignored := s.newHit(SeverityProblem, ""), s.newHit(SeverityNotice, "")
	invalid := cudaerrors.CountByKey(s.frees)
	for key, e := range s.errors.Groups {
		name := s.errors.Names.List[key.Name]
		class := cudaerrors.ClassOf(name, key.Result)
		h := &ignored
		switch {
		case e.Calls < ignoredErrors:
			continue
		case class == "asynchronous" && isWork(name):
			h = &broken
		case class != "call" || !s.wentOn(e) || invalid[key] == e.Calls:
			continue
		}
		h.Places = append(h.Places, Place{
			Where: s.errors.Names.List[key.Site], Stack: e.Stack, Count: e.Calls, FirstNs: e.FirstNs, lastNs: e.LastNs,
			Detail: fmt.Sprintf("%s: %s, %s", name, catalog.ResultName(key.Result), catalog.ResultMeaning(key.Result)),
		})
	}
	var hits []Hit
	for _, h := range []Hit{broken, ignored} {
		if len(h.Places) == 0 {
			continue
		}
		sortPlaces(h.Places)
		var failed int64
		for _, p := range h.Places {
			failed += p.Count.(int64)
		}
		h.What = fmt.Sprintf("%s failed, and the program went on", units.Plural(failed, "call"))
		if h.Severity == SeverityProblem {
			h.What = fmt.Sprintf(
				"%s failed in a context that an error had broken before, and the program went on",
				units.Plural(failed, "call"),
			)
		} else {
			h.lower(report.ConfidenceMedium, "a program may expect such a failure")
		}
		s.unseenResults(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// wentOn reports whether a process launched kernels after its call had failed.
func (s *Survey) wentOn(e *cudaerrors.Group) bool {
	for th := range e.Threads {
		if p := s.hang.Processes[th.Pid]; p != nil && p.Launches > 0 && p.LaunchedNs > e.FirstNs {
			return true
		}
	}
	return false
}

// unseenResults adds a reason if the results of some launches are not known.
func (s *Survey) unseenResults(h *Hit) {
	var launches, unknown int64
	for _, track := range s.gaps.Tracks {
		launches, unknown = launches+track.Launches, unknown+track.Unreturned
	}
	if unknown > 0 {
		h.Reasons = append(h.Reasons, fmt.Sprintf("of %.0f%% of the launches the result is not known: more may have "+
			"failed", units.Percent(unknown, launches)))
	}
}
