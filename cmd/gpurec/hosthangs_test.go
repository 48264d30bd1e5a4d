//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/simtest"
)

// hangReasons are the faults that never end, by language, with the reason that a snapshot names.
var hangReasons = map[string]map[string]string{
	"c": {
		"sleep": format.ReasonSleep, "mutex": format.ReasonLock, "pipe": format.ReasonPipe, "file": format.ReasonFile,
		"spin": "", "vfork": format.ReasonChild,
	},
	"python": {
		"sleep":  format.ReasonSleep,
		"lock":   format.ReasonCondition,
		"pipe":   format.ReasonPipe,
		"file":   format.ReasonFile,
		"spin":   "",
		"gil":    format.ReasonGIL,
		"import": format.ReasonImportLock,
		"loader": format.ReasonPipe,
		"child":  format.ReasonChild,
	},
}

// quickHangs are the faults of a plain test run.
var quickHangs = []string{"mutex", "vfork", "import", "loader"}

// snapshotLimit is the time for a snapshot of a process that hangs, with the start of gpurec.
const snapshotLimit = 3 * time.Second

// shownThread is a thread in the output of gpurec stacks --format json.
type shownThread struct {
	Tid    int              `json:"tid"`
	State  string           `json:"state"`
	Status string           `json:"status"`
	Reason string           `json:"reason"`
	Wait   *format.WaitFact `json:"wait"`
	Frames []struct {
		Type     string `json:"type"`
		Function string `json:"function"`
		File     string `json:"file"`
		Line     int    `json:"line"`
	} `json:"frames"`
}

// takeSnapshot runs gpurec stacks, and returns a thread of the last snapshot.
func takeSnapshot(t *testing.T, pid, tid int, args ...string) *shownThread {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	out, err := exec.Command(gpurec, append([]string{"stacks", "-p", strconv.Itoa(pid), "--format", "json"}, args...)...).
		Output()
	if err != nil {
		t.Fatalf("gpurec stacks: %v, %s", err, out)
	}
	var snapshot struct {
		Processes []struct {
			Threads []shownThread `json:"threads"`
		} `json:"processes"`
	}
	for snapshots := json.NewDecoder(bytes.NewReader(out)); snapshots.More(); {
		must(t, snapshots.Decode(&snapshot))
	}
	for _, p := range snapshot.Processes {
		for i := range p.Threads {
			if p.Threads[i].Tid == tid {
				return &p.Threads[i]
			}
		}
	}
	t.Fatalf("no thread %d in %s", tid, out)
	return nil
}

// checkPlace checks that a stack is in the function and line of the fault.
func (th *shownThread) checkPlace(t *testing.T, v hostVariant, fault simtest.HostFault) {
	t.Helper()
	if th.Status != "complete" {
		t.Errorf("the stack is %s: %s", th.Status, th.Reason)
	}
	for _, f := range th.Frames {
		if f.Function != fault.Function {
			continue
		}
		// A snapshot has no lines of C, because it does not read debug information.
		if v.language == "python" && (f.Line != fault.Line || f.File != fault.File) {
			t.Errorf("%s is at %s:%d, not at %s:%d", f.Function, f.File, f.Line, fault.File, fault.Line)
		}
		return
	}
	t.Errorf("%s is not on the stack %+v", fault.Function, th.Frames)
}

// checkReason checks why the thread waits, and for whom.
func (th *shownThread) checkReason(t *testing.T, v hostVariant, fault simtest.HostFault) {
	t.Helper()
	want := hangReasons[v.language][fault.Kind]
	if want == "" {
		if th.State != format.StateRunning && th.State != format.StateRunnable {
			t.Errorf("the thread that computes is %s", th.State)
		}
		return
	}
	if th.Wait == nil || th.Wait.Reason != want {
		t.Errorf("the wait is %+v, not %s", th.Wait, want)
		return
	}
	hasOwner := slices.Contains([]string{"mutex", "gil", "import"}, fault.Kind)
	if hasOwner && (int(th.Wait.OwnerTid) != fault.OwnerTid || th.Wait.Owner != fault.Owner) {
		t.Errorf("the owner is %s %d, not %s %d", th.Wait.Owner, th.Wait.OwnerTid, fault.Owner, fault.OwnerTid)
	}
	if fault.Kind == "file" && th.Wait.Target != fault.Target {
		t.Errorf("the file is %q, not %s", th.Wait.Target, fault.Target)
	}
}

