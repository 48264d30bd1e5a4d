//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/agent"
	"github.com/gpurec/gpurec/analyze/export/findings"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// testAgent runs agents on one state folder, one after the other. They record one program.
type testAgent struct {
	t             *testing.T
	state, config string
	path          string    // of the program
	cmd, program  *exec.Cmd // the agent and the program
}

// newTestAgent starts the program with further variables. It makes calls until the end of the test.
func newTestAgent(t *testing.T, variables ...string) *testAgent {
	t.Helper()
	requireSimcuda(t, "leak", privilege.AttachAuto)
	dir := t.TempDir()
	a := &testAgent{t: t, state: filepath.Join(dir, "state"), config: filepath.Join(dir, "agent.yaml")}
	comm := fmt.Sprintf("ag-%d", os.Getpid()) // other programs of the machine are not recorded
	program := filepath.Join(dir, comm)
	a.path = program
	text, err := os.ReadFile(filepath.Join(simcudaDir(), "leak"))
	must(t, err)
	must(t, os.WriteFile(program, text, 0o700))
	must(t, os.WriteFile(a.config, fmt.Appendf(nil, `
state: %s
ring: {time: 1m, size: 256MiB}
captures: {size: 1GiB, free: 0%%, per_hour: 100000}
record: {comm: %s, stacks: fp, nvml_interval: 0s, segment_interval: 300ms, max_overhead: 0%%}
triggers: {oom: {enabled: false}, manual: {before: 1s, after: 200ms}}
`, a.state, comm), 0o600))
	cmd := exec.Command(program, "--steps", "0", "--step-ms", "5")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simcudaDir(), "SIMCUDA_STATE="+filepath.Join(dir, "simcuda"))
	cmd.Env = append(cmd.Env, variables...)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	a.program = cmd
	return a
}

func (a *testAgent) socket() string { return filepath.Join(a.state, "agent.sock") }

func (a *testAgent) captures() string { return filepath.Join(a.state, "captures") }

// start starts an agent, and waits until it records the program.
func (a *testAgent) start() agent.Status {
	a.t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(a.t, err)
	a.cmd = exec.Command(gpurec, "agent", "--config", a.config)
	if testing.Verbose() {
		a.cmd.Stderr = os.Stderr
	}
	must(a.t, a.cmd.Start())
	cmd := a.cmd
	a.t.Cleanup(func() { _ = cmd.Process.Kill() })
	var status agent.Status
	waitFor(a.t, "the agent records", func() bool {
		status, err = agent.ReadStatus(context.Background(), a.socket())
		return err == nil && status.Calls > 0
	})
	return status
}

// kill kills the agent.
func (a *testAgent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait() // the error is always "signal: killed"
}

