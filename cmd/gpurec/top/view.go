package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/units"
)

// lineWidth is the width of text output that goes to no terminal.
const lineWidth = 120

// formatHeader returns the lines above the table: totals, and a line for each GPU.
func formatHeader(s *live.Snapshot) []string {
	var launches float64
	running := 0
	for i := range s.Processes {
		launches += s.Processes[i].LaunchesPerSec
		if !s.Processes[i].Exited {
			running++
		}
	}
	mark, estimated := "", ""
	if s.LaunchShare < 1 {
		mark, estimated = "~", fmt.Sprintf(" (%.0f%% recorded)", 100*s.LaunchShare)
	}
	lines := []string{fmt.Sprintf("%s  %s  %s%s launches/s%s  %s lost",
		time.Unix(0, s.ToNs).Format(time.TimeOnly), units.CountWithNoun(int64(running), "process"),
		mark, formatRate(launches), estimated, units.CountWithNoun(s.Lost, "call"))}
	for i := range s.GPUs {
		lines = append(lines, formatGPU(&s.GPUs[i]))
	}
	return lines
}

func formatGPU(g *live.GPU) string {
	parts := []string{fmt.Sprintf("GPU %d %s", g.Index, units.SanitizeText(g.Name))}
	add := func(known bool, format string, values ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	add(g.UtilizationPercent < 0 && g.UsedBytes < 0, "no samples")
	add(g.UtilizationPercent >= 0, "busy %.0f%%", g.UtilizationPercent)
	add(g.UsedBytes >= 0, "%s of %s", units.FormatBytes(g.UsedBytes), units.FormatBytes(g.TotalBytes))
	add(g.Milliwatts >= 0, "%.0f W", g.Milliwatts/1000)
	add(g.Celsius >= 0, "%.0f °C", g.Celsius)
	add(g.Xids > 0, "Xid %d", g.LastXid)
	return strings.Join(parts, "  ")
}

// shownColumns returns the columns that fit into a width.
func shownColumns(width int) []*column {
	var list []*column
	for i := range columns {
		if width >= columns[i].minWidth {
			list = append(list, &columns[i])
		}
	}
	return list
}

// formatTitles returns the heading of the table. The column by which it is sorted is marked.
func formatTitles(width int, sortedBy string) string {
	var cells []string
	list := shownColumns(width)
	for i, c := range list {
		title := c.title
		if title == sortedBy {
			title += "*"
		}
		cells = append(cells, c.pad(title, i == len(list)-1))
	}
	return units.ShortenText(strings.Join(cells, " "), width)
}

// formatProcess returns the row of a process.
func formatProcess(s *live.Snapshot, p *live.Process, width int) string {
	var cells []string
	list := shownColumns(width)
	for i, c := range list {
		cells = append(cells, c.pad(c.text(s, p), i == len(list)-1))
	}
	return units.ShortenText(strings.Join(cells, " "), width)
}

// formatDetails returns lines about one process: memory by kind, launches over time, the last error.
func formatDetails(p *live.Process) []string {
	kinds := make([]string, 0, len(p.Memory))
	for _, m := range p.Memory {
		kinds = append(kinds, m.Kind+" "+units.FormatBytes(m.Bytes))
	}
	if len(kinds) == 0 {
		kinds = []string{"none recorded"}
	}
	lines := []string{
		fmt.Sprintf("%d launches in the last %d s: %s", p.Pid, len(p.LaunchHistory), units.Sparkline(p.LaunchHistory)),
		"memory: " + strings.Join(kinds, ", "),
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
func formatLines(p *live.Process, width, rows int) []string {
	lines := []string{
		units.ShortenText(fmt.Sprintf("%10s %10s %10s  CALL SITE", "CALLS", "LAUNCHES", "WAIT"), width),
	}
	for i := range p.Lines[:min(len(p.Lines), max(0, rows))] {
		l := &p.Lines[i]
		site := l.Site
		if site == "" {
			site = "(no stack)"
		}
		lines = append(lines, units.ShortenText(fmt.Sprintf("%10s %10s %10s  %s", units.FormatCount(l.Calls),
			units.FormatCount(l.Launches), units.FormatDuration(l.WaitNs), units.SanitizeText(site)), width))
	}
	return lines
}

// FormatText returns a snapshot as text for output that goes to no terminal.
func FormatText(s *live.Snapshot) string {
	lines := append(formatHeader(s), formatTitles(lineWidth, ""))
	for i := range s.Processes {
		lines = append(lines, formatProcess(s, &s.Processes[i], lineWidth))
	}
	return strings.Join(lines, "\n") + "\n"
}
