package top

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/internal/testclass"
)

// snapshot has two ranks of a training, and a process that has been silent.
func snapshot() *live.Snapshot {
	rank := func(i int) *int { return &i }
	at := time.Date(2026, 11, 26, 9, 30, 5, 0, time.UTC).UnixNano()
	return &live.Snapshot{
		FromNs: at - 1e9, ToNs: at, LaunchShare: 0.25, Lost: 1,
		Processes: []live.Process{
			{
				Pid:            4242,
				Name:           "python3",
				Rank:           rank(0),
				GPUs:           []int32{0},
				SMPercent:      97,
				CPUPercent:     101.4,
				CallsPerSec:    34_512,
				LaunchesPerSec: 12_345,
				WaitPercent:    12.4,
				LiveBytes:      38 << 30,
				Memory:         []live.Memory{{Kind: "device", Bytes: 38 << 30}, {Kind: "host", Bytes: 1 << 20}},
				Allocator:      &live.Allocator{AllocatedBytes: 31 << 30, ReservedBytes: 37 << 30},
				UsedBytes:      40 << 30,
				Failed:         2,
				LastError:      "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY",
				LastResult:     2,
				LaunchHistory:  []int64{1, 5, 9, 4},
				Lines: []live.Line{
					{Site: "forward (model.py:20)", Calls: 90_000, Launches: 80_000, TensorBytes: 20 << 30},
					{Site: "load (data.py:7)", Calls: 7, Launches: 7, LiveBytes: 38 << 30, LiveBlocks: 12_345},
					{Site: "", Calls: 3, WaitNs: 4e9},
				},
				TensorsByLine: true,
			},
			{
				Pid: 4243, Name: "python3", Rank: rank(1), GPUs: []int32{1}, CallsPerSec: 80, LaunchesPerSec: 20,
				UsedBytes: -1, SMPercent: -1, CPUPercent: -1,
			},
			{Pid: 9, Name: "bad\x1b[2J", UsedBytes: -1, SilentNs: 12e9, SMPercent: -1, CPUPercent: -1},
			{Pid: 10, Name: "short", UsedBytes: -1, SMPercent: -1, CPUPercent: -1, Exited: true, ExitNs: at - 10e9},
			{Pid: 11, Name: "gone", UsedBytes: -1, Exited: true, ExitNs: at - 11e9},
		},
		GPUs: []live.GPU{
			{
				Name:               "NVIDIA H200",
				UtilizationPercent: 98,
				SMActivePercent:    71.6,
				UsedBytes:          41 << 30,
				TotalBytes:         140 << 30,
				Milliwatts:         612e3,
				Celsius:            55,
			},
			{
				Index:              1,
				Name:               "NVIDIA H200",
				UtilizationPercent: -1,
				SMActivePercent:    -1,
				UsedBytes:          -1,
				TotalBytes:         -1,
				Milliwatts:         -1,
				Celsius:            -1,
				Xids:               1,
				LastXid:            31,
			},
		},
		Verdicts: []live.Verdict{
			{Severity: "notice", Kind: "other", What: "launches are not recorded all the time", AtNs: at},
			{
				Severity: "problem", Kind: "leak", Confidence: "high", What: "memory grows by 14.6 MiB a minute",
				Where: "train.py:69", Pid: 4242, AtNs: at - 2e9, SoFar: true,
			},
			{
				Severity:   "problem",
				Kind:       "hang",
				Confidence: "medium",
				What:       "cuStreamSynchronize waits",
				AtNs:       at - 1e9,
			},
			{Severity: "info", What: "one"},
		},
	}
}

// manyProcesses returns a function with n processes on eight GPUs, whose launches change at each call.
func manyProcesses(n int) func() *live.Snapshot {
	calls := 0
	return func() *live.Snapshot {
		calls++
		s := &live.Snapshot{ToNs: 1e9, LaunchShare: 1}
		for i := range n {
			noise := float64((i*7+calls*13)%11) / 11 // of the distance to the next process
			s.Processes = append(s.Processes, live.Process{
				Pid: int32(1000 + i), Name: fmt.Sprintf("rank%d", i), LaunchesPerSec: float64(10*i) + 10*noise,
				UsedBytes: -1, SMPercent: -1, CPUPercent: -1,
			})
		}
		for i := range int32(8) {
			s.GPUs = append(s.GPUs, live.GPU{Index: i, Name: "NVIDIA H200", TotalBytes: 140 << 30})
		}
		return s
	}
}

// publicSnapshot is a snapshot of processes that are not recorded.
func publicSnapshot() *live.Snapshot {
	s := snapshot()
	s.NotRecorded = "CUDA calls are not recorded: attaching probes needs root. Run: sudo gpurec top"
	s.GPUs, s.NoGPU, s.Verdicts = nil, "NVML is not available", nil
	return s
}

