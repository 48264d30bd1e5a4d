//go:build linux

package process

import (
	"os/exec"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestParseStat(t *testing.T) {
	testclass.Unit(t)
	comm, start := parseStat([]byte("42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 12345 20 21"))
	if comm != "a) b (c" || start != 123_450_000_000 {
		t.Errorf("%q %d", comm, start)
	}
	if comm, start := parseStat([]byte("garbage")); comm != "" || start != 0 {
		t.Errorf("%q %d", comm, start)
	}
}

// TestEnvironmentOfNewProcesses reads the environment of processes that call exec. Their file in /proc is empty for a
// moment: in 600 of 1,500 processes if it is read at once.
func TestEnvironmentOfNewProcesses(t *testing.T) {
	testclass.Unit(t)
	for _, want := range []string{"A=1\x00", ""} {
		for range 100 {
			cmd := exec.Command("/bin/sleep", "60")
			cmd.Env = []string{}
			if want != "" {
				cmd.Env = []string{"A=1"}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			p, err := Open(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.ReadEnvironment()
			p.Close()
			if took := time.Since(began); got != want || err != nil {
				t.Fatalf("%q after %v, want %q, error %v", got, took, want, err)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// FuzzStat parses /proc/PID/stat with hostile process names. No input may cause a panic.
func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (a) b) S 7 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4242 1"))
	f.Add([]byte("1 (\x1b]0;) ("))
	f.Fuzz(func(t *testing.T, stat []byte) {
		parseStat(stat)
		parseParentPid(stat)
	})
}

func TestCgroupPaths(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]string{
		"0::/\n": "/", "12:cpu:/a\n0::/user.slice/a b\n": "/user.slice/a b", "4:memory:/docker/x\n": "", "": "",
	} {
		if got, ok := ParseCgroupPath(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v", text, got, ok)
		}
	}
	for path, below := range map[string]bool{"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false} {
		if IsCgroupBelow(path, "a/b/") != below || !IsCgroupBelow(path, "/") {
			t.Errorf("%s", path)
		}
	}
}

func TestKernelComm(t *testing.T) {
	testclass.Unit(t)
	for name, want := range map[string]string{
		"python":            "python",
		"exactly15bytes_":   "exactly15bytes_",
		"torchrun-launcher": "torchrun-launch",
		"":                  "",
	} {
		if got := TruncateComm(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
