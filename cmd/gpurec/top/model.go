package top

import (
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpurec/gpurec/analyze/live"
)

// Options are the options of a Model. The functions may block, except for Take and Warning.
type Options struct {
	Take  func() *live.Snapshot // returns the current numbers
	Every time.Duration         // time between two updates
	// Warning returns the latest warning of the recorder, "" if there is none.
	Warning func() string
	// Save saves the last minutes as a recording, and returns its path. nil: it cannot be saved.
	Save func() (path string, err error)
	// Threads returns a description of the threads of a process in lines: name, state and stack. nil: they cannot be
	// read.
	Threads func(pid int32) ([]string, error)
	// ASCII replaces characters that are not in ASCII.
	ASCII bool
}

// Model is the state of the screen, a model of bubbletea.
type Model struct {
	opt           Options
	width, height int
	snapshot      *live.Snapshot
	sortedBy      int // index in columns
	reversed      bool
	order         order
	selected      int32 // pid; 0: none
	row           int   // of the selected process, in the table
	first         int   // first row that is shown
	open          bool  // the call sites of the selected process are shown
	linesBy       int   // index in lineOrders
	pane          pane  // text instead of the table
	frozen        bool
	filter        string
	typing        bool // keys go to the filter
	notice        string
}

// minWidth and minHeight are those of the smallest screen that is drawn.
const minWidth, minHeight = 28, 6

// NewModel returns a Model for a terminal of 80 columns, which Update corrects.
func NewModel(opt Options) Model {
	m := Model{opt: opt, width: 80, height: 24, snapshot: opt.Take()}
	m.sortedBy = columnOf(defaultSort(m.snapshot))
	return m.applySnapshot()
}

// tick is the message that asks for the next update.
type tick struct{}

// Init begins the updates.
func (m Model) Init() tea.Cmd { return m.nextTick() }

func (m Model) nextTick() tea.Cmd {
	return tea.Tick(m.opt.Every, func(time.Time) tea.Msg { return tick{} })
}

// Update applies a message: a key, a new size, the time for an update, or the result of a function that ran in the
// background.
func (m Model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(minWidth, msg.Width), max(minHeight, msg.Height)
	case tick:
		if !m.frozen {
			m.snapshot = m.opt.Take()
			m = m.applySnapshot()
		}
		cmd = m.nextTick()
	case tea.KeyPressMsg:
		m, cmd = m.applyKey(msg)
	case saved:
		m.notice = msg.text()
	case threadsRead:
		m.pane = m.pane.withThreads(msg)
	}
	return m.scroll(), cmd
}

// applySnapshot brings the rows into order.
func (m Model) applySnapshot() Model {
	m.order = m.order.next(m.snapshot.Processes, &columns[m.sortedBy], m.reversed)
	return m.scroll()
}

// sortBy sorts the rows anew.
func (m Model) sortBy(column int, reversed bool) Model {
	m.sortedBy, m.reversed, m.order = column, reversed, order{}
	return m.applySnapshot()
}

// shownAfterExitNs is how long the table shows a process after its end.
const shownAfterExitNs = int64(10 * time.Second)

// processes returns the processes that pass the filter, in the order of the table.
func (m Model) processes() []*live.Process {
	byPid := make(map[int32]*live.Process)
	for i := range m.snapshot.Processes {
		p := &m.snapshot.Processes[i]
		if isShown(m.snapshot, p) && m.passesFilter(p) {
			byPid[p.Pid] = p
		}
	}
	var list []*live.Process
	for _, pid := range m.order.pids {
		if p := byPid[pid]; p != nil {
			list = append(list, p)
		}
	}
	return list
}

// isShown reports whether a process runs, or ended a short time ago.
func isShown(s *live.Snapshot, p *live.Process) bool {
	return !p.Exited || s.ToNs-p.ExitNs <= shownAfterExitNs
}

func (m Model) passesFilter(p *live.Process) bool {
	return strings.Contains(strings.ToLower(p.Name), strings.ToLower(m.filter)) ||
		strings.HasPrefix(strconv.Itoa(int(p.Pid)), m.filter)
}

// scroll keeps the selected process selected and visible. If it has left the table, the one in its row is selected.
func (m Model) scroll() Model {
	list := m.processes()
	if len(list) == 0 {
		m.first, m.row = 0, 0
		return m
	}
	if i := slices.IndexFunc(list, func(p *live.Process) bool { return p.Pid == m.selected }); i >= 0 {
		m.row = i
	}
	m.row = min(max(0, m.row), len(list)-1)
	m.selected = list[m.row].Pid
	rows := m.layout(len(list)).rows
	m.first = max(min(m.first, m.row, len(list)-rows), m.row-rows+1, 0)
	return m
}

// selectRow selects the process in a row of the table, or the nearest one.
func (m Model) selectRow(row int) Model {
	if list := m.processes(); len(list) > 0 {
		m.row = min(max(0, row), len(list)-1)
		m.selected = list[m.row].Pid
	}
	return m
}
