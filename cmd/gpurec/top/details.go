package top

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/units"
)

// lineOrder is an order of the call sites of a process.
type lineOrder struct {
	key, name string
	number    func(l *live.Line) int64
}

var lineOrders = []lineOrder{
	{"m", "live memory", func(l *live.Line) int64 { return max(l.LiveBytes, l.TensorBytes) }},
	{"l", "launches", func(l *live.Line) int64 { return l.Launches }},
	{"w", "waiting time", func(l *live.Line) int64 { return l.WaitNs }},
}

// detailsOf returns at most rows lines about a process. The first one is empty.
func (m Model) detailsOf(p *live.Process, rows int) []string {
	details := formatDetails(p)
	if m.open {
		details = formatLines(p, lineOrders[m.linesBy])
	}
	lines := []string{""}
	for _, line := range details[:min(len(details), rows-1)] {
		lines = append(lines, units.ShortenText(line, m.width))
	}
	return lines
}

// formatDetails returns lines about one process: launches over time, memory by kind, the last error.
func formatDetails(p *live.Process) []string {
	text := ""
	for i, m := range p.Memory {
		if i > 0 {
			text += ", "
		}
		text += m.Kind + " " + units.FormatBytes(m.Bytes)
	}
	lines := []string{
		fmt.Sprintf("%d: launches in the last %d s: %s", p.Pid, len(p.LaunchHistory), units.Sparkline(p.LaunchHistory)),
		"memory: " + cmp.Or(text, "none recorded"),
	}
	if p.LastError != "" {
		lines = append(lines, "last failed call: "+p.LastError+explainResult(p))
	}
	return lines
}

// explainResult returns the meaning of the result of the last failed call.
func explainResult(p *live.Process) string {
	if text := catalog.ResultMeaning(p.LastResult); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// formatLines returns the call sites of a process as a table.
func formatLines(p *live.Process, by lineOrder) []string {
	lines := []string{
		fmt.Sprintf("lines of %d by %s (tab: next order)", p.Pid, by.name),
		fmt.Sprintf(" %6s %6s %7s %8s %9s  %s", "LIVE", "BLOCKS", "TENSORS", "LAUNCHES", "WAIT", "LINE"),
	}
	sorted := slices.Clone(p.Lines)
	slices.SortStableFunc(sorted, func(a, b live.Line) int { return cmp.Compare(by.number(&b), by.number(&a)) })
	for i := range sorted {
		l := &sorted[i]
		tensors := unknown
		if p.TensorsByLine {
			tensors = formatSize(l.TensorBytes)
		}
		lines = append(
			lines,
			fmt.Sprintf(" %6s %6s %7s %8s %9s  %s", formatSize(l.LiveBytes), formatCount(l.LiveBlocks),
				tensors, formatCount(l.Launches), units.FormatDuration(l.WaitNs),
				units.SanitizeText(cmp.Or(l.Site, "(no stack)"))),
		)
	}
	if len(sorted) == 0 {
		lines = append(lines, " no call is recorded yet")
	}
	return lines
}
