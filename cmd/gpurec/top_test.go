//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestLiveNumbersEqualTheRecording compares the lines of record --live=json with the recording of the same
// seconds.
func TestLiveNumbersEqualTheRecording(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	dir := t.TempDir()
	pid, begin := startWaitingStorm(t, filepath.Join(dir, "ledger.tsv"))
	begin()
	path := filepath.Join(dir, "r.parquet")
	out, messages, code := runGpurec(
		t,
		"record",
		"-p",
		fmt.Sprint(pid),
		"-d",
		"6s",
		"--live=json",
		"--max-overhead",
		"off",
		"--buffer",
		"256MiB",
		"-o",
		path,
	)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, messages)
	}
	rec, err := format.Open(path)
	must(t, err)
	defer rec.Close()
	calls, launches := callsBySecond(t, rec)
	var seen, late int64
	for line := range strings.Lines(out) {
		var s live.Snapshot
		must(t, json.Unmarshal([]byte(line), &s))
		if len(s.Processes) == 0 {
			continue
		}
		var wantCalls, wantLaunches int64
		for at := s.FromNs / 1e9; at < s.ToNs/1e9; at++ {
			wantCalls, wantLaunches = wantCalls+calls[at], wantLaunches+launches[at]
		}
		p := &s.Processes[0]
		if p.Calls > wantCalls || p.Launches > wantLaunches {
			t.Errorf("second %d: %d calls, %d launches; the recording has %d, %d", s.FromNs/1e9, p.Calls, p.Launches,
				wantCalls, wantLaunches)
		}
		seen, late = seen+p.Calls, s.Late
	}
	var all int64
	for _, n := range calls {
		all += n
	}
	t.Logf("%d calls in lines, %d late; the recording has %d", seen, late, all)
	if seen+late != all {
		t.Errorf("%d calls in lines and %d late ones; the recording has %d", seen, late, all)
	}
	if seen == 0 {
		t.Errorf("no calls in\n%s", out)
	}
	if lost := rec.Meta.Totals().Lost; lost > 0 {
		t.Errorf("%d calls lost", lost)
	}
}

// callsBySecond counts the calls and the launches of a recording by the Unix second of their start.
func callsBySecond(t *testing.T, rec *format.Recording) (calls, launches map[int64]int64) {
	t.Helper()
	calls, launches = make(map[int64]int64), make(map[int64]int64)
	for _, g := range rec.Groups() {
		if g.Class() != format.ClassCall && g.Class() != format.ClassMemory {
			continue
		}
		kind := g.Strings("kind")
		for i, start := range g.Int64("start_ns", nil) {
			calls[start/1e9]++
			if kind.At(i) == format.KindLaunch {
				launches[start/1e9]++
			}
		}
		must(t, g.Err())
	}
	return calls, launches
}

// TestTopInATerminal runs top in tmux, presses keys, and reads the screen.
func TestTopInATerminal(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	if _, err := exec.LookPath("tmux"); err != nil {
		testclass.Missing(t, err.Error())
	}
	dir := t.TempDir()
	pid, begin := startWaitingStorm(t, filepath.Join(dir, "ledger.tsv"))
	begin()
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	tmux := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", filepath.Join(dir, "tmux")}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	tmux("new-session", "-d", "-x", "80", "-y", "24",
		fmt.Sprintf("%s top -p %d; echo exit $?; sleep 1000", gpurec, pid))
	defer tmux("kill-server")
	screen := func() string { return tmux("capture-pane", "-p") }
	waitFor(t, "the table has the process", func() bool {
		return strings.Contains(screen(), "LAUNCH/S*") && strings.Contains(screen(), "storm")
	})
	tmux("send-keys", "s")
	waitFor(t, "the table is sorted by calls", func() bool { return strings.Contains(screen(), "CALLS/S*") })
	tmux("send-keys", "Enter")
	waitFor(t, "the call sites are shown", func() bool { return strings.Contains(screen(), "CALL SITE") })
	for line := range strings.Lines(screen()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("a line of %d characters: %q", n, line)
		}
	}
	tmux("send-keys", "q")
	waitFor(t, "top ends", func() bool { return strings.Contains(screen(), "exit 0") })
	if left, _ := filepath.Glob(filepath.Join(dir, "gpurec-top-*")); len(left) > 0 {
		t.Errorf("top left %v", left)
	}
}
