package top

import (
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
					{Site: "forward (model.py:20)", Calls: 90_000, Launches: 80_000},
					{Site: "", Calls: 3, WaitNs: 4e9},
				},
			},
			{Pid: 4243, Name: "python3", Rank: rank(1), CallsPerSec: 80, LaunchesPerSec: 20, UsedBytes: -1},
			{Pid: 9, Name: "bad\x1b[2J", UsedBytes: -1, SilentNs: 12e9},
		},
		GPUs: []live.GPU{
			{
				Name:               "NVIDIA H200",
				UtilizationPercent: 98,
				UsedBytes:          41 << 30,
				TotalBytes:         140 << 30,
				Milliwatts:         612e3,
				Celsius:            55,
			},
			{
				Index:              1,
				Name:               "NVIDIA H200",
				UtilizationPercent: -1,
				UsedBytes:          -1,
				TotalBytes:         -1,
				Milliwatts:         -1,
				Celsius:            -1,
				Xids:               1,
				LastXid:            31,
			},
		},
	}
}

func newTestModel() Model {
	return NewModel(Options{Take: snapshot, Every: time.Second, Warning: func() string { return "" }})
}

// press applies keys: single characters, or names such as enter.
func press(m Model, keys ...string) Model {
	codes := map[string]rune{
		"enter":     tea.KeyEnter,
		"esc":       tea.KeyEscape,
		"up":        tea.KeyUp,
		"down":      tea.KeyDown,
		"backspace": tea.KeyBackspace,
		"space":     tea.KeySpace,
	}
	for _, key := range keys {
		msg := tea.KeyPressMsg{Code: codes[key]}
		if codes[key] == 0 {
			msg = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		}
		next, _ := m.Update(msg)
		m = next.(Model)
	}
	return m
}

// checkGolden compares a screen with a file of testdata. GPUREC_UPDATE=1 renews the file.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	got = strings.NewReplacer(reverse, "[", bold, "", normal, "").Replace(got) + "\n"
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
	wide, _ := newTestModel().Update(tea.WindowSizeMsg{Width: 120, Height: 30})
	for name, m := range map[string]Model{
		"processes":  newTestModel(),
		"wide":       wide.(Model),
		"lines":      press(newTestModel(), "down", "up", "enter"),
		"by_pid":     press(newTestModel(), "s", "s", "s", "s", "s", "s", "s"),
		"filtered":   press(newTestModel(), "/", "4", "2", "4", "4", "backspace", "3", "enter"),
		"typing":     press(newTestModel(), "/", "p", "y"),
		"no_process": press(newTestModel(), "/", "x", "enter"),
	} {
		text := m.text()
		checkGolden(t, name, text)
		if n := strings.Count(text, "\n") + 1; n != m.height {
			t.Errorf("%s has %d lines on a screen of %d", name, n, m.height)
		}
	}
	checkGolden(t, "text", FormatText(snapshot()))
}

func TestScreensFit(t *testing.T) {
	testclass.Unit(t)
	for _, width := range []int{40, 80, 90, 100, 200} {
		for height := 8; height < 40; height++ {
			m, _ := press(newTestModel(), "enter").Update(tea.WindowSizeMsg{Width: width, Height: height})
			text := strings.NewReplacer(reverse, "", bold, "", normal, "").Replace(m.(Model).text())
			lines := strings.Split(text, "\n")
			if len(lines) != height {
				t.Errorf("%d lines on a screen of %d", len(lines), height)
			}
			for _, line := range lines {
				if n := len([]rune(line)); n > width {
					t.Errorf("line of %d characters on a screen of %d: %q", n, width, line)
				}
			}
		}
	}
}

func TestPauseAndQuit(t *testing.T) {
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
	m = press(m, "space")
	next, again := m.Update(tick{})
	if taken != 1 || again == nil {
		t.Errorf("paused: %d snapshots", taken)
	}
	if !strings.Contains(next.(Model).text(), "paused") {
		t.Error("the screen does not say that it is paused")
	}
	next, _ = press(next.(Model), "space").Update(tick{})
	if taken != 2 {
		t.Errorf("%d snapshots", taken)
	}
	if _, quit := next.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); quit == nil {
		t.Error("q does not quit")
	}
}