// TestHostHangs takes snapshots of programs that hang, with gpurec stacks. Afterwards the delay ends, and the
// program's result must be that of a run without snapshots.
//
// With GPUREC_SEEDS, the programs hang for a minute before the snapshot, and each one is looked at 1,000
// times.
func TestHostHangs(t *testing.T) {
	testclass.Root(t)
	seeds, all := hostSeeds()
	for seed := 1; seed <= min(seeds, 3); seed++ {
		var programs []*hangingProgram
		for language, kinds := range hangReasons {
			for kind := range kinds {
				if !all && !slices.Contains(quickHangs, kind) {
					continue
				}
				v := hostVariant{language: language, kinds: kind, seed: seed, hangs: true, loaded: true}
				p := startHostProgram(t, v)
				tid, err := strconv.Atoi(p.expect("stuck"))
				must(t, err)
				programs = append(programs, &hangingProgram{p, v, tid})
			}
		}
		if all && seed == 1 {
			time.Sleep(time.Minute) // the state that is tested is that of a process that has hung for so long
		}
		for _, p := range programs {
			t.Run(p.variant.String(), func(t *testing.T) {
				p.t = t
				p.check(all)
			})
		}
	}
}

// hangingProgram is a program whose launching thread hangs.
type hangingProgram struct {
	*hostProgram
	variant hostVariant
	tid     int // of the launching thread
}

// check snapshots at the program, and ends its delay.
func (p *hangingProgram) check(often bool) {
	t, truth := p.t, simtest.ReadHostTruth(p.t, p.truth)
	p.waitUntilStuck()
	begin := time.Now()
	th := takeSnapshot(t, truth.Pid, p.tid)
	if took := time.Since(begin); took > snapshotLimit {
		t.Errorf("the snapshot took %v", took)
	}
	fault := truth.Faults[len(truth.Faults)-1]
	th.checkPlace(t, p.variant, fault)
	th.checkReason(t, p.variant, fault)
	if often {
		takeSnapshot(t, truth.Pid, p.tid, "--every", "1ms", "-n", "1000").checkPlace(t, p.variant, fault)
	}
	p.step()
	got := p.expect("done")
	must(t, p.cmd.Wait())
	again := &hangingProgram{startHostProgram(t, p.variant), p.variant, 0}
	again.tid, _ = strconv.Atoi(again.expect("stuck")) // 0 fails
	again.waitUntilStuck()
	again.step()
	if want := again.expect("done"); got != want {
		t.Errorf("the result is %s, not %s", got, want)
	}
}

// waitUntilStuck waits until the launching thread does not run any more. Some wake up again and again, and
// threads that compute never wait.
func (p *hangingProgram) waitUntilStuck() {
	const snapshots = 20
	if slices.Contains([]string{"spin", "gil", "loader"}, p.variant.kinds) {
		return
	}
	var last string
	same := 0
	waitFor(p.t, "the thread hangs", func() bool {
		switches, err := threadSwitches(p.tid)
		must(p.t, err)
		if same++; switches != last {
			same = 0
		}
		last = switches
		return same >= snapshots
	})
}

// threadSwitches returns how often a thread has left its processor.
func threadSwitches(tid int) (string, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return "", err
	}
	var counts []string
	for line := range strings.Lines(string(status)) {
		if strings.Contains(line, "ctxt_switches") {
			counts = append(counts, line)
		}
	}
	return strings.Join(counts, " "), nil
}
