//go:build linux

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// simcudaDir returns the folder with the output of `make simcuda`.
func simcudaDir() string {
	dir, err := filepath.Abs("../../build/simcuda")
	if err != nil {
		panic(err) // the working directory is unknown
	}
	return dir
}

// requireSimcuda returns the path of a simcuda program. It skips the test if the program is not
// built, or if attaching by a method is not permitted.
func requireSimcuda(t *testing.T, program string, method privilege.AttachMethod) string {
	t.Helper()
	path := filepath.Join(simcudaDir(), program)
	if _, err := os.Stat(path); err != nil || privilege.CheckAttach(method) != nil {
		testclass.Missing(t, "attaching needs root and simcuda")
	}
	return path
}

// stormCommand returns a command that runs simcuda's storm with two threads. The program appends
// each call to the ledger at once.
func stormCommand(ledger string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(simcudaDir(), "storm"), append([]string{"--threads", "2"}, args...)...)
	cmd.Env = append(
		os.Environ(),
		"LD_LIBRARY_PATH="+simcudaDir(),
		"SIMCUDA_LEDGER="+ledger,
		"SIMCUDA_LEDGER_SYNC=1",
		"SIMCUDA_TIME=off",
		"SIMCUDA_STATE="+filepath.Join(filepath.Dir(ledger), "state"),
	)
	return cmd
}

// startWaitingStorm starts storm at 20,000 calls a second. The program makes its first call when
// the test calls begin, and ends with the test.
func startWaitingStorm(t *testing.T, ledger string) (pid int, begin func()) {
	t.Helper()
	storm := stormCommand(ledger, "--calls", "100000000", "--seed", "4", "--rate", "20000", "--wait")
	stdin, err := storm.StdinPipe()
	must(t, err)
	stdout, err := storm.StdoutPipe()
	must(t, err)
	must(t, storm.Start())
	t.Cleanup(func() { _ = storm.Process.Kill(); _ = storm.Wait() })
	expectLine(t, bufio.NewReader(stdout), "ready")
	return storm.Process.Pid, func() {
		t.Helper()
		_, err := stdin.Write([]byte("x"))
		must(t, err)
	}
}
