package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/units"
)

// View draws the screen.
func (m Model) View() tea.View {
	view := tea.NewView(m.text())
	view.AltScreen = true
	return view
}

// Escape sequences of the terminal: ECMA-48, SGR.
const (
	reverse, normal = "\x1b[7m", "\x1b[0m"
	bold            = "\x1b[1m"
)

// layout is the number of lines of each part of the screen.
type layout struct {
	gpus, verdicts int
	blank          bool // an empty line above the table
	rows           int  // rows of the table
	details        int  // lines about the selected process
}

// layout distributes the lines of the screen for a table of n processes.
func (m Model) layout(n int) layout {
	l := layout{blank: m.height >= 16}
	l.gpus = min(max(1, len(m.snapshot.GPUs)), max(1, m.height/6))
	l.verdicts = min(len(m.snapshot.Verdicts), max(1, min(3, m.height/8)))
	left := m.height - 3 - l.gpus - l.verdicts - len(m.notRecordedLines()) // header, titles, footer
	if l.blank {
		left--
	}
	switch {
	case m.open:
		l.details = max(0, left-max(1, min(n, left/3)))
	case left >= 10 && m.snapshot.NotRecorded == "":
		l.details = 4
	}
	l.rows = max(1, left-l.details)
	if n > l.rows && l.rows > 1 {
		l.rows-- // a line says which rows are shown
	}
	return l
}

// text returns the screen.
func (m Model) text() string {
	var lines []string
	if m.pane.kind != paneNone {
		lines = m.pane.view(m.width, m.height)
	} else {
		lines = m.tableLines()
	}
	text := strings.Join(lines, "\n")
	if m.opt.ASCII {
		text = asciiText.Replace(text)
	}
	return text
}

// asciiText replaces the characters of the screen that are not in ASCII by others of the same width.
var asciiText = strings.NewReplacer(
	"…", ".", "°", " ", "▼", "v", "▲", "^",
	"▁", "_", "▂", ".", "▃", ":", "▄", "-", "▅", "=", "▆", "+", "▇", "*", "█", "#",
)

