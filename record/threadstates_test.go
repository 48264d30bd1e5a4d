//go:build linux

package record

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hoststack"
)

// hangsFile is a program that hangs in the way that its argument names.
const hangsFile = "testdata/hangs.py"

// startHanging starts hangsFile, and waits until its first thread waits. owner is the thread for which it
// waits, 0: none.
func startHanging(t *testing.T, env []string, kind, argument string) (p *simProgram, owner int) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	p = startSim(t, env, python, hangsFile, kind, argument)
	owner, err = strconv.Atoi(p.expect("hangs "))
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine, it may sleep before it hangs. Then it uses a processor later.
	const longEnough = 300 * time.Millisecond
	var since time.Time
	used := ""
	eventually(t, "the program hangs", func() bool {
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", p.pid()))
		stat, serr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		fields := strings.Fields(string(stat)) // the name of the program has no blanks
		if err != nil || serr != nil || len(fields) < 15 || strings.HasPrefix(string(call), "running") ||
			fields[2] != "S" || fields[13] != used {
			used, since = "", time.Now()
			if len(fields) > 13 {
				used = fields[13]
			}
			return false
		}
		return time.Since(since) > longEnough
	})
	return p, owner
}

// lineOf returns the number of the line of hangsFile with a comment.
func lineOf(t *testing.T, comment string) int {
	t.Helper()
	text, err := os.ReadFile(hangsFile)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if strings.HasSuffix(strings.TrimSpace(line), "# "+comment) {
			return n
		}
	}
	t.Fatalf("%s has no line %q", hangsFile, comment)
	return 0
}

// threadStates returns the thread states of a recording, and the sites of their stacks.
func threadStates(t *testing.T, path string) (rows []format.Row, facts []format.WaitFact) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	err = rec.Rows(func(r *format.Row) error {
		var fact format.WaitFact
		if r.Kind != format.KindThreadState {
			return nil
		}
		rows = append(rows, *r)
		err := json.Unmarshal([]byte(r.Message), &fact)
		facts = append(facts, fact)
		return err
	}, format.ClassHost)
	if err != nil {
		t.Fatal(err)
	}
	return rows, facts
}

// hangResult returns the result of the report hang on a recording.
func hangResult(t *testing.T, path string) string {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := analyze.FindReport("hang").Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(r.Facts[0].Value)
}

// needSnapshots skips a test if the machine cannot take snapshots of threads.
func needSnapshots(t *testing.T) {
	t.Helper()
	needKernel(t)
	snapshotter, err := hoststack.Open(nil)
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	snapshotter.Close()
}

