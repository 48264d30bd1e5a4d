package digest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/units"
)

// maxListed is the number of processes, programs or GPUs that a line names.
const maxListed = 8

// describeJob returns the lines about the recorded programs and machine.
func (c *collector) describeJob(summary *report.Report) []Value {
	pids := slices.Sorted(maps.Keys(c.t.Facts.Processes))
	var labels, programs, devices []string
	for _, pid := range pids {
		labels = append(labels, c.t.PidLabel(pid))
		if exe := c.t.Facts.Processes[pid].Exe; exe != "" && !slices.Contains(programs, exe) {
			programs = append(programs, exe)
		}
	}
	for _, device := range slices.Sorted(maps.Keys(c.t.Facts.Devices)) {
		devices = append(devices, c.t.DeviceLabel(device))
	}
	list := []Value{
		own("recorded_processes", int64(len(pids))),
		own("processes", listNames(labels)),
		own("programs", listNames(programs)),
	}
	list = append(list, c.describeRanks()...)
	facts := func(keys ...string) []Value { return shownFacts(summary.Command, "facts", summary.Facts, keys...) }
	list = append(list, facts("recorded_by", "start_ns", "dur_ns")...)
	list = append(list, own("devices", listNames(devices)))
	list = append(list, facts("driver")...)
	list = append(list, own("pytorch", listNames(c.pytorchVersions())))
	list = append(list, facts("host", "gpu_busy", "kernels", "call_errors", "out_of_memory", "unfinished_calls")...)
	list = append(list, shownFacts(summary.Command, "totals", summary.Totals, "peak_bytes", "live_bytes")...)
	list = append(list, facts("earlier", "earlier_live", "earlier_limit")...)
	return slices.DeleteFunc(list, func(v Value) bool { return !isShown(v.Value) })
}

// describeRanks returns the number of recorded ranks, the size of the job and its name.
func (c *collector) describeRanks() []Value {
	ranks, world := make(map[int]bool), 0
	var jobs []string
	for _, pid := range slices.Sorted(maps.Keys(c.t.Facts.Processes)) {
		identity := c.t.Facts.Processes[pid].Identity
		if identity.Rank != nil {
			ranks[*identity.Rank] = true
		}
		if identity.WorldSize != nil {
			world = max(world, *identity.WorldSize)
		}
		if identity.Job != "" && !slices.Contains(jobs, identity.Job) {
			jobs = append(jobs, identity.Job)
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	return []Value{
		own("recorded_ranks", int64(len(ranks))),
		own("ranks_of_job", int64(world)),
		own("job", listNames(jobs)),
	}
}

// pytorchVersions returns the versions of PyTorch in the recorded processes.
func (c *collector) pytorchVersions() (list []string) {
	for i := range c.t.Facts.Allocators {
		if v := c.t.Facts.Allocators[i].Version; v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// listNames joins the first names, and says how many there are besides.
func listNames(names []string) any {
	if len(names) == 0 {
		return nil
	}
	shown := make([]string, 0, maxListed)
	for _, name := range names[:min(len(names), maxListed)] {
		shown = append(shown, cutText(name, maxListedChars))
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// lossFacts are the keys of the report.Quality about calls that are missing or incomplete. A digest shows those
// that are not 0.
var lossFacts = []string{
	"truncated_tail", "damaged_segments", "late_processes", "missed_events", "complete_after_ns", "dropped_events",
	"lost_memory_events", "lost_allocator_events", "launches_recorded_ns", "recorded_classes", "open_calls",
	"abandoned_calls", "unknown_allocs", "allocator_disagreed",
}

// otherFacts are further keys of the report.Quality, which a digest shows if they are not 0.
var otherFacts = []string{
	"unmatched_frees", "launch_stacks_recorded_ns", "allocator_events", "stacks_complete_pct",
	"stacks_inferred_pct", "stacks_wrong_pct",
}

// describeCoverage returns the lines about what was recorded and what was lost.
func (c *collector) describeCoverage(r *report.Report) []Value {
	q := &r.Quality
	list := []Value{own(keyShare, sharePct(q.Events, q.LostEvents))}
	list = append(list, shownFacts(r.Command, "quality", q.Facts(), "events", "lost_events")...)
	for _, v := range shownFacts(r.Command, "quality", q.Facts(), slices.Concat(lossFacts, otherFacts)...) {
		if n, isNumber := report.AsNumber(v.Value); (!isNumber || n != 0) && v.Value != false {
			list = append(list, v)
		}
	}
	if from := r.Window.FromNs - c.t.RecordingWindow().FromNs; from != 0 {
		list = append(list, own("window_from_ns", from))
	}
	list = append(list,
		Value{Key: "window_ns", Unit: report.UnitNs, Value: r.Window.DurNs(), From: r.Command + "#/window/dur_ns"},
		Value{Key: "gpu_timing", Value: q.GPUTiming, From: r.Command + "#/quality/gpu_timing"},
		own("host_rows", c.hostMode()),
		own(keyRules, int64(len(rules.AllRules()))),
	)
	list = append(list, shownFacts(r.Command, "facts", r.Facts, keyChecked)...)
	return slices.DeleteFunc(list, func(v Value) bool { return !isShown(v.Value) })
}

// hostMode says how class host was recorded.
func (c *collector) hostMode() string {
	if c.t.Facts.Host == nil {
		return "not recorded"
	}
	return cmp.Or(c.t.Facts.Host.Mode, "recorded")
}

// sharePct returns the share of calls that were recorded, %. A loss never rounds to 100.
func sharePct(recorded, lost int64) any {
	if recorded+lost <= 0 {
		return nil
	}
	pct := units.Percent(recorded, recorded+lost)
	if lost > 0 {
		pct = min(pct, 99.9)
	}
	return pct
}
