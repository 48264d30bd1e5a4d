//go:build linux

package record

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
)

// TestReusedPidIsUnwound unwinds a process whose pid belonged to a process that was unwound and has
// exited. The unwinder must have forgotten the first process, or it takes the second one for
// exited.
func TestReusedPidIsUnwound(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	u, err := newUnwinder(newUnwindOptions(privilege.AttachAuto.ResolveForKernel()))
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	defer u.Close()
	first := exec.Command("sleep", "1000")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	pid := first.Process.Pid
	know := func() (missing int) {
		u.Add(pid)
		p := process.Process{Pid: pid}
		maps, err := p.Maps()
		if err != nil {
			t.Fatal(err)
		}
		var code []unwind.Mapping
		for _, m := range maps {
			if m.Executable() && m.Inode != 0 {
				code = append(code, unwind.Mapping{Start: m.Start, End: m.End})
			}
		}
		return u.Sync(pid, code, 30*time.Second, nil) // milliseconds; seconds in an emulator
	}
	if missing := know(); missing != 0 {
		t.Fatalf("%d mappings of the first process have no unwind tables", missing)
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	u.Forget(pid)
	time.Sleep(3 * time.Second)
	second := startWithPid(t, pid)
	defer func() { _ = second.Process.Kill(); _ = second.Wait() }()
	if missing := know(); missing != 0 {
		t.Errorf("%d mappings of the second process have no unwind tables", missing)
	}
}

// startWithPid starts a process with this pid.
func startWithPid(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	for range 200 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(fmt.Sprint(pid-1)), 0); err != nil {
			testclass.Missing(t, "pids cannot be chosen: "+err.Error())
		}
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if cmd.Process.Pid == pid {
			eventually(t, "the process sleeps", func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err == nil && strings.Contains(string(stat), "(sleep) S ")
			})
			return cmd
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	testclass.Missing(t, "other processes took the pid at each attempt")
	return nil
}
