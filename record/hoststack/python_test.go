//go:build linux && amd64

package hoststack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// interpreters returns the CPythons 3.11 to 3.13 of this machine.
func interpreters(t *testing.T) []string {
	found, _ := filepath.Glob("../../build/python/*/bin/python3") // a fixed pattern
	if home, err := os.UserHomeDir(); err == nil {
		more, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.1[123].*/bin/python3"))
		found = append(found, more...)
	}
	if system, err := exec.LookPath("/usr/bin/python3"); err == nil {
		found = append(found, system)
	}
	var supported []string
	for _, path := range found {
		text, err := exec.Command(path, "-c", "import ctypes, sys; print(sys.version_info[1])").Output()
		if minor, _ := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && minor >= 11 && minor <= 13 {
			supported = append(supported, path)
		}
	}
	if len(supported) == 0 {
		testclass.Missing(t, "no CPython 3.11 to 3.13 is installed")
	}
	return supported
}

// interpreterName returns the folder of an interpreter, which names its version.
func interpreterName(file string) string { return filepath.Base(filepath.Dir(filepath.Dir(file))) }

var (
	faultHandlerThread = regexp.MustCompile(`^(Current thread|Thread) 0x`)
	faultHandlerFrame  = regexp.MustCompile(`^  File "(.*)", line (\d+) in (.*)$`)
)

// readFaultHandler returns the stacks that faulthandler wrote, one text for each thread.
func readFaultHandler(t *testing.T, p *program) []string {
	t.Helper()
	var stacks []string
	for {
		line, err := p.output.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "ready\n" {
			return stacks
		}
		line = strings.TrimSuffix(line, "\n")
		switch frame := faultHandlerFrame.FindStringSubmatch(line); {
		case faultHandlerThread.MatchString(line):
			stacks = append(stacks, "")
		case frame != nil:
			stacks[len(stacks)-1] += fmt.Sprintf("%s %s:%s\n", frame[3], frame[1], frame[2])
		}
	}
}

// pythonStack returns the Python frames of a thread as faulthandler writes them: with the name instead
// of the qualified name, and with escaped characters.
func pythonStack(th *Thread) string {
	var text strings.Builder
	for _, f := range th.Frames {
		if f.Type != "python" {
			continue
		}
		name := f.Func[strings.LastIndexByte(f.Func, '.')+1:]
		for _, r := range name {
			switch {
			case r < 0x80:
				text.WriteRune(r)
			case r < 0x100:
				fmt.Fprintf(&text, `\x%02x`, r)
			default:
				fmt.Fprintf(&text, `\u%04x`, r)
			}
		}
		fmt.Fprintf(&text, " %s:%d\n", f.File, f.Line)
	}
	return text.String()
}

// TestPythonFrames compares Python frames with those that the process itself sees.
func TestPythonFrames(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	for _, interpreter := range interpreters(t) {
		t.Run(interpreterName(interpreter), func(t *testing.T) {
			p := start(t, interpreter, "testdata/waits.py")
			want := readFaultHandler(t, p)
			p.waitForThreads(t, len(want), 0)
			l := takeSnapshot(t, l, p.pid)
			var got []string
			for i := range l.Threads {
				th := &l.Threads[i]
				if th.Status != StatusComplete {
					t.Errorf("thread %d: %s, %s", th.Tid, th.Status, th.Reason)
				}
				got = append(got, pythonStack(th))
			}
			slices.Sort(got)
			slices.Sort(want)
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Errorf("got\n%swant\n%s", got[i], want[i])
				}
			}
			if len(got) != len(want) || len(want) < 15 {
				t.Errorf("%d threads with Python frames, not %d", len(got), len(want))
			}
			t.Logf("%d threads of Python %s in %v", len(got), l.Python, l.Took)
		})
	}
}

// TestMovingPythonThreads checks that no Python stack is torn: the innermost function names the depth.
// It compares the Python frames of threads that run and of threads that wait.
func TestMovingPythonThreads(t *testing.T) {
	testclass.Root(t)
	l := openSnapshotter(t)
	for _, interpreter := range interpreters(t) {
		t.Run(interpreterName(interpreter), func(t *testing.T) {
			p := start(t, interpreter, "testdata/depths.py", "3")
			if _, err := p.output.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			statuses, right, running := make(map[string]int), 0, 0
			for range 100 {
				taken := takeSnapshot(t, l, p.pid)
				for i := range taken.Threads {
					th := &taken.Threads[i]
					statuses[th.Status+" "+th.Reason]++
					depth, ok := checkDepth(t, th)
					if ok && th.Status == StatusComplete && depth > 0 {
						right++
						if th.State == StateRunning {
							running++
						}
					}
				}
			}
			t.Logf("%d right, %d of them running, %v", right, running, statuses)
			if right < 200 || running < 20 || statuses[StatusComplete+" "] < 360 {
				t.Errorf("%d right, %d of them running, %v", right, running, statuses)
			}
		})
	}
}

// checkDepth compares the depth of a stack of depths.py with its innermost function. It returns false
// for stacks that are not in such a function.
func checkDepth(t *testing.T, th *Thread) (depth int, ok bool) {
	t.Helper()
	names := functions(th.Frames, "python")
	if len(names) == 0 {
		return 0, false
	}
	for _, name := range names {
		if name == "deep" {
			depth++
		}
	}
	want, ok := strings.CutPrefix(names[0], "at_")
	if ok && want != strconv.Itoa(depth) {
		t.Errorf("%d frames of deep below %s, thread %s: %v", depth, names[0], th.State, names)
	}
	return depth, ok
}
