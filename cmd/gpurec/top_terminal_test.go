//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// screen is a terminal in which a command runs.
type screen struct {
	t      *testing.T
	dir    string // TMPDIR of the command
	home   string // working directory of the command
	socket string
}

// openScreen runs a shell command in a terminal. It prints "exit" and the exit status after the command.
func openScreen(t *testing.T, width, height int, command string, env ...string) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		testclass.Missing(t, err.Error())
	}
	s := &screen{t, t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "tmux")}
	must(t, os.Chmod(s.dir, 0o777))
	must(t, os.Chmod(filepath.Dir(s.dir), 0o755))
	args := []string{"new-session", "-c", s.home, "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height)}
	for _, variable := range append(env, "TMPDIR="+s.dir) {
		args = append(args, "-e", variable)
	}
	s.tmux(append(args, command+"; echo exit $?; exec sleep 1000")...)
	t.Cleanup(func() { _ = s.command("kill-server").Run() })
	return s
}

func (s *screen) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", s.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	return cmd
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// press sends keys, in the names of tmux.
func (s *screen) press(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

func (s *screen) text() string { return s.tmux("capture-pane", "-p") }

// wait waits until the screen has all texts.
func (s *screen) wait(texts ...string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		last := s.text()
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(last, text) }) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("timeout after %v, waiting for %q on the screen\n%s", patience, texts, last)
		}
	}
}

// waitWithout waits until the screen has not a text.
func (s *screen) waitWithout(text string) {
	s.t.Helper()
	waitFor(s.t, "the screen has no "+text, func() bool { return !strings.Contains(s.text(), text) })
}

// resize changes the size of the terminal, waits for texts, and checks that all lines fit.
func (s *screen) resize(width, height int, texts ...string) {
	s.t.Helper()
	s.tmux("resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height))
	s.wait(texts...)
	lines := strings.Split(strings.TrimSuffix(s.text(), "\n"), "\n")
	if len(lines) != height {
		s.t.Errorf("%d lines, want %d", len(lines), height)
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > width {
			s.t.Errorf("a line of %d characters: %q", n, line)
		}
	}
}

// requireNoFolder checks that top has removed its folder.
func (s *screen) requireNoFolder() {
	s.t.Helper()
	waitFor(s.t, "no folder is left", func() bool { return len(topFoldersIn(s.dir)) == 0 })
}

func topFoldersIn(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, topFolderPrefix+"*")) // fails only for an invalid pattern
	return paths
}

// gpurecPath returns the path of this test binary under the name gpurec.
func gpurecPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("gpurec")
	must(t, err)
	return path
}

// startStorm starts storm with one thread under another name. Tests select it by --comm, so that they record no other
// programs of the machine. It returns its pid.
func startStorm(t *testing.T, name, state string, credential *syscall.Credential) int {
	t.Helper()
	path := filepath.Join(filepath.Dir(state), name)
	if _, err := os.Stat(path); err != nil {
		must(t, copyProgram(filepath.Join(simcudaDir(), "storm"), path))
	}
	storm := exec.Command(path, "--threads", "1", "--calls", "100000000", "--rate", "200")
	storm.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simcudaDir(), "SIMCUDA_STATE="+state)
	storm.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	storm.Stderr = os.Stderr
	must(t, storm.Start())
	t.Cleanup(func() { _ = storm.Process.Kill(); _ = storm.Wait() })
	return storm.Process.Pid
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// simcudaEnv is the environment of gpurec for GPUs of simcuda.
func simcudaEnv(state string) []string {
	return []string{"LD_LIBRARY_PATH=" + simcudaDir(), "SIMCUDA_STATE=" + state}
}