// list returns the IDs of captures in a state. Folders without a trigger have no segment yet.
func (a *testAgent) list(states ...string) (ids []string) {
	a.t.Helper()
	root, err := os.OpenRoot(a.captures())
	must(a.t, err)
	defer root.Close()
	all, err := format.ListCaptures(root)
	must(a.t, err)
	for _, c := range all {
		if slices.Contains(states, c.State) && (c.State == format.CaptureSuffix || c.Trigger != nil) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// awaitSealed waits until no capture is in work.
func (a *testAgent) awaitSealed() {
	a.t.Helper()
	waitFor(a.t, "all captures are sealed", func() bool {
		return len(a.list(format.PendingSuffix, format.SealingSuffix)) == 0
	})
}

// TestFaultAgentKilledAtRandomMoments kills the agent with SIGKILL while captures begin, end and are sealed. No capture
// whose folder had a trigger may be lost, and each one is a readable recording. The next agent keeps the ring.
func TestFaultAgentKilledAtRandomMoments(t *testing.T) {
	testclass.Root(t)
	times := faultTimes(t, 5, 50)
	a := newTestAgent(t)
	known := make(map[string]bool)
	reaching := 0
	for range times {
		if s := a.start(); s.EarlierRings > 0 {
			reaching++
		}
		for range 1 + rand.N(3) {
			_, err := agent.SendTrigger(context.Background(), a.socket(), agent.Request{
				After: rand.N(500 * time.Millisecond), Job: fmt.Sprint(rand.N(3)), Reason: "a test",
			})
			must(t, err)
			time.Sleep(rand.N(400 * time.Millisecond))
		}
		a.kill()
		for _, id := range a.list(format.PendingSuffix, format.SealingSuffix, format.CaptureSuffix) {
			known[id] = true
		}
	}
	killed := time.Now()
	status := a.start()
	a.awaitSealed()
	sealed := a.list(format.CaptureSuffix)
	for id := range known {
		if !slices.Contains(sealed, id) {
			t.Errorf("capture %s is lost", id)
		}
	}
	for _, id := range sealed {
		checkSealed(t, filepath.Join(a.captures(), id+format.CaptureSuffix))
	}
	if reaching != times-1 || status.EarlierRings == 0 {
		t.Errorf("%d of %d agents kept an earlier ring, the last one %d", reaching, times-1, status.EarlierRings)
	}
	tr, err := agent.SendTrigger(context.Background(), a.socket(), agent.Request{At: killed, Before: time.Second})
	must(t, err)
	waitFor(t, "the ring of the last agent is captured", func() bool {
		return slices.ContainsFunc(a.list(format.CaptureSuffix), func(id string) bool {
			return strings.HasPrefix(id, tr.ID+"-before")
		})
	})
	must(t, a.cmd.Process.Signal(syscall.SIGTERM))
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	t.Logf("%d kills, %d captures, all sealed", times, len(sealed))
}

// checkSealed checks that a capture is a complete file with rows and findings.
func checkSealed(t *testing.T, path string) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Errorf("torn: %v", err)
		return
	}
	defer rec.Close()
	m := &rec.Meta
	var rows int64
	must(t, rec.Rows(func(*format.Row) error { rows++; return nil }, format.ClassMemory, format.ClassCall))
	total := m.Totals()
	if m.Trigger == nil || m.Trigger.Cut != (m.Complete == format.CompleteRecovered) || total.Recorded != rows {
		t.Errorf("%s: complete %s, trigger %+v, %d rows, counts %+v", path, m.Complete, m.Trigger, rows, total)
	}
	text, err := os.ReadFile(strings.TrimSuffix(path, format.CaptureSuffix) + format.FindingsSuffix)
	if err != nil || !strings.Contains(string(text), `"rule":"`+findings.RuleTrigger+`"`) {
		t.Errorf("%s: findings %.80q, %v", path, text, err)
	}
}

// TestAgentTells runs the verbs that ask an agent.
func TestAgentTells(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	a := newTestAgent(t)
	a.start()
	stdout, stderr, code := runGpurec(t, "trigger", "--socket", a.socket(), "--reason", "by hand", "--job", "train-7")
	id := strings.TrimSpace(stdout)
	if code != 0 || !strings.Contains(id, "-manual-") {
		t.Fatalf("%d: %q, %q", code, stdout, stderr)
	}
	waitFor(t, "the capture is sealed", func() bool { return slices.Contains(a.list(format.CaptureSuffix), id) })
	stdout, _, _ = runGpurec(t, "agent", "status", "--socket", a.socket())
	if !strings.Contains(stdout, "triggers       1 captured") || !strings.Contains(stdout, "by hand") {
		t.Errorf("status:\n%s", stdout)
	}
	if _, stderr, code := runGpurec(
		t,
		"agent",
		"--config",
		a.config,
	); code != 1 ||
		!strings.Contains(stderr, "another agent") {
		t.Errorf("a second agent: %d, %q", code, stderr)
	}
	stdout, _, code = runGpurec(t, "analyze", "summary", filepath.Join(a.captures(), id+format.CaptureSuffix))
	if code != 0 || strings.Contains(stdout, "cut off") {
		t.Errorf("summary: %d\n%s", code, stdout)
	}
	must(t, a.cmd.Process.Signal(syscall.SIGTERM))
	must(t, a.cmd.Wait())
	if _, stderr, code = runGpurec(t, "agent", "status", "--socket", a.socket()); code != 1 ||
		!strings.Contains(stderr, "no agent runs here") {
		t.Errorf("no agent: %d, %q", code, stderr)
	}
}

