package changes

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// occurrence is something that happened at about the time of an event.
type occurrence struct {
	atNs   int64
	kind   string // one of the kinds below
	detail string
	stack  int32 // id of the call stack; 0: none
}

// Kinds of occurrences.
const (
	kindReason    = "clock reason"
	kindXid       = "Xid"
	kindLinks     = "links"
	kindFailed    = "allocation failed"
	kindSegments  = "allocator segments"
	kindKernels   = "new kernels"
	kindStacks    = "new stacks"
	kindThreads   = "new threads"
	kindProcesses = "process"
	kindLost      = "lost calls"
)

// aroundNs is how long before and after an event something counts as having happened at its time.
const aroundNs = 3_000_000_000

// interval is a time, both ends included. Unix ns.
type interval struct{ fromNs, toNs int64 }

func (i interval) has(ns int64) bool { return ns >= i.fromNs && ns <= i.toNs }

// occurrencesOf returns what else happened at the time of an event, in order of time.
func (sc *scan) occurrencesOf(e *change.Event) (list []occurrence) {
	near := interval{e.BeforeNs - aroundNs, e.AfterNs + aroundNs}
	for _, device := range devicesOf(e, sc.samples) {
		for _, r := range ClockReasonsAt(sc.samples, device, e.BeforeNs, e.AfterNs) {
			detail := fmt.Sprintf("%s on GPU %d", r.Text(), device)
			list = append(list, occurrence{atNs: r.AtNs, kind: kindReason, detail: detail})
		}
	}
	for i := range e.Changes {
		if l := &e.Changes[i]; l.IsErrorCounter {
			if text := LinksText(sc.samples, l, e.BeforeNs); text != "" {
				list = append(list, occurrence{atNs: l.Change.AfterNs, kind: kindLinks, detail: l.Title + ": " + text})
			}
		}
	}
	list = append(list, XidsAt(sc.t, near.fromNs, near.toNs)...)
	list = append(list, sc.memoryAt(near)...)
	list = append(list, sc.firstCallsAt(near)...)
	list = append(list, sc.processesAt(near)...)
	for i := range sc.t.Facts.Lost {
		if l := &sc.t.Facts.Lost[i]; l.StartNs <= near.toNs && l.StartNs+l.DurNs >= near.fromNs {
			detail := units.CountWithNoun(l.Calls, units.SanitizeText(l.Class)+" call") + " lost"
			list = append(list, occurrence{atNs: l.StartNs, kind: kindLost, detail: detail})
		}
	}
	slices.SortStableFunc(list, func(a, b occurrence) int { return cmp.Compare(a.atNs, b.atNs) })
	return list
}