// TestTopInATerminal presses keys in terminals of several sizes, without a GPU.
func TestTopInATerminal(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	pid, begin := startWaitingStorm(t, filepath.Join(t.TempDir(), "ledger.tsv"))
	begin()
	s := openScreen(t, 80, 24, fmt.Sprintf("%s top -p %d", gpurecPath(t), pid))
	s.wait("no GPU: no NVML", "▼LAUNCH/S", " storm", "launches in the last 30 s", "q quit")
	s.press("s")
	s.wait("▼WAIT%")
	s.press("r")
	s.wait("▲WAIT%")
	s.press("S")
	s.wait("▼LAUNCH/S")
	s.press("Enter")
	s.wait("by live memory", "BLOCKS", "LINE")
	s.press("Tab")
	s.wait("by launches")
	s.press("w")
	s.wait("by waiting time")
	s.resize(200, 60, "CALLS/S", "COPY/S")
	s.resize(40, 10, "by waiting")
	s.press("Enter")
	s.resize(80, 24, "launches in the last 30 s", "▼LAUNCH/S")
	s.press("/", "n", "o")
	s.wait("filter by name or pid: no_")
	s.press("Enter")
	s.wait("no process has this name or pid: no")
	s.press("Escape")
	s.wait(fmt.Sprintf(">%7d", pid))
	s.press("?")
	s.wait("keys and columns")
	s.press("End")
	s.wait("K, M, G and T are")
	s.press("Escape")
	s.waitWithout("keys and columns")
	s.press("t")
	s.wait(fmt.Sprintf("threads of %d", pid), fmt.Sprintf("thread %d", pid))
	s.press("Escape")
	s.wait("▼LAUNCH/S")
	s.press("W")
	s.wait("saved ")
	if saved, err := filepath.Glob(filepath.Join(s.home, "*.parquet")); err != nil || len(saved) != 1 {
		t.Errorf("saved %v, %v", saved, err)
	}
	s.press("Space")
	s.wait("frozen")
	s.press("q")
	s.wait("exit 0")
	s.requireNoFolder()
}

// TestTopFollowsProcesses starts and ends processes while top runs.
func TestTopFollowsProcesses(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	state := filepath.Join(t.TempDir(), "state")
	s := openScreen(t, 80, 24, gpurecPath(t)+" top --comm topbegins", simcudaEnv(state)...)
	s.wait("no process uses CUDA yet")
	first := startStorm(t, "topbegins", state, nil)
	s.wait(fmt.Sprint(first), "GPU 0  busy", "1 process ")
	second := startStorm(t, "topbegins", state, nil)
	s.wait(fmt.Sprint(first), fmt.Sprint(second), "2 processes")
	must(t, syscall.Kill(first, syscall.SIGKILL))
	s.wait(fmt.Sprint(first), "(exited)", "1 process ")
	s.waitWithout("(exited)") // verdicts still name the process
	s.wait(fmt.Sprint(second))
	s.press("C-c")
	s.wait("exit 0")
	s.requireNoFolder()
}

// TestTopWithManyProcesses scrolls a table of 60 processes.
func TestTopWithManyProcesses(t *testing.T) {
	testclass.Root(t)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	state := filepath.Join(t.TempDir(), "state")
	last := 0
	for range 60 {
		last = startStorm(t, "topmany", state, nil)
	}
	s := openScreen(t, 80, 24, gpurecPath(t)+" top --comm topmany", simcudaEnv(state)...)
	s.wait("60 processes", " rows 1-", " of 60")
	s.press("S", "S", "S") // by pid
	s.wait("▲PID")
	s.press("End")
	s.wait("-60 of 60", ">"+fmt.Sprintf("%7d", last))
	s.press("PgUp", "PgUp")
	s.waitWithout("-60 of 60")
	s.press("Home")
	s.wait(" rows 1-")
	s.resize(200, 80, "60 processes", fmt.Sprint(last))
	s.waitWithout("rows 1-")
	s.resize(40, 10, "▲PID", " rows 1-")
	s.press("q")
	s.wait("exit 0")
}

