package top

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"
)

// keyHelp are the keys and their effects, as ? shows them.
var keyHelp = [][2]string{
	{"s, S", "sort by the next or the previous column; the mark is before its title"},
	{"r", "reverse the order"},
	{"/", "filter by name or pid; esc removes the filter"},
	{"up, down", "select a process, also PgUp, PgDn, Home and End"},
	{"enter", "show the lines of the selected process"},
	{"tab", "next order of the lines"},
	{"m, l, w", "lines by live memory, by launches, by waiting time"},
	{"t", "show the stacks of its threads; t again reads them anew"},
	{"v", "show all verdicts"},
	{"W", "save the last minutes as a recording"},
	{"space", "freeze and continue"},
	{"esc", "back"},
	{"q, Ctrl-C", "quit"},
}

// applyKey applies a key.
func (m Model) applyKey(key tea.KeyPressMsg) (Model, tea.Cmd) {
	name := key.String()
	m.notice = ""
	switch {
	case name == "ctrl+c":
		return m, tea.Quit
	case m.typing:
		return m.typeFilter(name, key.Text), nil
	case name == "q":
		return m, tea.Quit
	case name == "t":
		return m.readThreads()
	case m.pane.kind != paneNone:
		m.pane = m.pane.applyKey(name, m.height-2)
		return m, nil
	}
	switch name {
	case "W":
		return m.save()
	case "space":
		m.frozen = !m.frozen
	case "/":
		m.typing = true
	case "?", "h":
		m.pane = helpPane(m.width)
	case "v":
		m.pane = verdictPane(m.snapshot, m.width)
	case "s":
		m = m.sortBy(m.neighbourColumn(+1), false)
	case "S":
		m = m.sortBy(m.neighbourColumn(-1), false)
	case "r":
		m = m.sortBy(m.sortedBy, !m.reversed)
	default:
		m = m.applyTableKey(name)
	}
	return m, nil
}

// applyTableKey applies a key that selects a process, or shows its lines.
func (m Model) applyTableKey(name string) Model {
	page := max(1, m.layout(len(m.processes())).rows-1)
	switch name {
	case "up", "k":
		m = m.selectRow(m.row - 1)
	case "down", "j":
		m = m.selectRow(m.row + 1)
	case "pgup", "ctrl+b":
		m = m.selectRow(m.row - page)
	case "pgdown", "ctrl+f":
		m = m.selectRow(m.row + page)
	case "home", "g":
		m = m.selectRow(0)
	case "end", "G":
		m = m.selectRow(len(m.order.pids))
	case "enter":
		m.open = !m.open
	case "tab":
		m.open, m.linesBy = true, (m.linesBy+1)%len(lineOrders)
	case "esc":
		if m.open {
			m.open = false
		} else {
			m.filter = ""
		}
	}
	for i, o := range lineOrders {
		if name == o.key {
			m.open, m.linesBy = true, i
		}
	}
	return m
}

// typeFilter applies a key to the filter.
func (m Model) typeFilter(name, text string) Model {
	switch name {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		runes := []rune(m.filter)
		m.filter = string(runes[:max(0, len(runes)-1)])
	default:
		m.filter += text
	}
	return m
}

// neighbourColumn returns the next (+1) or previous (-1) column that is shown.
func (m Model) neighbourColumn(by int) int {
	shown, _ := shownColumns(m.snapshot, m.width)
	i := slices.Index(shown, m.sortedBy)
	if i < 0 { // it is hidden since the terminal became smaller
		return shown[0]
	}
	return shown[(i+by+len(shown))%len(shown)]
}

// saved is the message with the result of Options.Save.
type saved struct {
	path string
	err  error
}

func (s saved) text() string {
	if s.err != nil {
		return fmt.Sprintf("not saved: %v", s.err)
	}
	return "saved " + s.path
}

// save saves the last minutes in the background.
func (m Model) save() (Model, tea.Cmd) {
	if m.opt.Save == nil {
		m.notice = "cannot save here: sudo gpurec record --ring 10m keeps the last minutes"
		return m, nil
	}
	m.notice = "saving the last minutes ..."
	save := m.opt.Save
	return m, func() tea.Msg {
		path, err := save()
		return saved{path, err}
	}
}

// readThreads shows the threads of the selected process. They are read in the background.
func (m Model) readThreads() (Model, tea.Cmd) {
	switch {
	case m.opt.Threads == nil:
		m.notice = "stacks cannot be read here: sudo gpurec stacks -p PID shows them"
		return m, nil
	case m.selected == 0:
		return m, nil
	}
	pid, read := m.selected, m.opt.Threads
	if m.pane.kind == paneThreads {
		pid = m.pane.pid
	}
	m.pane = pane{kind: paneThreads, pid: pid, title: fmt.Sprintf("reading the stacks of %d ...", pid)}
	return m, func() tea.Msg {
		lines, err := read(pid)
		return threadsRead{pid, lines, err}
	}
}
