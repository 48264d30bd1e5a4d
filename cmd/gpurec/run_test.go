//go:build linux

package main

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"
)

// runGpurec runs a gpurec command line as a separate process in the current folder. It returns the
// text on standard output and standard error, and the exit code.
func runGpurec(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	var out, messages bytes.Buffer
	cmd := exec.Command(gpurec, args...)
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
	}
	return out.String(), messages.String(), cmd.ProcessState.ExitCode()
}