// TestTopWithoutRoot runs top as a user without privileges.
func TestTopWithoutRoot(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	if _, err := exec.LookPath("setpriv"); err != nil {
		testclass.Missing(t, err.Error())
	}
	const user = 65534
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	state, program := filepath.Join(dir, "state"), filepath.Join(dir, "gpurec")
	must(t, copyProgram(gpurecPath(t), program))
	if err := exec.Command("setpriv", "--reuid", fmt.Sprint(user), "test", "-x", simcudaDir()).Run(); err != nil {
		testclass.Missing(t, "other users cannot read "+simcudaDir())
	}
	pid := startStorm(t, "topnoroot", state, &syscall.Credential{Uid: user, Gid: user})
	s := openScreen(t, 80, 24, fmt.Sprintf("setpriv --reuid %d --regid %[1]d --clear-groups %s top --comm topnoroot",
		user, program), simcudaEnv(state)...)
	s.wait("CUDA calls are not recorded: ", "sudo gpurec top --comm topnoroot", fmt.Sprint(pid), "topnoroot",
		"GPU 0  busy", "▼USED")
	s.press("s")
	s.wait("▲NAME")
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	s.wait("(exited)")
	s.press("q")
	s.wait("exit 0")
}

// TestTopPrintsText runs top without a terminal, and in one that cannot move its cursor.
func TestTopPrintsText(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	pid, begin := startWaitingStorm(t, filepath.Join(t.TempDir(), "ledger.tsv"))
	begin()
	out, messages, code := runGpurec(t, "top", "-p", fmt.Sprint(pid), "-d", "2s")
	if code != 0 || strings.Contains(out, "\x1b") || !strings.Contains(out, "LAUNCH/S") ||
		!strings.Contains(out, fmt.Sprint(pid)) {
		t.Errorf("exit %d: %s\n%q", code, messages, out)
	}
	out, messages, code = runGpurec(t, "top", "-p", fmt.Sprint(pid), "-d", "3s", "--format", "jsonl")
	lines := 0
	for line := range strings.Lines(out) {
		var p struct {
			Pid    int   `json:"pid"`
			FromNs int64 `json:"from_ns"`
			ToNs   int64 `json:"to_ns"`
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Pid != pid || p.FromNs == 0 || p.ToNs <= p.FromNs {
			t.Errorf("%v: %s", err, line)
		}
		lines++
	}
	if code != 0 || lines == 0 {
		t.Errorf("exit %d: %s\n%s", code, messages, out)
	}
	s := openScreen(t, 160, 24, fmt.Sprintf("TERM=dumb %s top -p %d | head -4", gpurecPath(t), pid))
	s.wait("COPY/S", "exit 0")
	s.requireNoFolder()
	s = openScreen(t, 160, 24, fmt.Sprintf("TERM=dumb %s top -p %d", gpurecPath(t), pid))
	s.wait("COPY/S", fmt.Sprint(pid))
	s.press("C-c")
	s.wait("exit 0")
	s.requireNoFolder()
}

// TestTopEndsWithItsTerminal closes the terminal, and ends top by signals.
func TestTopEndsWithItsTerminal(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	pid, begin := startWaitingStorm(t, filepath.Join(t.TempDir(), "ledger.tsv"))
	begin()
	start := func() (s *screen, top int) {
		s = openScreen(t, 80, 24, fmt.Sprintf("echo $$ >$TMPDIR/pid; exec %s top -p %d", gpurecPath(t), pid))
		s.wait("▼LAUNCH/S", " storm")
		text, err := os.ReadFile(filepath.Join(s.dir, "pid"))
		must(t, err)
		top, err = strconv.Atoi(string(bytes.TrimSpace(text)))
		must(t, err)
		return s, top
	}
	hasEnded := func(pid int) func() bool { return func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH } }
	s, top := start()
	s.tmux("kill-server")
	waitFor(t, "top ends after its terminal", hasEnded(top))
	s.requireNoFolder()
	s, top = start()
	must(t, syscall.Kill(top, syscall.SIGTERM))
	waitFor(t, "top ends by SIGTERM", hasEnded(top))
	s.requireNoFolder()
	s, top = start()
	must(t, syscall.Kill(top, syscall.SIGKILL))
	waitFor(t, "top ends by SIGKILL", hasEnded(top))
	folders := topFoldersIn(s.dir)
	if len(folders) != 1 {
		t.Fatalf("folders %v", folders)
	}
	old := time.Now().Add(-2 * lockedAfter)
	must(t, os.Chtimes(folders[0], old, old))
	cmd := exec.Command(gpurecPath(t), "top", "-p", fmt.Sprint(pid), "-d", "1s")
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.requireNoFolder()
}
