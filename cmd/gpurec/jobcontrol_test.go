//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestJobControlOfRecorder presses Ctrl-Z while gpurec records and holds a command, and continues the
// job with fg. The shell must see one stop, and the recording must be complete.
func TestJobControlOfRecorder(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	dir, env := simEnvironment(t)
	bash, err := exec.LookPath("bash")
	must(t, err)
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	keyboard, terminal := openTerminal(t)
	shell := exec.Command(bash, "--norc", "--noprofile", "-i")
	shell.Env = append(env, "PS1=", "TERM=dumb", "GPUREC_TEST_HOLD="+dir)
	shell.Stdin, shell.Stdout, shell.Stderr = terminal, terminal, terminal
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, shell.Start())
	terminal.Close()
	defer func() { _ = shell.Process.Kill(); _ = shell.Wait() }()
	lines := make(chan string, 1024)
	go func() {
		for screen := bufio.NewScanner(keyboard); screen.Scan(); {
			lines <- screen.Text()
		}
		close(lines)
	}()
	awaitLine := func(text string) {
		t.Helper()
		for line := range lines {
			if strings.Contains(line, text) && !strings.Contains(line, "echo") {
				return
			}
		}
		t.Fatalf("the shell has ended before it printed %q", text)
	}
	kind := func(text string) {
		t.Helper()
		_, err := keyboard.WriteString(text)
		must(t, err)
	}
	output, sim := filepath.Join(dir, "r.parquet"), filepath.Join(dir, "simcuda")
	kind(
		fmt.Sprintf(
			"%s record --nvml-interval 0 --max-overhead off --keep-returns -o %s -- sh -c 'for i in 1 2 3 4 5 6 7 8; do %s/children fork; done; %s/storm --calls 60000 --rate 10000 --seed 1'; echo \"status $?\"\n",
			gpurec,
			output,
			sim,
			sim,
		),
	)
	waitFor(t, "the command calls CUDA", func() bool {
		info, err := os.Stat(filepath.Join(dir, "ledger.tsv"))
		return err == nil && info.Size() > 0
	})
	kind("\x1a") // Ctrl-Z
	waitFor(t, "gpurec and its command are stopped", func() bool {
		return len(processesOf(dir, "T")) >= 2 && len(processesOf(dir, "R")) == 0
	})
	awaitLine("Stopped")
	kind("fg; echo \"again $?\"\n")
	awaitLine("again 0")
	kind("jobs; echo \"no jobs\"\n")
	for line := range lines {
		if strings.Contains(line, "Stopped") || strings.Contains(line, "Running") {
			t.Errorf("a job is left: %s", line)
		}
		if strings.HasSuffix(line, "no jobs") {
			break
		}
	}
	r, meta := readRecording(t, output)
	if n := r.hasAll(
		t,
		(&victim{ledger: filepath.Join(dir, "ledger.tsv")}).ledgerCalls(t),
	); n < 57_000 ||
		meta.Totals().Lost != 0 {
		t.Errorf("%d calls, counts %+v", n, meta.Totals())
	}
	if meta.Cost.Holds < 8 {
		t.Errorf("%d holds", meta.Cost.Holds)
	}
}
