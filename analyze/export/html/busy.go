package html

import (
	"fmt"
	"math"

	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

// busyData is the busy time of a GPU by a process, in parts of equal length between its first and its
// last operation. Shares are percent of a part; unknown values are null.
type busyData struct {
	Title string        `json:"title"`
	From  chartSeconds  `json:"from"`
	To    chartSeconds  `json:"to"`
	Lo    []chartNumber `json:"lo"`   // lower bound of the busy share
	Mid   []chartNumber `json:"mid"`  // probable busy share; empty if only bounds are known
	Hi    []chartNumber `json:"hi"`   // upper bound of the busy share
	Queue []chartNumber `json:"q"`    // median number of operations in the queue
	Most  []chartNumber `json:"qmax"` // largest number of operations in the queue
	// Until is the end of the part of the recording that was read; absent if all was read.
	Until *chartSeconds `json:"until,omitempty"`
}

// readIdleTimes reads the idle times of the GPUs. The rules and the report gaps use the same result.
func (b *pageBuilder) readIdleTimes() (err error) {
	b.idle = new(idle.Result)
	if len(b.t.Facts.Channels) == 0 || len(quality.MissingClasses(b.t, gaps.NeededCallClasses)) > 0 {
		return nil
	}
	b.idle, err = idle.Of(b.t, &b.opt.Filter, b.opt.MaxTimedCalls)
	return err
}

// chartedDevices returns the GPUs with a chart of their busy time.
func (b *pageBuilder) chartedDevices() []*idle.Device {
	return b.idle.Devices[:min(maxChartedGPUs, len(b.idle.Devices))]
}

// newBusyData returns the charts of the busy time of all GPUs.
func (b *pageBuilder) newBusyData() (list []busyData) {
	for _, d := range b.chartedDevices() {
		c := busyData{
			Title: b.busyTitle(
				d,
			),
			From: secondsSinceStart(b.t, d.Window.FromNs),
			To:   secondsSinceStart(b.t, d.Window.ToNs),
		}
		if ns := b.idle.Activity.UntilNs; ns != 0 {
			until := secondsSinceStart(b.t, ns)
			c.Until = &until
		}
		for _, part := range d.Parts() {
			lo, mid, hi := part.Time.BusyPct()
			queue, most := part.DepthP50, part.DepthMax
			if !part.Time.IsRecorded() {
				lo, mid, hi, queue, most = math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()
			}
			c.Lo, c.Hi = append(c.Lo, chartNumber(lo)), append(c.Hi, chartNumber(hi))
			if !d.IsLimited() {
				c.Mid = append(c.Mid, chartNumber(mid))
			}
			c.Queue, c.Most = append(c.Queue, chartNumber(queue)), append(c.Most, chartNumber(most))
		}
		list = append(list, c)
	}
	return list
}

// busyTitle names a GPU, and its process if there are several.
func (b *pageBuilder) busyTitle(d *idle.Device) string {
	title := "GPU " + b.t.OrdinalDeviceLabel(d.Pid, d.Device)
	if len(b.t.Facts.Processes) > 1 {
		title += ", process " + b.t.PidLabel(d.Pid)
	}
	return shortenText(title)
}

// busySentence describes the busy share of a GPU between its first and its last operation.
func (b *pageBuilder) busySentence(d *idle.Device) string {
	lo, mid, hi := d.Time.BusyPct()
	text := fmt.Sprintf("busy for %.1f%% (%.1f%% to %.1f%%)", mid, lo, hi)
	switch {
	case !d.Time.IsRecorded():
		text = "in an unknown state for all"
	case d.IsLimited():
		text = fmt.Sprintf("busy for %.1f%% to %.1f%% (only these bounds are known)", lo, hi)
	}
	return fmt.Sprintf("%s was %s of the %s between its first and its last operation.", b.busyTitle(d), text,
		units.FormatDuration(d.Window.DurNs()))
}

// newBusyNotes returns sentences about the busy time of each GPU, and about what the chart lacks.
func (b *pageBuilder) newBusyNotes() (list []string) {
	for _, d := range b.chartedDevices() {
		list = append(list, b.busySentence(d))
	}
	if b.idle.Activity != nil && b.idle.Activity.UntilNs != 0 {
		ns := b.idle.Activity.UntilNs - b.opt.NarrowWindow(b.t.RecordingWindow()).FromNs
		list = append(list, fmt.Sprintf("The recording has more than %s calls, so this chart and the section %s show "+
			"only the first %s. gpurec analyze gaps reads all calls.",
			units.FormatCount(query.PageTimedCalls), findSectionTitle("gaps"), units.FormatDuration(ns)))
	}
	if more := len(b.idle.Devices) - maxChartedGPUs; more > 0 {
		list = append(list, fmt.Sprintf("%s more: see gpurec analyze gaps.", units.CountWithNoun(int64(more), "GPU")))
	}
	return list
}
