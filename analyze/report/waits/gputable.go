package waits

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// gpuColumns are the columns of a table of waits with GPU times.
var gpuColumns = []report.Column{
	{
		Key:   "gpu_busy_min_ns",
		Title: "GPU BUSY MIN",
		Unit:  report.UnitNs,
		About: "lower bound of the time after the start of the waits until their last operations ended on the GPU: " +
			"the rest of the wait is latency",
	},
	{
		Key: "gpu_busy_max_ns", Title: "GPU BUSY MAX", Unit: report.UnitNs,
		About: "upper bound of the same time. Waits whose last operation is unknown count as 0 in both: see gpu_waits",
	},
	{
		Key:   "gpu_waits",
		Title: "",
		Unit:  report.UnitCount,
		About: "waits whose last operation is known. Waits for events are unknown, and waits before which no " +
			"operation was queued",
	},
	{
		Key:    "last_operation",
		OldKey: "last_work",
		Title:  "LAST OPERATION",
		Unit:   report.UnitText,
		About: "the kernel or graph that ends last among the operations that the wait waits for; a copy or memset if " +
			"there is " +
			"none. If several differ, that with the longest waits, and the number of others",
	},
}

// gpuTotalColumns are the totals of a report with GPU times.
var gpuTotalColumns = report.PickColumns(gpuColumns, "gpu_busy_min_ns", "gpu_busy_max_ns", "gpu_waits")

// gpuFactColumns are the facts of a report with GPU times.
var gpuFactColumns = []report.Column{{
	Key: "gpu_text", Title: "GPU", Unit: report.UnitText,
	About: "bounds of the time in which the GPU still worked after the waits began, as a sentence",
}}

// addGPUFacts adds the facts and totals of GPU times to the report if there are GPU times.
func (sc *Scan) addGPUFacts(r *report.Report) {
	if sc.gpu == nil {
		return
	}
	var sum gpuSums
	for _, s := range sc.gpu.sumWaits() {
		sum.waits += s.waits
		sum.busy.LoNs += s.busy.LoNs
		sum.busy.HiNs += s.busy.HiNs
	}
	waits, waitNs := int64(0), int64(0)
	for _, s := range sc.Groups {
		waits += s.waits
		waitNs = units.EndOfRange(waitNs, s.Took.SumNs)
	}
	text := any(nil)
	if waits > 0 {
		text = fmt.Sprintf("still busy for %s to %s of %s waited; the last operation of %s of %s is known",
			units.FormatDuration(sum.busy.LoNs), units.FormatDuration(sum.busy.HiNs), units.FormatDuration(waitNs),
			units.FormatCount(sum.waits), units.CountWithNoun(waits, "wait"))
		if ns := sc.gpu.activity.UntilNs; ns != 0 {
			text = fmt.Sprintf("%s, from the first %s", text, units.FormatDuration(ns-sc.Window.FromNs))
		}
	}
	r.Facts = append(r.Facts, report.NewFacts(gpuFactColumns, report.Values{"gpu_text": text})...)
	r.Totals = append(r.Totals, report.NewFacts(gpuTotalColumns, report.Values{
		"gpu_busy_min_ns": sum.busy.LoNs, "gpu_busy_max_ns": sum.busy.HiNs, "gpu_waits": sum.waits,
	})...)
	r.Sentences = append(r.Sentences, "gpu_text")
}

// addGPUColumns adds the columns of GPU times behind the column with a key, if there are GPU times.
func (sc *Scan) addGPUColumns(table *report.Table, after string) {
	if sc.gpu == nil {
		return
	}
	at := report.ColumnIndex(table, after) + 1
	table.Columns = slices.Insert(slices.Clone(table.Columns), at, gpuColumns...)
	table.HideFirst = append(slices.Clone(table.HideFirst), "gpu_busy_min_ns")
}

// gpuValues returns the values of the columns of GPU times, or none without GPU times.
func (sc *Scan) gpuValues(s *gpuSums) report.Values {
	switch {
	case sc.gpu == nil:
		return nil
	case s == nil:
		return report.Values{
			"gpu_busy_min_ns": nil,
			"gpu_busy_max_ns": nil,
			"gpu_waits":       int64(0),
			"last_operation":  nil,
		}
	}
	return report.Values{
		"gpu_busy_min_ns": s.busy.LoNs,
		"gpu_busy_max_ns": s.busy.HiNs,
		"gpu_waits":       s.waits,
		"last_operation":  sc.gpu.mainOperation(s),
	}
}

// gpuSumsOf returns the sums of one wait, or nil if its operation is unknown.
func (sc *Scan) gpuSumsOf(c *calls.Call, name string) *gpuSums {
	if sc.gpu == nil {
		return nil
	}
	w := sc.gpu.find(c, name)
	if w == nil {
		return nil
	}
	return &gpuSums{waits: 1, busy: w.busy, waitNs: map[lastOperation]int64{w.operation: w.endNs - w.startNs}}
}
