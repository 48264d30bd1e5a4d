package analyze

import (
	"cmp"
	"fmt"
	"slices"
)

// htmlHit is something that somebody should look at. Level is one of verdictLevels, Section the
// part of the page that shows more.
type htmlHit struct {
	Level, Text, Evidence string
	Section, SectionTitle string
}

// htmlVerdicts are all of them, the worst first.
type htmlVerdicts struct {
	List []htmlHit
	More int
}

// hits counts those that are more than information.
func (v *htmlVerdicts) hits() (n int) {
	for _, h := range v.List {
		if h.Level != verdictLevels[2] {
			n++
		}
	}
	return n + v.More
}

// mostHits of one report are listed; the rest is in its section.
const mostHits = 4

// verdictsOf gathers what reports found. This is the one place that knows which verdicts there are.
func verdictsOf(reports map[string]*Report) htmlVerdicts {
	var v htmlVerdicts
	for _, of := range []struct {
		section string
		hits    func(map[string]*Report) []htmlHit
	}{
		{"hang", hangHits}, {"xid", xidHits}, {"oom", oomHits}, {"errors", errorHits}, {"leaks", leakHits}, {"gpu", gpuHits}, {"frag", fragHits},
	} {
		hits := of.hits(reports)
		for i, h := range hits {
			if i == mostHits {
				v.More += len(hits) - i
				break
			}
			h.Section, h.SectionTitle = of.section, sectionTitle(of.section)
			h.Text, h.Evidence = cutMiddle(oneLine(h.Text), longestText), cutMiddle(oneLine(h.Evidence), 2*longestText)
			v.List = append(v.List, h)
		}
	}
	slices.SortStableFunc(v.List, func(a, b htmlHit) int {
		return cmp.Compare(slices.Index(verdictLevels, a.Level), slices.Index(verdictLevels, b.Level))
	})
	return v
}

func hangHits(reports map[string]*Report) (hits []htmlHit) {
	t := reports["hang"].table("processes")
	for i := range t.Rows {
		r := &t.Rows[i]
		level := map[string]string{"hanging": verdictLevels[0], "waiting": verdictLevels[1], "polling": verdictLevels[1]}[t.text(r, "verdict")]
		if odd := t.text(r, "odd"); level == "" && odd != "" {
			level = verdictLevels[1]
		}
		if level == "" {
			continue
		}
		hits = append(hits, htmlHit{Level: level, Evidence: r.Evidence,
			Text: fmt.Sprintf("process %s %s is %s, silent for %s", t.text(r, "pid"), t.text(r, "process"), t.text(r, "verdict"), t.text(r, "silent_ns"))})
	}
	return hits
}

func xidHits(reports map[string]*Report) (hits []htmlHit) {
	t := reports["xid"].table("xids")
	for i := range t.Rows {
		r := &t.Rows[i]
		level := verdictLevels[0]
		if at, ok := t.cell(r, "at_ns").(int64); ok && at < 0 { // before the recording
			level = verdictLevels[1]
		}
		hits = append(hits, htmlHit{Level: level, Evidence: cmp.Or(t.text(r, "meaning"), r.Evidence),
			Text: fmt.Sprintf("%s %s (%s) on device %s at %s", t.text(r, "kind"), t.text(r, "code"), t.text(r, "name"), t.text(r, "device"), t.text(r, "at_ns"))})
	}
	return hits
}

// oomHits has one hit for failures of a class that ended in the same way.
func oomHits(reports map[string]*Report) (hits []htmlHit) {
	t := reports["oom"].table("failures")
	type kind struct{ class, outcome string }
	counts := make(map[kind]int64)
	var order []kind
	first := make(map[kind]*Row)
	for i := range t.Rows {
		r := &t.Rows[i]
		k := kind{t.text(r, "class"), t.text(r, "outcome")}
		if first[k] == nil {
			first[k] = r
			order = append(order, k)
		}
		counts[k]++
	}
	for _, k := range order {
		level := verdictLevels[1]
		if k.outcome == "ended" || k.outcome == "nothing since" {
			level = verdictLevels[0]
		}
		r := first[k]
		hits = append(hits, htmlHit{Level: level, Evidence: r.Evidence,
			Text: fmt.Sprintf("%s: %s, first at %s, of %s; then: %s", plural(counts[k], "failed allocation"), k.class, t.text(r, "at_ns"), t.text(r, "requested_bytes"), k.outcome)})
	}
	return hits
}

func errorHits(reports map[string]*Report) (hits []htmlHit) {
	t := reports["errors"].table("errors")
	for i := range t.Rows {
		r := &t.Rows[i]
		level := map[string]string{"asynchronous": verdictLevels[0], "call": verdictLevels[1]}[t.text(r, "class")]
		if level == "" { // out of memory has a section of its own, questions are no failures
			continue
		}
		n, _ := t.cell(r, "calls").(int64)
		hits = append(hits, htmlHit{Level: level, Evidence: t.text(r, "meaning"),
			Text: fmt.Sprintf("%s of %s returned %s, first at %s", plural(n, "call"), t.text(r, "name"), t.text(r, "result_name"), t.text(r, "first_ns"))})
	}
	return hits
}

func leakHits(reports map[string]*Report) (hits []htmlHit) {
	t := reports["leaks"].table("leaks")
	for i := range t.Rows {
		r := &t.Rows[i]
		site, live := t.text(r, "site"), t.text(r, "live_bytes")
		h := htmlHit{Level: verdictLevels[1], Evidence: r.Evidence}
		switch t.text(r, "verdict") {
		case "growing":
			h.Level = verdictLevels[0]
			h.Text = fmt.Sprintf("%s leaks: grows by %s/min, %s live", site, t.text(r, "growth_bytes_per_min"), live)
			if oom := t.text(r, "oom_in_ns"); oom != "" {
				h.Text += ", out of memory in " + oom
			}
		case "exit leak":
			h.Text = fmt.Sprintf("%s never freed %s before the process ended", site, live)
		default:
			continue
		}
		hits = append(hits, h)
	}
	return hits
}

func gpuHits(reports map[string]*Report) (hits []htmlHit) {
	t := reports["gpu"].table("verdicts")
	for i := range t.Rows {
		r := &t.Rows[i]
		hits = append(hits, htmlHit{Level: t.text(r, "level"), Text: t.text(r, "verdict"), Evidence: r.Evidence})
	}
	return hits
}

func fragHits(reports map[string]*Report) (hits []htmlHit) {
	t := reports["frag"].table("spaces")
	for i := range t.Rows {
		r := &t.Rows[i]
		if t.text(r, "verdict") == "fragmented" {
			hits = append(hits, htmlHit{Level: verdictLevels[1], Evidence: r.Evidence,
				Text: fmt.Sprintf("%s of %s reserved by process %s cannot be used or given back: %s", t.text(r, "kept_bytes"), t.text(r, "reserved_bytes"), t.text(r, "pid"), t.text(r, "space"))})
		}
	}
	return hits
}
