//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestVerdictWhileRecording records a program whose allocations fail, and stops the recording when it prints the verdict.
// The report on the file must have the same one.
func TestVerdictWhileRecording(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	dir := t.TempDir()
	pid, begin := startWaitingStorm(t, filepath.Join(dir, "ledger.tsv"))
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	path := filepath.Join(dir, "r.parquet")
	record := exec.Command(gpurec, "record", "-p", fmt.Sprint(pid), "-o", path)
	stderr, err := record.StderrPipe()
	must(t, err)
	must(t, record.Start())
	t.Cleanup(func() { _ = record.Process.Kill() }) // it has ended, if the test passes
	begin()
	verdicts := 0
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if !strings.Contains(lines.Text(), "verdict: ") {
			continue
		}
		t.Log(lines.Text())
		if strings.Contains(lines.Text(), "out of memory: ") {
			verdicts++
			must(t, record.Process.Signal(os.Interrupt))
		}
	}
	if err := record.Wait(); err != nil || verdicts != 1 {
		t.Fatalf("%d verdicts about memory, %v", verdicts, err)
	}
	out, messages, code := runGpurec(t, "review", path)
	if code != 0 || !strings.Contains(out, `"rule":"out-of-memory"`) {
		t.Errorf("review of the file: exit %d, %s%s", code, out, messages)
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".gpurec") {
			t.Errorf("%s is left", e.Name())
		}
	}
}
