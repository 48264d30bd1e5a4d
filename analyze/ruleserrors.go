package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
)

var ruleXid = rule{
	id:     "xid",
	about:  "the driver reported an error of a GPU or NVSwitch during the recording",
	report: "xid",
	check:  checkXid,
}

func checkXid(s *survey) ([]hit, error) {
	list := slices.DeleteFunc(xidsOf(s.t, s.filter, s.window), func(x timeline.Xid) bool { return x.Before })
	if len(list) == 0 {
		return nil, nil
	}
	h := hit{severity: aProblem, level: confidenceHigh}
	for i := range list {
		x := &list[i]
		e, known := x.Describe()
		if !known {
			h.lower(confidenceMedium, "this version of gpurec does not know %s %d", x.Kind(), x.Code)
		}
		where := x.Pci
		if x.Device >= 0 {
			where = s.gpuLabel(x.Device)
		}
		if x.Pid != 0 {
			where = strings.TrimSpace(where + ", process " + cmp.Or(s.t.PidLabel(x.Pid), x.Process))
		}
		h.places = append(h.places, place{where: where, count: int64(1), firstNs: x.AtNs, lastNs: x.AtNs, detail: strings.TrimSuffix(fmt.Sprintf("%s %d: %s: %s", x.Kind(), x.Code, e.Meaning, x.Text), ": ")})
	}
	first := &list[0]
	e, _ := first.Describe()
	h.what = fmt.Sprintf("%s %d (%s)", first.Kind(), first.Code, e.Name)
	if n := len(list) - 1; n > 0 {
		h.what += fmt.Sprintf(" and %d more", n)
	}
	h.advice = "The hardware, the driver or the machine is at fault: drain the GPU and reset it, and have it checked if it comes back."
	if e.Causes&catalog.ByApplication != 0 {
		h.advice = "Look at the launches before it, and run the program under compute-sanitizer."
	}
	return []hit{h}, nil
}

var ruleHang = rule{
	id: "hang",
	about: "at the end of the recording a process hangs in a call for 1 s or longer, three times as long as any before (a problem), or does nothing but ask whether work is done (a notice): " +
		"verdicts hanging and polling of analyze hang",
	report: "hang",
	advice: "Look at the call and the last launches of each stream; of several ranks, at the one that is unlike the others.",
	check:  checkHang,
}

func checkHang(s *survey) ([]hit, error) {
	var hits []hit
	for _, state := range []hangState{hanging, polling} {
		h := hit{severity: aProblem, level: confidenceHigh}
		if state == polling {
			h.severity = aNotice
		}
		for i := range s.states {
			p := &s.states[i]
			if p.state != state {
				continue
			}
			where, stack := s.t.PidLabel(p.life.pid), int32(0)
			for k := range p.threads {
				if j := &p.threads[k]; j.state == state {
					d := s.hang.of(j.call)
					where, stack = fmt.Sprintf("%s in process %s", s.t.SiteOfCall(d.stack, d.site), where), d.stack
					break
				}
			}
			detail := slices.Clone(p.evidence)
			if len(p.odd) > 0 {
				detail = append(detail, "unlike the others: "+units.Enumerated(p.odd))
			}
			if len(h.places) == 0 || p.level == confidenceLow {
				h.level, h.reasons = p.level, p.reasons
			}
			h.places = append(h.places, place{where: where, stack: stack, count: int64(1), ns: p.silentNs, firstNs: s.hang.endNs - p.silentNs, lastNs: s.hang.endNs,
				detail: strings.Join(detail, "; ")})
		}
		if len(h.places) == 0 {
			continue
		}
		h.what = fmt.Sprintf("%s: %s", state, h.places[0].detail)
		if n := len(h.places); n > 1 {
			h.what = fmt.Sprintf("%s: %d processes, for up to %s", state, n, units.Duration(h.places[0].ns.(int64)))
		}
		s.lookAtOthers(&h, state)
		hits = append(hits, h)
	}
	return hits, nil
}

// lookAtOthers adds the processes that are unlike those that hang: what these wait for is mostly there.
func (s *survey) lookAtOthers(h *hit, state hangState) {
	odd := slices.DeleteFunc(slices.Clone(s.states), func(p processState) bool { return p.state == state || len(p.odd) == 0 })
	for i := range odd {
		p := &odd[i]
		where := "process " + s.t.PidLabel(p.life.pid)
		if i == 0 {
			h.what += fmt.Sprintf("; look at %s: %s", where, p.odd[0])
		}
		h.places = append(h.places, place{where: where, count: int64(1), ns: p.silentNs, firstNs: s.hang.endNs - p.silentNs, lastNs: s.hang.endNs,
			detail: "unlike the others: " + strings.Join(append(slices.Clone(p.odd), p.evidence...), "; ")})
	}
	if len(odd) > 1 {
		h.what += fmt.Sprintf(", and %d more", len(odd)-1)
	}
}

