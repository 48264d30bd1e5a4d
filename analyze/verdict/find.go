package verdict

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// Kinds of findings.
const (
	KindLeak        = "leak"
	KindOutOfMemory = "out of memory"
	KindHang        = "hang"
	KindError       = "error"
)

// Finding is a hit of a rule at one place.
type Finding struct {
	Rule       string `json:"rule"`
	Kind       string `json:"kind"`
	Severity   string `json:"severity"`
	Confidence string `json:"confidence"`
	What       string `json:"what"`
	Where      string `json:"where,omitempty"`
	Pid        int32  `json:"pid,omitempty"` // 0: several processes, or unknown
	// LastsNs is how long the problem had lasted, ns. 0: unknown.
	LastsNs int64 `json:"lasts_ns,omitempty"`
}

// maxPlaces bounds the places of one rule with a Finding of their own.
const maxPlaces = 8

// Find returns the findings about failures, hangs and growing memory, the worst first. Symptoms of another finding, and
// what only the end of a program can show, are left out. Its errors are those of reading the recording.
func Find(t *timeline.Timeline) ([]Finding, error) {
	opt := query.Options{MaxTimedCalls: query.QuickTimedCalls}
	sv := survey.New(t, &opt.Filter)
	scan, err := rules.NewFaultScan(sv, &opt)
	if err != nil {
		return nil, err
	}
	if err := sv.Read(); err != nil {
		return nil, err
	}
	hits, err := scan.Check(rules.SelectCheckable(t, rules.FaultRules()))
	if err != nil {
		return nil, err
	}
	var list []Finding
	for _, h := range rules.Findings(hits) {
		if kind := kindOf(&h); kind != "" {
			list = append(list, placesOf(&h, kind)...)
		}
	}
	if len(t.Facts.Processes) == 1 {
		for pid := range t.Facts.Processes {
			setPid(list, pid)
		}
	}
	return list, nil
}

// setPid sets the process of findings that have none.
func setPid(list []Finding, pid int32) {
	for i := range list {
		list[i].Pid = cmp.Or(list[i].Pid, pid)
	}
}

// kindOf returns the kind of a hit, "" for one that is no verdict. Failures count even if the program continues.
func kindOf(h *rules.Hit) string {
	switch h.Rule.ID {
	case "out-of-memory", "oom-fragmentation", "failed-alloc-in-loop":
		return KindOutOfMemory
	case "unchecked-error":
		return KindError
	}
	if h.Severity != rules.SeverityProblem {
		return ""
	}
	switch h.Rule.ID {
	case "growing-site", "cache-growth", "object-leak":
		return KindLeak
	case "hang", "rank-missing", "collective-mismatch":
		return KindHang
	case "memory-near-limit", "uneven-memory", "exit-leak":
		return ""
	}
	return KindError
}

// placesOf returns a Finding for each place of a leak or of processes that hang, and one for any other hit.
func placesOf(h *rules.Hit, kind string) []Finding {
	first := Finding{
		Rule: h.Rule.ID, Kind: kind, Severity: gpu.VerdictLevels[h.Severity], Confidence: h.Confidence, What: h.Summary,
		Pid: h.Pid(),
	}
	if len(h.Evidence) == 0 {
		return []Finding{first}
	}
	first.setPlace(&h.Evidence[0])
	list := []Finding{first}
	if kind != KindLeak && h.Rule.ID != "hang" || len(h.Evidence) == 1 || h.IsOfJob {
		return list
	}
	list[0].What = h.Evidence[0].Detail
	for i := range h.Evidence[1:] {
		e := &h.Evidence[i+1]
		isKnown := slices.ContainsFunc(list, func(f Finding) bool { return f.Where == e.Where })
		if len(list) == maxPlaces || isKnown || kind == KindLeak && !isLarge(e, &h.Evidence[0]) {
			continue
		}
		f := first
		f.What = e.Detail
		f.setPlace(e)
		list = append(list, f)
	}
	return list
}

// isLarge reports whether a place has a fifth of the memory of the first one. The reports have the smaller ones.
func isLarge(e, first *rules.Evidence) bool {
	bytes, isKnown := e.Bytes.(int64)
	most, ok := first.Bytes.(int64)
	return !isKnown || !ok || 5*bytes >= most
}

func (f *Finding) setPlace(e *rules.Evidence) {
	f.Where, f.Pid, f.LastsNs = e.Where, cmp.Or(e.Pid, f.Pid), 0
	if ns, ok := e.Ns.(int64); ok && f.Kind == KindHang {
		f.LastsNs = ns
	}
}