// devicesOf returns the GPUs of an event, or all sampled GPUs if only processes changed.
func devicesOf(e *change.Event, samples *metric.DeviceMetrics) (devices []int32) {
	for i := range e.Changes {
		if d := e.Changes[i].Device; d >= 0 && !slices.Contains(devices, d) {
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 {
		return samples.SortedIndexes()
	}
	return devices
}

// ClockReason is a reason for the clocks of a GPU that began or ended at about the time of a change.
type ClockReason struct {
	Name  string
	Begun bool  // began, otherwise ended
	AtNs  int64 // first sample with it, or without it
	Slows bool  // it keeps the clocks below the highest possible ones
}

// Text returns the reason and whether it began or ended.
func (r *ClockReason) Text() string {
	if r.Begun {
		return r.Name + " began"
	}
	return r.Name + " ended"
}

// ClockReasonsAt returns the reasons that at most a tenth of the samples had in the seconds before a change,
// and at least half had in the seconds after it, or the reverse.
func ClockReasonsAt(samples *metric.DeviceMetrics, device int32, beforeNs, afterNs int64) (list []ClockReason) {
	const spanNs, few, many = 5_000_000_000, 0.1, 0.5
	s := samples.Devices[device][catalog.MetricClockEventReasons]
	if s == nil {
		return nil
	}
	share := func(v interval, has func(float64) bool) (float64, bool) {
		with, all := 0, 0
		for i, at := range s.AtNs {
			if v.has(at) {
				all++
				if has(s.Values[i]) {
					with++
				}
			}
		}
		return float64(with) / float64(max(1, all)), all > 0
	}
	for i := range gpu.ClockReasons {
		c := &gpu.ClockReasons[i]
		has := gpu.HasClockReason(c.Bit)
		before, ok := share(interval{beforeNs - spanNs, beforeNs}, has)
		after, alsoOK := share(interval{afterNs, afterNs + spanNs}, has)
		if !ok || !alsoOK || min(before, after) > few || max(before, after) < many {
			continue
		}
		r := ClockReason{Name: c.Name, Begun: after > before, Slows: c.Slows, AtNs: afterNs}
		for k, at := range s.AtNs {
			if at >= beforeNs-aroundNs && has(s.Values[k]) == r.Begun {
				r.AtNs = at
				break
			}
		}
		list = append(list, r)
	}
	return list
}

// linkCounter matches the metric of a single NVLink.
var linkCounter = regexp.MustCompile(`^nvlink(\d+)_`)

// LinksText lists the NVLinks whose counter of errors rose after a time, with the increase. It is "" if the
// recording has no counters of single links.
func LinksText(samples *metric.DeviceMetrics, l *change.Located, afterNs int64) string {
	type link struct {
		number string
		errors float64
	}
	var links []link
	of := samples.Devices[l.Device]
	for _, name := range slices.Sorted(maps.Keys(of)) {
		match := linkCounter.FindStringSubmatch(name)
		if match == nil || "nvlink_"+strings.TrimPrefix(name, match[0]) != l.Metric {
			continue
		}
		// A link has no samples before its first error.
		s, before := of[name], 0.0
		for i, at := range s.AtNs {
			if at <= afterNs {
				before = s.Values[i]
			}
		}
		if d := s.LastValue() - before; d > 0 {
			links = append(links, link{match[1], d})
		}
	}
	slices.SortStableFunc(links, func(a, b link) int { return cmp.Compare(b.errors, a.errors) })
	var texts []string
	for _, k := range links {
		texts = append(texts, fmt.Sprintf("link %s %s", k.number, units.FormatCount(units.RoundInt(k.errors))))
	}
	return strings.Join(texts, ", ")
}

// XidsAt returns the errors of the driver in a time.
func XidsAt(t *timeline.Timeline, fromNs, toNs int64) (list []occurrence) {
	for i := range t.Facts.Xids {
		x := &t.Facts.Xids[i]
		if x.AtNs < fromNs || x.AtNs > toNs {
			continue
		}
		text := fmt.Sprintf("%s %d", x.Kind(), x.Code)
		if entry, known := x.Describe(); known {
			text += ": " + entry.Name
		}
		list = append(list, occurrence{atNs: x.AtNs, kind: kindXid, detail: text})
	}
	return list
}

// memoryAt returns failed allocations and new segments of allocators.
func (sc *scan) memoryAt(near interval) (list []occurrence) {
	add := func(kind, verb string, all []change.Growth) {
		var count, bytes, firstNs int64
		for _, g := range all {
			if near.has(g.AtNs) {
				if count == 0 {
					firstNs = g.AtNs
				}
				count, bytes = count+1, bytes+g.Bytes
			}
		}
		if count > 0 {
			detail := fmt.Sprintf("%d %s, %s", count, verb, units.FormatBytes(bytes))
			list = append(list, occurrence{atNs: firstNs, kind: kind, detail: detail})
		}
	}
	add(kindFailed, "failed", sc.memory.Failures)
	add(kindSegments, "allocated", sc.memory.Growths)
	return list
}

// maxNames is the number of names in an occurrence.
const maxNames = 3

// firstCallsAt returns the kernels, stacks and threads that were seen for the first time.
func (sc *scan) firstCallsAt(near interval) (list []occurrence) {
	kernels := firstIn(sc.calls.Kernels, near, func(a, b change.KernelOf) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Name, b.Name))
	})
	list = appendNames(list, kindKernels, kernels, sc.calls.Kernels, func(k change.KernelOf) string {
		return symbolize.ShortKernel(k.Name)
	})
	stacks := firstIn(sc.calls.Stacks, near, func(a, b change.StackOf) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Stack, b.Stack))
	})
	list = appendNames(list, kindStacks, stacks, sc.calls.Stacks, func(s change.StackOf) string {
		return sc.t.SiteOfStack(s.Stack)
	})
	if len(stacks) > 0 {
		list[len(list)-1].stack = stacks[0].Stack
	}
	threads := firstIn(sc.calls.Threads, near, func(a, b origin.Thread) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
	})
	return appendNames(list, kindThreads, threads, sc.calls.Threads, sc.t.ThreadLabel)
}

// firstIn returns the keys whose time is in an interval, in order of time.
func firstIn[K comparable](times map[K]int64, near interval, compare func(a, b K) int) (keys []K) {
	for key, ns := range times {
		if near.has(ns) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b K) int { return cmp.Or(cmp.Compare(times[a], times[b]), compare(a, b)) })
	return keys
}

// appendNames appends an occurrence with the number of keys and the different names of the first ones.
func appendNames[K comparable](
	list []occurrence, kind string, keys []K, times map[K]int64, name func(K) string,
) []occurrence {
	if len(keys) == 0 {
		return list
	}
	var names []string
	for _, key := range keys {
		if n := name(key); !slices.Contains(names, n) && len(names) < maxNames {
			names = append(names, n)
		}
	}
	detail := strings.Join(names, ", ")
	if n := len(keys) - len(names); n > 0 {
		detail += fmt.Sprintf(" and %d more", n)
	}
	return append(list, occurrence{atNs: times[keys[0]], kind: kind, detail: detail})
}

// processesAt returns the processes that made their first call or ended.
func (sc *scan) processesAt(near interval) (list []occurrence) {
	for _, l := range sc.calls.List() {
		if near.has(l.FirstNs) {
			detail := fmt.Sprintf("process %s launched its first kernel", sc.t.PidLabel(l.Pid))
			list = append(list, occurrence{atNs: l.FirstNs, kind: kindProcesses, detail: detail})
		}
	}
	for _, x := range sc.t.Facts.Exits {
		if near.has(x.AtNs) {
			detail := fmt.Sprintf("process %s ended", sc.t.PidLabel(x.Pid))
			list = append(list, occurrence{atNs: x.AtNs, kind: kindProcesses, detail: detail})
		}
	}
	return list
}
