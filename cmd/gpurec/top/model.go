package top

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/units"
)

// Options are the options of a Model.
type Options struct {
	Take  func() *live.Snapshot // returns the current numbers
	Every time.Duration         // time between two updates
	// Warning returns the latest warning of the recorder, "" if there is none.
	Warning func() string
}

// Model is the state of the screen, a model of bubbletea.
type Model struct {
	opt           Options
	width, height int
	snapshot      *live.Snapshot
	sortedBy      int // index in columns
	selected      int32
	open          bool // shows the call sites of the selected process
	paused        bool
	filter        string
	typing        bool // keys go to the filter
}

// NewModel returns a Model for a terminal of 80 columns, which Update corrects.
func NewModel(opt Options) Model {
	return Model{opt: opt, width: 80, height: 24, snapshot: opt.Take(), sortedBy: 2}
}

// tick is the message that asks for the next update.
type tick struct{}

// Init begins the updates.
func (m Model) Init() tea.Cmd { return m.nextTick() }

func (m Model) nextTick() tea.Cmd {
	return tea.Tick(m.opt.Every, func(time.Time) tea.Msg { return tick{} })
}

// Update applies a message: a key, a new size, or the time for an update.
func (m Model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(40, msg.Width), max(8, msg.Height)
	case tick:
		if !m.paused {
			m.snapshot = m.opt.Take()
		}
		return m, m.nextTick()
	case tea.KeyPressMsg:
		return m.applyKey(msg)
	}
	return m, nil
}

// applyKey applies a key.
func (m Model) applyKey(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := key.String()
	if name == "ctrl+c" {
		return m, tea.Quit
	}
	if m.typing {
		return m.typeFilter(name, key.Text), nil
	}
	switch name {
	case "q":
		return m, tea.Quit
	case "s":
		m.sortedBy = m.nextSortedColumn()
	case "space", "p":
		m.paused = !m.paused
	case "/":
		m.typing = true
	case "up", "k":
		m.selected = m.neighbour(-1)
	case "down", "j":
		m.selected = m.neighbour(+1)
	case "enter":
		m.selected, m.open = m.neighbour(0), !m.open
	case "esc":
		m.open, m.filter = false, ""
	}
	return m, nil
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

// nextSortedColumn returns the next column that is shown and can be sorted by.
func (m Model) nextSortedColumn() int {
	for i := range columns {
		next := (m.sortedBy + 1 + i) % len(columns)
		if c := &columns[next]; c.compare != nil && m.width >= c.minWidth {
			return next
		}
	}
	return m.sortedBy
}

// processes returns the processes that pass the filter, in the order of the table.
func (m Model) processes() []*live.Process {
	var list []*live.Process
	for i := range m.snapshot.Processes {
		p := &m.snapshot.Processes[i]
		if strings.Contains(p.Name, m.filter) || strings.HasPrefix(strconv.Itoa(int(p.Pid)), m.filter) {
			list = append(list, p)
		}
	}
	compare := columns[m.sortedBy].compare
	slices.SortStableFunc(
		list,
		func(a, b *live.Process) int { return cmp.Or(compare(a, b), cmp.Compare(a.Pid, b.Pid)) },
	)
	return list
}

// neighbour returns the process that is by rows below the selected one in the table, or the first one.
func (m Model) neighbour(by int) int32 {
	list := m.processes()
	if len(list) == 0 {
		return 0
	}
	i := slices.IndexFunc(list, func(p *live.Process) bool { return p.Pid == m.selected })
	if i < 0 {
		return list[0].Pid
	}
	return list[min(max(0, i+by), len(list)-1)].Pid
}

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

// text returns the screen.
func (m Model) text() string {
	var lines []string
	for _, line := range formatHeader(m.snapshot) {
		lines = append(lines, units.ShortenText(line, m.width))
	}
	lines = append(lines, "", bold+formatTitles(m.width, columns[m.sortedBy].title)+normal)
	list := m.processes()
	var selected *live.Process
	for _, p := range list {
		if p.Pid == m.neighbour(0) {
			selected = p
		}
	}
	details := m.detailsOf(selected, m.height-len(lines)-min(len(list), 8)-2)
	room := max(1, m.height-len(lines)-len(details)-1)
	for _, p := range list[:min(len(list), room)] {
		row := formatProcess(m.snapshot, p, m.width)
		if p == selected {
			row = reverse + row + strings.Repeat(" ", max(0, m.width-len([]rune(row)))) + normal
		}
		lines = append(lines, row)
	}
	if len(list) == 0 {
		lines = append(lines, "no process has called CUDA yet")
	}
	lines = append(lines, details...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines[:m.height-1], units.ShortenText(m.footer(), m.width)), "\n")
}

// detailsOf returns the lines about the selected process.
func (m Model) detailsOf(p *live.Process, rows int) []string {
	if p == nil {
		return nil
	}
	lines := []string{""}
	if m.open {
		return append(lines, formatLines(p, m.width, rows-2)...)
	}
	for _, line := range formatDetails(p) {
		lines = append(lines, units.ShortenText(line, m.width))
	}
	return lines
}

// footer returns the last line: the keys, the filter that is typed, or a warning.
func (m Model) footer() string {
	switch {
	case m.typing:
		return "filter by name or pid: " + m.filter + "_"
	case m.paused:
		return "paused; space continues"
	}
	text := "q quit  s sort  / filter  ↑↓ select  enter call sites  space pause"
	if m.filter != "" {
		text = "filter " + m.filter + " (esc)  " + text
	}
	if w := m.opt.Warning(); w != "" {
		text = "warning: " + w
	}
	return text
}