var ruleBrokenContext = rule{
	id:     "broken-context",
	about:  "a call returned an asynchronous error, such as an illegal address: work given to the GPU earlier failed, and every later call of the context fails too",
	report: "errors",
	advice: "Run it under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1: the call that noticed the error is not the one that caused it.",
	check:  checkBrokenContext,
}

func checkBrokenContext(s *survey) ([]hit, error) {
	h := s.newHit(aProblem, "")
	h.level, h.reasons = confidenceHigh, nil // what was returned is known, whatever else was lost
	for key, e := range s.errors.groups {
		name := s.errors.names.List[key.name]
		if errorClass(name, key.result) == errorClasses[0] {
			h.places = append(h.places, place{where: s.errors.names.List[key.site], stack: e.stack, count: e.calls, firstNs: e.firstNs, lastNs: e.lastNs,
				detail: fmt.Sprintf("%s: %s, %s", name, catalog.ResultName(key.result), catalog.ResultMeaning(key.result))})
		}
	}
	if len(h.places) == 0 {
		return nil, nil
	}
	// The first one to notice is nearest to the cause.
	slices.SortFunc(h.places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.firstNs, b.firstNs), strings.Compare(a.detail, b.detail), strings.Compare(a.where, b.where))
	})
	h.what = "noticed by " + h.places[0].detail
	s.unseenResults(&h)
	return []hit{h}, nil
}

// ignoredErrors is how often a call must fail in the same way before its result is said not to be looked at: programs may try twice.
const ignoredErrors = 3

var ruleUncheckedError = rule{
	id: "unchecked-error",
	about: "a call fails 3 times or more in the same way at one place, and its threads go on: calls that give work or get memory after an asynchronous error broke the context (a problem), " +
		"or others, if the process launched kernels afterwards (a notice). Out of memory, calls by which programs ask for something, and invalid frees do not count",
	report: "errors",
	advice: "Check what CUDA calls return, after every launch too. What is computed after an error that nobody saw is not to be trusted.",
	check:  checkUncheckedError,
}

func checkUncheckedError(s *survey) ([]hit, error) {
	broken, ignored := s.newHit(aProblem, ""), s.newHit(aNotice, "")
	invalid := blamed(s.frees)
	for key, e := range s.errors.groups {
		name := s.errors.names.List[key.name]
		class := errorClass(name, key.result)
		h := &ignored
		switch {
		case e.calls < ignoredErrors:
			continue
		case class == "asynchronous" && isWork(name):
			h = &broken
		case class != "call" || !s.wentOn(e) || invalid[key] == e.calls:
			continue
		}
		h.places = append(h.places, place{where: s.errors.names.List[key.site], stack: e.stack, count: e.calls, firstNs: e.firstNs, lastNs: e.lastNs,
			detail: fmt.Sprintf("%s: %s, %s", name, catalog.ResultName(key.result), catalog.ResultMeaning(key.result))})
	}
	var hits []hit
	for _, h := range []hit{broken, ignored} {
		if len(h.places) == 0 {
			continue
		}
		sortPlaces(h.places)
		var failed int64
		for _, p := range h.places {
			failed += p.count.(int64)
		}
		h.what = fmt.Sprintf("%s failed, and the program went on", units.Plural(failed, "call"))
		if h.severity == aProblem {
			h.what = fmt.Sprintf("%s failed in a context that an error had broken before, and the program went on", units.Plural(failed, "call"))
		} else {
			h.lower(confidenceMedium, "a program may expect such a failure")
		}
		s.unseenResults(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// wentOn reports whether a process launched kernels after a call of it had failed.
func (s *survey) wentOn(e *errorGroup) bool {
	for th := range e.threads {
		if p := s.hang.processes[th.Pid]; p != nil && p.launches > 0 && p.launchedNs > e.firstNs {
			return true
		}
	}
	return false
}

// unseenResults says that more calls may have failed than were seen to.
func (s *survey) unseenResults(h *hit) {
	var launches, unknown int64
	for _, track := range s.gaps.tracks {
		launches, unknown = launches+track.launches, unknown+track.unreturned
	}
	if unknown > 0 {
		h.reasons = append(h.reasons, fmt.Sprintf("of %.0f%% of the launches the result is not known: more may have failed", units.Percent(unknown, launches)))
	}
}