// configure replaces a part of the configuration.
func (a *testAgent) configure(old, new string) {
	a.t.Helper()
	text, err := os.ReadFile(a.config)
	must(a.t, err)
	if !strings.Contains(string(text), old) {
		a.t.Fatalf("the configuration has no %q", old)
	}
	must(a.t, os.WriteFile(a.config, []byte(strings.Replace(string(text), old, new, 1)), 0o600))
}

// awaitCapture waits until a capture of a kind is sealed, and returns the path of the recording.
func (a *testAgent) awaitCapture(kind string) (path string) {
	a.t.Helper()
	waitFor(a.t, "a capture of "+kind, func() bool {
		for _, id := range a.list(format.CaptureSuffix) {
			if strings.Contains(id, "-"+kind+"-") {
				path = filepath.Join(a.captures(), id+format.CaptureSuffix)
			}
		}
		return path != ""
	})
	a.awaitSealed()
	return path
}

// TestCaptureOfALeakNamesTheLine reads the findings about a program that leaks in cache_activations.
func TestCaptureOfALeakNamesTheLine(t *testing.T) {
	testclass.Root(t)
	a := newTestAgent(t)
	a.configure("triggers: {", "triggers: {leak: {for: 8s, bytes: 4MiB, after: 200ms}, ")
	a.start()
	path := a.awaitCapture("leak")
	text, err := os.ReadFile(strings.TrimSuffix(path, format.CaptureSuffix) + format.FindingsSuffix)
	must(t, err)
	isNamed := false
	for line := range strings.Lines(string(text)) {
		isNamed = isNamed || strings.Contains(line, "growing-site") && strings.Contains(line, "cache_activations")
	}
	if !isNamed || !strings.Contains(string(text), "grew steadily") {
		t.Errorf("findings:\n%s", text)
	}
}

// TestCaptureHasMemoryThatTheRingDropped lets a program run out of memory long after the ring has dropped the allocations
// of its weights.
func TestCaptureHasMemoryThatTheRingDropped(t *testing.T) {
	testclass.Root(t)
	a := newTestAgent(t)
	a.configure("ring: {time: 1m", "ring: {time: 1s")
	a.configure("oom: {enabled: false}", "oom: {before: 500ms, after: 200ms}, exit: {enabled: false}")
	a.start()
	ledger := filepath.Join(t.TempDir(), "ledger")
	cmd := exec.Command(a.path, "--steps", "0", "--step-ms", "5", "--leak-bytes", "0")
	cmd.Env = append(
		os.Environ(),
		"LD_LIBRARY_PATH="+simcudaDir(),
		"SIMCUDA_STATE="+filepath.Join(t.TempDir(), "simcuda"),
		"SIMCUDA_FAIL=cuMemAlloc_v2:2@1500",
		"SIMCUDA_LEDGER="+ledger,
	) // after 740 steps, at least 3.7 s
	must(t, cmd.Start())
	_ = cmd.Wait() // it ends with status 1
	path := a.awaitCapture("oom")
	_, m := readRecording(t, path)
	if m.Ring.DroppedRows["memory"] <= 0 || m.Totals().Lost != 0 {
		t.Fatalf("the ring has dropped nothing, or has lost calls: %+v, %+v", m.Ring, m.Totals())
	}
	for _, report := range []string{"memory", "leaks"} {
		stdout, stderr, code := runGpurec(t, "analyze", report, path, "--pid", fmt.Sprint(cmd.Process.Pid))
		if code != 0 || !strings.Contains(stdout, "load_weights") || !strings.Contains(stdout, "96.0 MiB") {
			t.Errorf("%s: %d %s\n%s", report, code, stderr, stdout)
		}
	}
}