func newTestModel() Model { return newModelOf(snapshot) }

func newModelOf(take func() *live.Snapshot) Model {
	return NewModel(Options{Take: take, Every: time.Second, Warning: func() string { return "" }})
}

// press applies keys: single characters, or names such as enter.
func press(m Model, keys ...string) Model {
	for _, key := range keys {
		m, _ = pressKey(m, key)
	}
	return m
}

func pressKey(m Model, key string) (Model, tea.Cmd) {
	codes := map[string]rune{
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "tab": tea.KeyTab,
		"backspace": tea.KeyBackspace, "space": tea.KeySpace, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp,
		"home": tea.KeyHome, "end": tea.KeyEnd,
	}
	msg := tea.KeyPressMsg{Code: codes[key]}
	if codes[key] == 0 {
		msg = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
	}
	next, cmd := m.Update(msg)
	return next.(Model), cmd
}

func resize(m Model, width, height int) Model {
	next, _ := m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return next.(Model)
}

func update(m Model) Model {
	next, _ := m.Update(tick{})
	return next.(Model)
}

// checkGolden compares a screen with a file of testdata. GPUREC_UPDATE=1 renews the file.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	got = strings.NewReplacer(reverse, "", bold, "", normal, "").Replace(got) + "\n"
	if os.Getenv("GPUREC_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

func TestScreens(t *testing.T) {
	testclass.Unit(t)
	t.Setenv("TZ", "UTC")
	time.Local = time.UTC
	many := newModelOf(manyProcesses(60))
	threads := newTestModel()
	threads.opt.Threads = func(int32) ([]string, error) { return []string{"MainThread, waits", "  load (data.py:7)"}, nil }
	threads, read := pressKey(threads, "t")
	next, _ := threads.Update(read())
	ascii := newTestModel()
	ascii.opt.ASCII = true
	for name, m := range map[string]Model{
		"processes":    newTestModel(),
		"wide":         resize(newTestModel(), 200, 60),
		"small":        resize(newTestModel(), 40, 10),
		"lines":        press(newTestModel(), "down", "up", "enter"),
		"launches":     press(newTestModel(), "l"),
		"waits":        press(newTestModel(), "w"),
		"by_pid":       press(newTestModel(), "S", "S", "S", "r"),
		"filtered":     press(newTestModel(), "/", "4", "2", "4", "4", "backspace", "3", "enter"),
		"typing":       press(newTestModel(), "/", "P", "Y"),
		"no_process":   press(newTestModel(), "/", "x", "enter"),
		"help":         press(newTestModel(), "?"),
		"help_small":   press(resize(newTestModel(), 40, 10), "?", "end"),
		"verdicts":     press(newTestModel(), "v"),
		"threads":      next.(Model),
		"many":         press(many, "pgdown", "pgdown", "down"),
		"many_small":   press(resize(many, 40, 10), "end"),
		"not_recorded": newModelOf(publicSnapshot),
		"ascii":        ascii,
	} {
		text := m.text()
		checkGolden(t, name, text)
		if n := strings.Count(text, "\n") + 1; n != m.height {
			t.Errorf("%s has %d lines on a screen of %d", name, n, m.height)
		}
	}
	checkGolden(t, "text", FormatText(snapshot(), 0, false))
	checkGolden(t, "text_not_recorded", FormatText(publicSnapshot(), 80, true))
}

func TestScreensFit(t *testing.T) {
	testclass.Unit(t)
	for _, take := range []func() *live.Snapshot{snapshot, publicSnapshot, manyProcesses(60)} {
		for width := minWidth; width < 220; width += 1 + width/8 {
			for height := minHeight; height < 70; height += 1 + height/8 {
				for _, keys := range []string{"", "m", "?", "v", "G"} {
					m := resize(newModelOf(take), width, height)
					for _, key := range keys {
						m = press(m, string(key))
					}
					checkFits(t, fmt.Sprintf("%d×%d %q", width, height, keys), m)
				}
			}
		}
	}
}

// checkFits checks that a screen has its size, and a row that is selected.
func checkFits(t *testing.T, name string, m Model) {
	t.Helper()
	text := strings.NewReplacer(reverse, "", bold, "", normal, "").Replace(m.text())
	lines := strings.Split(text, "\n")
	if len(lines) != m.height {
		t.Errorf("%s: %d lines", name, len(lines))
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > m.width {
			t.Errorf("%s: line of %d characters: %q", name, n, line)
		}
	}
	if m.pane.kind == paneNone && !strings.Contains(m.text(), reverse+">") {
		t.Errorf("%s: no row is selected:\n%s", name, text)
	}
}

func TestFreezeAndQuit(t *testing.T) {
	testclass.Unit(t)
	taken := 0
	m := NewModel(
		Options{Take: func() *live.Snapshot { taken++; return snapshot() }, Every: time.Second, Warning: func() string {
			return "the buffer was full"
		}},
	)
	if !strings.Contains(m.text(), "warning: the buffer was full") {
		t.Error("the warning is not shown")
	}
	m.opt.Warning = func() string { return "" }
	m = press(m, "space")
	next, again := m.Update(tick{})
	if taken != 1 || again == nil {
		t.Errorf("frozen: %d snapshots", taken)
	}
	if !strings.Contains(next.(Model).text(), "frozen") {
		t.Error("the screen does not say that it is frozen")
	}
	next, _ = press(next.(Model), "space").Update(tick{})
	if taken != 2 {
		t.Errorf("%d snapshots", taken)
	}
	if _, quit := next.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not quit")
	}
}