// tableLines returns the lines of the screen with the table.
func (m Model) tableLines() []string {
	list := m.processes()
	l := m.layout(len(list))
	lines := append(formatAbove(m.snapshot, l.gpus, l.verdicts, m.width), m.notRecordedLines()...)
	if l.blank {
		lines = append(lines, "")
	}
	lines = append(lines, bold+formatTitles(m.snapshot, m.width, m.sortedBy, m.reversed)+normal)
	last := min(len(list), m.first+l.rows)
	for _, p := range list[min(m.first, last):last] {
		row := formatProcess(m.snapshot, p, m.width)
		if p.Pid == m.selected {
			row = reverse + ">" + pad(row[1:], m.width-1, true) + normal
		}
		lines = append(lines, row)
	}
	switch {
	case len(list) == 0 && m.filter != "":
		lines = append(lines, "no process has this name or pid: "+m.filter)
	case len(list) == 0:
		lines = append(lines, "no process uses CUDA yet; new ones appear here")
	case len(list) > l.rows:
		lines = append(lines, fmt.Sprintf(" rows %d-%d of %d", m.first+1, last, len(list)))
	}
	if i := slices.IndexFunc(list, func(p *live.Process) bool { return p.Pid == m.selected }); i >= 0 && l.details > 1 {
		lines = append(lines, m.detailsOf(list[i], l.details)...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return append(lines[:m.height-1], units.ShortenText(m.footer(), m.width))
}

// formatAbove returns the lines above the table: totals, GPUs and verdicts.
func formatAbove(s *live.Snapshot, gpus, verdicts, width int) []string {
	lines := slices.Concat([]string{formatTotals(s)}, formatGPUList(s, gpus, width))
	for i := range lines {
		lines[i] = units.ShortenText(lines[i], width)
	}
	return append(lines, formatVerdicts(s, verdicts, width)...)
}

// notRecordedLines returns lines that say why processes are not recorded, at most a third of the screen.
func (m Model) notRecordedLines() []string {
	if m.snapshot.NotRecorded == "" {
		return nil
	}
	lines := wrap(m.snapshot.NotRecorded, 0, m.width)
	return lines[:min(len(lines), max(1, (m.height-4)/3))]
}

// formatTotals returns the first line: the time, and totals of all processes.
func formatTotals(s *live.Snapshot) string {
	var launches float64
	running := 0
	for i := range s.Processes {
		launches += s.Processes[i].LaunchesPerSec
		if !s.Processes[i].Exited {
			running++
		}
	}
	text := time.Unix(0, s.ToNs).Format(time.TimeOnly) + "  " + units.CountWithNoun(int64(running), "process")
	if s.NotRecorded != "" {
		return text
	}
	mark, estimated := "", ""
	if s.LaunchShare < 1 {
		mark, estimated = "~", fmt.Sprintf(" (%.0f%% recorded)", 100*s.LaunchShare)
	}
	return fmt.Sprintf("%s  %s%s launches/s%s  %s lost", text, mark, formatRate(launches), estimated,
		units.CountWithNoun(s.Lost, "call"))
}

// formatGPUList returns a line for each GPU, at most n. The last one has the number of the others.
func formatGPUList(s *live.Snapshot, n, width int) (lines []string) {
	if len(s.GPUs) == 0 {
		return []string{"no GPU: " + cmp.Or(s.NoGPU, "NVML lists none")}
	}
	for i := range s.GPUs[:min(n, len(s.GPUs))] {
		lines = append(lines, formatGPU(&s.GPUs[i]))
	}
	if more := len(s.GPUs) - len(lines); more > 0 {
		text := fmt.Sprintf("  and %d more", more)
		last := &lines[len(lines)-1]
		*last = units.ShortenText(*last, max(1, width-len(text))) + text
	}
	return lines
}

func formatGPU(g *live.GPU) string {
	parts := []string{fmt.Sprintf("GPU %d", g.Index)}
	add := func(known bool, format string, values ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	add(g.UtilizationPercent < 0 && g.UsedBytes < 0, "no samples")
	add(g.UtilizationPercent >= 0, "busy %3.0f%%", g.UtilizationPercent)
	add(g.SMActivePercent >= 0, "SM %3.0f%%", g.SMActivePercent)
	add(g.UsedBytes >= 0, "%5s of %5s", formatSize(g.UsedBytes), formatSize(g.TotalBytes))
	add(g.Milliwatts >= 0, "%3.0f W", g.Milliwatts/1000)
	add(g.Celsius >= 0, "%2.0f °C", g.Celsius)
	add(g.Xids == 1, "Xid %d", g.LastXid)
	add(g.Xids > 1, "%d Xids, the last %d", g.Xids, g.LastXid)
	add(g.Name != "", "%s", units.SanitizeText(g.Name))
	return strings.Join(parts, "  ")
}

// sortedVerdicts returns the verdicts, problems first, then notices, each from the newest to the oldest.
func sortedVerdicts(s *live.Snapshot) []live.Verdict {
	list := slices.Clone(s.Verdicts)
	rank := map[string]int{"problem": 1, "notice": 2}
	slices.SortStableFunc(list, func(a, b live.Verdict) int {
		return cmp.Or(
			cmp.Compare(cmp.Or(rank[a.Severity], 3), cmp.Or(rank[b.Severity], 3)),
			cmp.Compare(b.AtNs, a.AtNs),
		)
	})
	return list
}

// formatVerdicts returns a line for each verdict, at most n. The last one has the number of the others.
func formatVerdicts(s *live.Snapshot, n, width int) (lines []string) {
	list := sortedVerdicts(s)
	for i := range list[:min(n, len(list))] {
		more := ""
		if i == n-1 && len(list) > n {
			more = fmt.Sprintf("  and %d more: v", len(list)-n)
		}
		line := units.ShortenText(formatVerdict(&list[i], width/2), max(1, width-len(more)))
		if list[i].Severity == "problem" {
			line = bold + line + normal
		}
		lines = append(lines, line+more)
	}
	return lines
}

// formatVerdict returns a verdict as one line. The place has at most a width, 0 for no limit.
func formatVerdict(v *live.Verdict, placeWidth int) string {
	text := strings.ToUpper(v.Severity)
	if v.Severity != "problem" {
		text = v.Severity
	}
	if v.Kind != "other" && v.Kind != "" {
		text += " " + v.Kind
	}
	if v.Pid != 0 {
		text += fmt.Sprintf(" in %d", v.Pid)
	}
	if v.Where != "" && !strings.Contains(v.What, v.Where) {
		text += " at " + units.ShortenText(v.Where, placeWidth)
	}
	text += ": " + v.What
	if v.SoFar {
		text += ", so far"
	}
	if v.Confidence != "" {
		text += " (" + v.Confidence + " confidence)"
	}
	return units.SanitizeText(text)
}

// formatTitles returns the heading of the table. A mark is before the column by which it is sorted.
func formatTitles(s *live.Snapshot, width, sortedBy int, reversed bool) string {
	shown, lastWidth := shownColumns(s, width)
	var text strings.Builder
	for i, c := range shown {
		column := &columns[c]
		title, mark, columnWidth := column.title, " ", column.width
		if i == len(shown)-1 {
			columnWidth = lastWidth
		}
		if c == sortedBy {
			if mark = "▼"; (column.rising || column.number == nil) != reversed {
				mark = "▲"
			}
		}
		if column.left {
			text.WriteString(mark + pad(title, columnWidth, true))
		} else {
			text.WriteString(pad(mark+title, columnWidth+1, false))
		}
	}
	return strings.TrimRight(text.String(), " ")
}

// formatProcess returns the row of a process. Its first character is a space.
func formatProcess(s *live.Snapshot, p *live.Process, width int) string {
	shown, lastWidth := shownColumns(s, width)
	var text strings.Builder
	for i, c := range shown {
		column := &columns[c]
		cell, columnWidth := column.text(s, p), column.width
		if i == len(shown)-1 {
			columnWidth = lastWidth
			cell = formatName(p, lastWidth)
		}
		if column.needsRecorder && s.NotRecorded != "" {
			cell = unknown
		}
		text.WriteString(" " + pad(cell, columnWidth, column.left))
	}
	return strings.TrimRight(text.String(), " ")
}

// footer returns the last line: the keys, the filter that is typed, a result, or a warning.
func (m Model) footer() string {
	switch w := m.opt.Warning(); {
	case m.typing:
		return "filter by name or pid: " + m.filter + "_"
	case m.notice != "":
		return m.notice
	case w != "":
		return "warning: " + w
	case m.frozen:
		return "frozen; space continues"
	case m.open:
		return "esc back  tab order of lines  up, down other process  t stacks  q quit"
	case m.filter != "":
		return "filter " + m.filter + "; esc shows all  q quit  ? help"
	case m.snapshot.NotRecorded != "":
		return "q quit  ? help  s sort  / filter  space freeze"
	}
	return "q quit  ? help  s sort  / filter  enter lines  t stacks  W save  space freeze"
}

// FormatText returns a snapshot as text for output that is no terminal, or one that cannot move its cursor. A width of 0
// is that of no terminal.
func FormatText(s *live.Snapshot, width int, ascii bool) string {
	if width == 0 {
		width = lineWidth
	}
	lines := formatAbove(s, len(s.GPUs), len(s.Verdicts), width)
	if s.NotRecorded != "" {
		lines = append(lines, s.NotRecorded)
	}
	lines = append(lines, formatTitles(s, width, -1, false))
	for i := range s.Processes {
		if p := &s.Processes[i]; isShown(s, p) {
			lines = append(lines, formatProcess(s, p, width))
		}
	}
	text := strings.NewReplacer(bold, "", normal, "").Replace(strings.Join(lines, "\n") + "\n")
	if ascii {
		text = asciiText.Replace(text)
	}
	return text
}

// lineWidth is the width of text for output that goes to no terminal.
const lineWidth = 120