// TestReasonsOfHangs records programs that hung before, in known ways.
func TestReasonsOfHangs(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needSnapshots(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	port := strconv.Itoa(server.Addr().(*net.TCPAddr).Port)
	for kind, c := range map[string]struct{ argument, reason, target, owner, text string }{
		"sleep":   {"", format.ReasonSleep, "", "", "sleeps, at in_sleep (hangs.py:"},
		"pipe":    {"", format.ReasonPipe, "pipe", "", "waits for a pipe, at in_pipe"},
		"fifo":    {fifo, format.ReasonPipe, fifo, "", "waits for a pipe: " + fifo},
		"open":    {fifo + "2", format.ReasonPipe, fifo + "2", "", "waits for a pipe: " + fifo},
		"network": {port, format.ReasonNetwork, "127.0.0.1:" + port, "", "waits for the network: 127.0.0.1:" + port},
		"poll":    {"", format.ReasonPoll, "pipe", "", "waits for one of several descriptors"},
		"child":   {"", format.ReasonChild, "", "cat", `waits for the end of process`},
		"queue":   {"", format.ReasonCondition, "", "", "waits for a condition"},
		"lock":    {"", format.ReasonLock, "", "python3", "waits for a lock, held by thread"},
		"gil":     {"", format.ReasonGIL, "", "python3", "waits for the GIL, held by thread"},
		"import":  {t.TempDir(), format.ReasonImportLock, "", "python3", "waits for the import of a module in thread"},
	} {
		t.Run(kind, func(t *testing.T) {
			if kind == "open" {
				if err := unix.Mkfifo(c.argument, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p, owner := startHanging(t, nil, kind, c.argument)
			s := start(t, testOptions(t, p.pid()))
			result := runWhile(t, s, func() {})
			rows, facts := threadStates(t, result.Output)
			found := false
			for i, r := range rows {
				if int(r.Tid) != p.pid() {
					continue
				}
				found = true
				fact := facts[i]
				line := fmt.Sprintf("hangs.py:%d)", lineOf(t, "hang: "+kind))
				if fact.Reason != c.reason || fact.Target != c.target || fact.When != format.WhenEnd ||
					!strings.HasSuffix(r.Site, line) {
					t.Errorf("%+v at %s, not at %s", fact, r.Site, line)
				}
				if owner != 0 && int(fact.OwnerTid) != owner || !strings.HasPrefix(fact.Owner, c.owner) ||
					(c.owner == "") != (fact.Owner == "") {
					t.Errorf("the owner is %d %q, not %d", fact.OwnerTid, fact.Owner, owner)
				}
			}
			if text := hangResult(t, result.Output); !found || !strings.Contains(text, c.text) {
				t.Errorf("%v: %s", found, text)
			}
		})
	}
}

// TestSnapshotsDoNotEndWaits checks that a recording does not change the result of a call that waits.
func TestSnapshotsDoNotEndWaits(t *testing.T) {
	testclass.Root(t)
	needSnapshots(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := startHanging(t, nil, "fifo", fifo)
	s := start(t, testOptions(t, p.pid()))
	runWhile(t, s, func() {})
	if err := os.WriteFile(fifo, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.expect("read "); got != "hello" {
		t.Errorf("the program read %q", got)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestSilenceHasASnapshot checks the snapshot of a process that hangs when the recording begins.
func TestSilenceHasASnapshot(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needSnapshots(t)
	p, _ := startHanging(t, nil, "sleep", "")
	s := start(t, testOptions(t, p.pid()))
	result := runWhile(t, s, func() {
		eventually(t, "a snapshot", func() bool { return s.threadStates.Cost().Snapshots > 0 })
		cost := s.threadStates.Cost()
		t.Logf("the first snapshot: %d threads in %v", cost.Threads, cost.Took)
	})
	when := make(map[string]int)
	rows, facts := threadStates(t, result.Output)
	for i := range facts {
		if int(rows[i].Tid) == p.pid() {
			when[facts[i].When]++
		}
	}
	if when[format.WhenSilence] != 1 || when[format.WhenEnd] != 1 || result.Meta.HostRows == nil ||
		result.Meta.HostRows.Recorded != int64(len(rows)) || result.Meta.HostRows.Lost != 0 {
		t.Errorf("snapshots %v, rows %+v", when, result.Meta.HostRows)
	}
}

// TestNoStacksNoSnapshots checks that --stacks off leaves out the snapshots.
func TestNoStacksNoSnapshots(t *testing.T) {
	testclass.Root(t)
	needSnapshots(t)
	p, _ := startHanging(t, nil, "sleep", "")
	opt := testOptions(t, p.pid())
	opt.Stacks = "off"
	result := runWhile(t, start(t, opt), func() {})
	if rows, _ := threadStates(t, result.Output); len(rows) != 0 {
		t.Errorf("%d thread states", len(rows))
	}
}

// TestRankThatDiffers records three ranks. The second one does something else than the others.
func TestRankThatDiffers(t *testing.T) {
	testclass.Root(t)
	needSnapshots(t)
	first, _ := startHanging(t, []string{"RANK=0", "WORLD_SIZE=2"}, "pipe", "")
	second, _ := startHanging(t, []string{"RANK=1", "WORLD_SIZE=2"}, "sleep", "")
	third, _ := startHanging(t, []string{"RANK=2", "WORLD_SIZE=3"}, "pipe", "")
	s := start(t, testOptions(t, first.pid(), second.pid(), third.pid()))
	begin := time.Now()
	result := runWhile(t, s, func() {})
	t.Logf("recording and end took %v", time.Since(begin))
	rec, err := format.Open(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := analyze.FindReport("hang").Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lookAt := ""
	for _, f := range r.Facts {
		if f.Key == "look_at" {
			lookAt = fmt.Sprint(f.Value)
		}
	}
	want := fmt.Sprintf("%d python3 rank 1: sleeps, at in_sleep (hangs.py:%d);", second.pid(), lineOf(t, "hang: sleep"))
	if !strings.HasPrefix(lookAt, want) {
		t.Errorf("look at %q, not %q", lookAt, want)
	}
}