// TestOrderIsCalm checks that numbers with noise do not change the order, and that clearly larger ones do.
func TestOrderIsCalm(t *testing.T) {
	testclass.Unit(t)
	jump := 0.0
	many := manyProcesses(60)
	m := newModelOf(func() *live.Snapshot {
		s := many()
		s.Processes[0].LaunchesPerSec += jump
		return s
	})
	m = press(m, "down", "down", "down")
	selected, order := m.selected, fmt.Sprint(m.order.pids)
	for range 100 {
		if m = update(m); fmt.Sprint(m.order.pids) != order {
			t.Fatal("noise changes the order")
		}
	}
	jump = 1e6
	m = update(m)
	if m.order.pids[0] != 1000 || m.selected != selected || m.row != 4 {
		t.Errorf("%v first, %d selected in row %d", m.order.pids[0], m.selected, m.row)
	}
	jump = 0
	for range 40 {
		m = update(m)
	}
	if last := m.order.pids[59]; last != 1000 {
		t.Errorf("%d is last", last)
	}
}

// TestSelectionFollowsTheProcess selects a process, and removes it.
func TestSelectionFollowsTheProcess(t *testing.T) {
	testclass.Unit(t)
	first := 0
	many := manyProcesses(60)
	m := newModelOf(func() *live.Snapshot {
		s := many()
		s.Processes = s.Processes[first:]
		return s
	})
	m = press(m, "S", "S", "S") // by pid
	m = press(m, "pgdown", "pgdown")
	if want := int32(1000 + m.row); m.selected != want || m.first == 0 {
		t.Errorf("%d selected in row %d of those from %d on", m.selected, m.row, m.first)
	}
	row := m.row
	first = 5
	if m = update(m); m.row != row-5 {
		t.Errorf("row %d, want %d", m.row, row-5)
	}
	first = 50
	if m = update(m); m.selected != int32(1050+m.row) || m.first != 0 {
		t.Errorf("%d selected in row %d", m.selected, m.row)
	}
	first = 60
	if m = update(m); !strings.Contains(m.text(), "no process uses CUDA yet") {
		t.Error(m.text())
	}
}

// TestBackgroundKeys saves, and reads threads, with and without success.
func TestBackgroundKeys(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		opt  Options
		key  string
		want string
	}{
		{Options{}, "W", "cannot save here"},
		{Options{}, "t", "stacks cannot be read"},
		{Options{Save: func() (string, error) { return "/x.parquet", nil }}, "W", "saved /x.parquet"},
		{Options{Save: func() (string, error) { return "", errors.New("disk full") }}, "W", "not saved: disk full"},
		{Options{Threads: func(int32) ([]string, error) { return []string{"a\x1b"}, nil }}, "t", "threads of 4242\na?"},
		{Options{Threads: func(int32) ([]string, error) { return nil, errors.New("gone") }}, "t", "cannot be read: gone"},
	} {
		c.opt.Take, c.opt.Warning = snapshot, func() string { return "" }
		m, cmd := pressKey(NewModel(c.opt), c.key)
		if cmd != nil {
			next, _ := m.Update(cmd())
			m = next.(Model)
		}
		if text := strings.NewReplacer(bold, "", normal, "").Replace(m.text()); !strings.Contains(text, c.want) {
			t.Errorf("%s: no %q in\n%s", c.key, c.want, text)
		}
	}
}

func TestSizes(t *testing.T) {
	testclass.Unit(t)
	for bytes, want := range map[int64]string{
		-1: "-", 0: "0B", 1023: "1023B", 1024: "1.0K", 1536 << 10: "1.5M", 1023 << 20: "1023M", 1<<30 - 1: "1.0G",
		141 << 30: "141G", 3 << 50: "3072T",
	} {
		if got := formatSize(bytes); got != want || len(got) > 5 {
			t.Errorf("%d: %s, want %s", bytes, got, want)
		}
	}
}
