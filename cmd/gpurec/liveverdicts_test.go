//go:build linux

package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLiveVerdicts records programs with a known fault, and programs without one, and compares the verdicts that
// record prints meanwhile with the truth. scripts/live_verdicts.py has more programs.
func TestLiveVerdicts(t *testing.T) {
	testclass.Root(t)
	needVerdicts(t)
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	command := exec.Command(
		"python3",
		"-B",
		"../../scripts/live_verdicts.py",
		"--gpurec",
		gpurec,
		"--folder",
		t.TempDir(),
		"--seconds",
		"20",
		"--at",
		"5",
		"--jobs",
		"6",
		"--slow",
		"2",
		"--programs",
		"leak,stuck-kernel,double-free,checkpoints,long-waits,expected-errors",
	)
	command.Stderr = os.Stderr
	table, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	t.Logf("%s", table)
}
