//go:build linux

package simtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

// operationsRun is a run of simcuda's program works.
type operationsRun struct {
	t                 *testing.T
	cmd               *exec.Cmd
	stdin             io.WriteCloser
	stdout            *bufio.Reader
	calls, operations string // paths of the ledgers
}

// startOperations starts the program works with simulated device files, and waits until it is ready.
func startOperations(t *testing.T, channels string, args ...string) *operationsRun {
	t.Helper()
	dir, err := filepath.Abs("../../build/simcuda")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "works")); err != nil {
		testclass.Missing(t, "simcuda is not built: make simcuda")
	}
	if os.Getuid() != 0 {
		testclass.Missing(t, "simulated device files need root")
	}
	folder := t.TempDir()
	r := &operationsRun{t: t, calls: filepath.Join(folder, "calls"), operations: filepath.Join(folder, "works")}
	line := OnDevices(dir, "works", append(args, "--wait")...)
	r.cmd = exec.Command(line[0], line[1:]...)
	r.cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "SIMCUDA_CHANNELS="+channels, "SIMCUDA_LEDGER="+r.calls,
		"SIMCUDA_WORKS="+r.operations, "SIMCUDA_STATE="+filepath.Join(folder, "state"))
	r.cmd.Stderr = os.Stderr
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdout = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	})
	r.expect("ready")
	return r
}

func (r *operationsRun) pid() int { return r.cmd.Process.Pid }

func (r *operationsRun) expect(prefix string) {
	r.t.Helper()
	line, err := r.stdout.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, prefix) {
		r.t.Fatalf("operations printed %q, %v; want %q", line, err, prefix)
	}
}

func (r *operationsRun) step() {
	r.t.Helper()
	if _, err := r.stdin.Write([]byte("x")); err != nil {
		r.t.Fatal(err)
	}
}

// finish lets the program run to its end, and returns its ledger of operations.
func (r *operationsRun) finish() *OperationLedger {
	r.t.Helper()
	r.stdin.Close()
	if err := r.cmd.Wait(); err != nil {
		r.t.Fatal(err)
	}
	return ReadOperationLedger(r.t, r.operations)
}

// mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end uint64
	flags      string
	name       string
}

func mappingsOf(t *testing.T, pid int) []mapping {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var found []mapping
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[5], "/dev/nvidia") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		found = append(found, mapping{start, end, f[1], f[5]})
	}
	return found
}

// readMemory reads memory of a process as a recorder does.
func readMemory(pid int, at uint64, into []byte) error {
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(into)}}, 0)
	if err == nil && n != len(into) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// TestDeviceMappings checks that mappings have the names of the real driver's, that the host has no
// such files, and that nothing stays mounted.
func TestDeviceMappings(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	mounts := func() string {
		data, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	before := mounts()
	r := startOperations(t, "on")
	control, registers, sizes := 0, 0, make(map[uint64]bool)
	for _, m := range mappingsOf(t, r.pid()) {
		word := make([]byte, 16)
		err := readMemory(r.pid(), m.start, word)
		switch {
		case m.flags != "rw-s":
			t.Errorf("mapping %+v has other flags than the driver's", m)
		case m.name == "/dev/nvidiactl" && err == nil:
			control++
			sizes[m.end-m.start] = true
		case m.name == "/dev/nvidia0" && errors.Is(err, unix.EFAULT):
			registers++
		default:
			t.Errorf("mapping %+v: %v", m, err)
		}
	}
	if control < 5 || registers != 1 || len(sizes) < 4 {
		t.Errorf("%d control mappings of %d sizes, %d mappings of registers", control, len(sizes), registers)
	}
	if _, err := os.Stat("/dev/nvidia-uvm"); err == nil {
		t.Log("this machine has a real driver")
	} else if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Error("/dev/nvidiactl is on the host")
	}
	r.finish()
	if after := mounts(); after != before {
		t.Errorf("mounts before:\n%safter:\n%s", before, after)
	}
}

// TestChannelsNeedDevices checks that a program without device files ends with an error.
func TestChannelsNeedDevices(t *testing.T) {
	testclass.Unit(t)
	dir, err := filepath.Abs("../../build/simcuda")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "works")); err != nil {
		testclass.Missing(t, "simcuda is not built: make simcuda")
	}
	cmd := exec.Command(filepath.Join(dir, "works"), "--works", "10")
	cmd.Env = append(os.Environ(), "SIMCUDA_CHANNELS=on")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "devfiles") {
		t.Errorf("%v, output %q", err, out)
	}
}
