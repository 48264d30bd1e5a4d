//go:build linux

package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// Command is a program that gpurec starts to record it. It is stopped before its first instruction
// until Run. It has gpurec's standard streams, and runs as the user who called sudo.
type Command struct {
	cmd     *exec.Cmd
	ready   chan error    // receives nil when the program is stopped at its first instruction
	release chan struct{} // Run closes it: the program continues
	done    chan struct{} // closed when the program has exited
	err     error
}

// StartCommand starts a program, which remains stopped before its first instruction. Pass the
// Command to Options.Command, and call Run after Start. owner is the user to run as.
func StartCommand(args []string, owner format.Owner) (*Command, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	c := &Command{ready: make(chan error, 1), release: make(chan struct{}), done: make(chan struct{})}
	c.cmd = exec.Command(path, args[1:]...)
	c.cmd.Args[0] = args[0]
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if owner.Set {
		groups, err := groupsOf(owner)
		if err != nil {
			return nil, err
		}
		c.cmd.SysProcAttr.Credential = &syscall.Credential{
			Uid:    uint32(owner.UID),
			Gid:    uint32(owner.GID),
			Groups: groups,
		}
	}
	go c.run()
	if err := <-c.ready; err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	return c, nil
}

// run starts the program with ptrace, which stops it after execve, and detaches when Run is called.
// Only the thread that started the program may detach, so run locks its thread.
func (c *Command) run() {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.cmd.Start(); err != nil {
		c.ready <- err
		return
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.Pid(), &status, 0, nil); err != nil || !status.Stopped() {
		c.ready <- errors.Join(errors.New("the program did not stop at its first instruction"), err)
		_ = c.cmd.Process.Kill()
		return
	}
	c.ready <- nil
	<-c.release
	if err := syscall.PtraceDetach(c.Pid()); err != nil {
		c.err = fmt.Errorf("continue the command: %w", err)
		_ = c.cmd.Process.Kill()
	}
	awaitExit(c.Pid())
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.err = errors.Join(c.err, err)
	}
}

// awaitExit waits until a child of gpurec exits. While the child is held, it is traced, and waitid
// also returns when it stops.
func awaitExit(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || info.Code == codeExited || info.Code == codeKilled || info.Code == codeDumped:
			return
		default:
			time.Sleep(stoppedInterval)
		}
	}
}

// Codes of siginfo_t for the exit of a child (siginfo(7)).
const (
	codeExited = 1
	codeKilled = 2
	codeDumped = 3
)

// stoppedInterval is the time after which awaitExit checks a stopped child again.
const stoppedInterval = 5 * time.Millisecond

// Pid returns the process number of the program.
func (c *Command) Pid() int { return c.cmd.Process.Pid }

// Run lets the program continue. It must be called at most once.
func (c *Command) Run() { close(c.release) }

// Wait waits until the program exits or ctx is done. It returns the exit status as a shell does:
// 128 plus the signal's number if a signal killed the program.
func (c *Command) Wait(ctx context.Context) (int, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if c.err != nil || c.cmd.ProcessState == nil {
		return 1, c.err
	}
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return c.cmd.ProcessState.ExitCode(), nil
}

// Signal sends a signal to the program.
func (c *Command) Signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// Kill kills the program, for example after an error before Run.
func (c *Command) Kill() { _ = c.cmd.Process.Kill() }

// groupsOf returns the supplementary groups of a user.
func groupsOf(owner format.Owner) ([]uint32, error) {
	out, err := exec.Command("id", "-G", fmt.Sprint(owner.UID)).Output()
	if err != nil {
		return []uint32{uint32(owner.GID)}, nil
	}
	var groups []uint32
	for _, field := range strings.Fields(string(out)) {
		var g uint32
		if _, err := fmt.Sscan(field, &g); err != nil {
			return nil, fmt.Errorf("read groups of user %d: %w", owner.UID, err)
		}
		groups = append(groups, g)
	}
	return groups, nil
}
