//go:build linux

package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// recordCommand records a held command from its first instruction to its end.
func recordCommand(t *testing.T, command *Command, opt Options) Result {
	t.Helper()
	opt.Command = command
	s := start(t, opt)
	defer s.Close()
	command.Run()
	if end, err := s.Run(t.Context()); err != nil || end != EndProcesses {
		t.Errorf("ended because %q, %v", end, err)
	}
	result, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if status, err := command.Wait(t.Context()); status != 0 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	return result
}

// withoutStack returns how many calls of a recording have no stack.
func withoutStack(t *testing.T, path string) (n int) {
	t.Helper()
	for _, rows := range recordedCalls(t, path) {
		for _, r := range rows {
			if r.StackID == 0 && r.Flags&format.FlagUnreadable == 0 {
				n++
			}
		}
	}
	return n
}

// A program, its parent, its tracer and its timers notice nothing of holds: examples/simcuda/watched.c.
func TestHoldsAreNotNoticed(t *testing.T) {
	needKernel(t)
	for mode, want := range map[string]string{
		"wait":  "watched wait: 0",
		"trace": "watched trace: 0",
		"timer": "watched timer: 0",
		"stop":  "watched stop: 2", // its own stop and continuation
	} {
		t.Run(mode, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			stdout := os.Stdout
			os.Stdout = out
			command := startSimCommand(t, nil, "watched", mode)
			os.Stdout = stdout
			result := recordCommand(t, command, testOptions(t))
			said, err := os.ReadFile(out.Name())
			if err != nil || strings.TrimSpace(string(said)) != want {
				t.Errorf("the program says %q, want %q, error %v", said, want, err)
			}
			if cost := result.Meta.Cost; cost.Holds == 0 || cost.Unheld > 0 {
				t.Errorf("%d holds, %d threads ran before they were covered", cost.Holds, cost.Unheld)
			}
			if missing := withoutStack(t, result.Output); missing > 0 {
				t.Errorf("%d calls have no stack", missing)
			}
			t.Logf("%d holds, %.1f ms", result.Meta.Cost.Holds, float64(result.Meta.Cost.HeldNs)/1e6)
		})
	}
}
