//go:build linux

package main

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"
)

// runGpurec runs a command line in a process of its own, in the current folder of the test, and
// returns what it printed and its exit code.
func runGpurec(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary, put there by testscript.Main
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
