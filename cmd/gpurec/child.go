//go:build linux

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// newChild returns a command that runs gpurec with arguments. It ends with the thread that starts it. Ctrl-C does not
// reach it: a terminal sends it to the group of gpurec, which may need the result of the child first.
func newChild(ctx context.Context, stderr io.Writer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = "gpurec"
	cmd.Stderr = stderr
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// firstLine returns ": " and the first line of the messages of a child process, "" without one. A crash prints many.
func firstLine(messages string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(messages), "\n")
	if line == "" {
		return ""
	}
	return ": " + strings.TrimPrefix(line, "gpurec: error: ")
}
