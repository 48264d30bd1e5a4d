package top

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/units"
)

// paneKind is the content of a pane.
type paneKind int

const (
	paneNone paneKind = iota
	paneHelp
	paneVerdicts
	paneThreads
)

// pane is text that is shown instead of the table.
type pane struct {
	kind  paneKind
	title string
	lines []string
	first int   // first line that is shown
	pid   int32 // of paneThreads
}

// threadsRead is the message with the result of Options.Threads.
type threadsRead struct {
	pid   int32
	lines []string
	err   error
}

// withThreads returns the pane with the threads of a process, if it waits for them.
func (p pane) withThreads(r threadsRead) pane {
	if p.kind != paneThreads || p.pid != r.pid {
		return p
	}
	p.title, p.lines, p.first = fmt.Sprintf("threads of %d", r.pid), nil, 0
	if r.err != nil {
		p.lines = []string{fmt.Sprintf("the stacks cannot be read: %v", r.err)}
	}
	for _, line := range r.lines {
		p.lines = append(p.lines, units.SanitizeText(line))
	}
	return p
}

// applyKey scrolls or closes the pane. rows is the number of lines that fit.
func (p pane) applyKey(name string, rows int) pane {
	switch name {
	case "up", "k":
		p.first--
	case "down", "j":
		p.first++
	case "pgup", "ctrl+b":
		p.first -= rows - 1
	case "pgdown", "ctrl+f", "space":
		p.first += rows - 1
	case "home", "g":
		p.first = 0
	case "end", "G":
		p.first = len(p.lines)
	default:
		return pane{}
	}
	p.first = max(0, min(p.first, len(p.lines)-rows))
	return p
}

// view returns the lines of a screen.
func (p pane) view(width, height int) []string {
	rows := height - 2
	first := max(0, min(p.first, len(p.lines)-rows))
	shown := p.lines[first:min(len(p.lines), first+rows)]
	title := p.title
	if len(p.lines) > rows {
		title += fmt.Sprintf(" (lines %d-%d of %d)", first+1, first+len(shown), len(p.lines))
	}
	lines := []string{bold + units.ShortenText(title, width) + normal}
	for _, line := range shown {
		lines = append(lines, units.ShortenText(line, width))
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	footer := "esc back  up, down, PgUp, PgDn scroll  q quit"
	if p.kind == paneThreads {
		footer = "esc back  t read again  up, down, PgUp, PgDn scroll  q quit"
	}
	return append(lines, units.ShortenText(footer, width))
}

// helpPane describes the keys and the columns.
func helpPane(width int) pane {
	p := pane{kind: paneHelp, title: "gpurec top: keys and columns"}
	for _, k := range keyHelp {
		p.lines = append(p.lines, wrap(fmt.Sprintf("  %-10s %s", k[0], k[1]), 13, width)...)
	}
	p.lines = append(p.lines, "")
	for i := range columns {
		p.lines = append(p.lines, wrap(fmt.Sprintf("  %-10s %s", columns[i].title, columns[i].help), 13, width)...)
	}
	p.lines = append(p.lines, "", "K, M, G and T are KiB, MiB, GiB and TiB. - is unknown.")
	return p
}

// verdictPane lists all verdicts.
func verdictPane(s *live.Snapshot, width int) pane {
	p := pane{kind: paneVerdicts, title: units.CountWithNoun(int64(len(s.Verdicts)), "verdict")}
	for _, v := range sortedVerdicts(s) {
		p.lines = append(p.lines, wrap(formatVerdict(&v, 0), 2, width)...)
	}
	return p
}

// wrap breaks a text between words into lines of a width. Lines after the first one are indented.
func wrap(text string, indent, width int) (lines []string) {
	runes := []rune(text)
	for len(runes) > width {
		end := width
		for i := width; i > indent+width/3; i-- {
			if runes[i] == ' ' {
				end = i
				break
			}
		}
		lines = append(lines, string(runes[:end]))
		rest := strings.TrimLeft(string(runes[end:]), " ")
		runes = []rune(strings.Repeat(" ", min(indent, width/3)) + rest)
	}
	return append(lines, string(runes))
}
