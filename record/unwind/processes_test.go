//go:build linux

package unwind

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
)

// startTest starts an Unwinder with a monitor interval of one millisecond. If that fails, it skips
// the test.
func startTest(t *testing.T) *Unwinder {
	t.Helper()
	u, err := start(Options{AttachType: ebpf.AttachNone, EntrySlot: 20}, intervals{monitor: time.Millisecond})
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	t.Cleanup(u.Close)
	return u
}

// TestProcessesComeAndGo adds and forgets processes while the profiler collects metrics. With -race
// it detects unsynchronized accesses in the profiler.
func TestProcessesComeAndGo(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	u := startTest(t)
	for range 100 {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		u.Add(cmd.Process.Pid)
		missing := u.Sync(cmd.Process.Pid, codeOf(t, cmd.Process.Pid), 30*time.Second, nil)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		u.Forget(cmd.Process.Pid)
		if missing > 0 {
			t.Fatalf("%d mappings of process %d are not known", missing, cmd.Process.Pid)
		}
	}
}

// codeOf returns the mappings of a process that are code.
func codeOf(t *testing.T, pid int) []Mapping {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	maps, err := symbolize.ReadMaps(file)
	if err != nil {
		t.Fatal(err)
	}
	var code []Mapping
	for _, m := range maps {
		if m.Executable() && m.Inode != 0 {
			code = append(code, Mapping{Start: m.Start, End: m.End})
		}
	}
	return code
}
