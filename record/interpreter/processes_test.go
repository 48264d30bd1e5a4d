//go:build linux

package interpreter

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// buildFake builds a program with the structures of CPython 3.12.
func buildFake(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "python3.12")
	out, err := exec.Command("gcc", "-O1", "-rdynamic", "-o", binary, "testdata/fakepython.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// TestHang checks that a reading which never ends is named, and that it stops neither the others nor the end.
func TestHang(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	fake := buildFake(t)
	good, hanging := start(t, fake, "good"), start(t, fake, "hang")
	r := record(t, Options{}, good.pid, hanging.pid)
	hanging.goOn(t)
	if hanging.read(t) != "hangs\n" {
		t.Fatal("userfaultfd does not work")
	}
	waitFor(t, func() bool { return len(r.Missing()) > 0 })
	if missing := r.Missing(); !strings.Contains(missing[0], strconv.Itoa(hanging.pid)) {
		t.Error(missing)
	}
	reads := func() float64 {
		all := r.all(format.KindHost, format.HostInterpreterReads)
		for i := len(all) - 1; i >= 0; i-- {
			if int(all[i].Pid) == good.pid {
				return all[i].Value
			}
		}
		return 0
	}
	before := reads()
	waitFor(t, func() bool { return reads() > before })
	begin := time.Now()
	r.end(t)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
}

// TestOpenPause checks the row of a pause that has not ended.
func TestOpenPause(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	p := start(t, buildFake(t), "good")
	r := record(t, Options{}, p.pid)
	r.end(t)
	rows := r.all(format.KindGC, "")
	if len(rows) != 1 || rows[0].Flags != format.FlagOpen || rows[0].Tid != int32(p.pid) || rows[0].Result != -1 ||
		rows[0].DurNs <= 0 {
		t.Errorf("%+v", rows)
	}
}

// TestGarbage reads structures that change all the time.
func TestGarbage(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	p := start(t, buildFake(t), "garbage")
	r := record(t, Options{IsFull: true, Threads: func() []uint64 { return append(listThreads(p.pid), 1<<40) }}, p.pid)
	p.goOn(t)
	waitFor(t, func() bool { return r.growth(t, p.pid, 0, format.HostInterpreterReads) > 100 })
	r.end(t)
	for _, row := range r.all(format.KindGC, "") {
		if row.DurNs < 0 || row.Result < -1 || row.Result > 2 {
			t.Errorf("%+v", row)
		}
	}
}

// TestContainer checks that threads of another PID namespace have the recorder's numbers.
func TestContainer(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	if os.Geteuid() != 0 {
		testclass.Missing(t, "needs root")
	}
	outer := start(t, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", interpreters(t)[0],
		"testdata/gilturns.py", "2", "3")
	children, err := os.ReadFile("/proc/" + strconv.Itoa(outer.pid) + "/task/" + strconv.Itoa(outer.pid) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	r := record(t, Options{IsFull: true}, pid)
	outer.goOn(t)
	inside := make(map[uint64]int32)
	waitFor(t, func() bool {
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*") // a fixed pattern
		for _, task := range tasks {
			ids := readNamespaceTids(filepath.Join(task, "status"))
			tid, err := strconv.Atoi(filepath.Base(task))
			if err != nil || len(ids) != 2 || int(ids[0]) != tid {
				t.Fatalf("%s: %v, %v", task, ids, err)
			}
			inside[ids[1]] = int32(tid)
		}
		return len(tasks) == 3
	})
	var truth struct{ Turns []collection }
	if err := json.Unmarshal([]byte(outer.read(t)), &truth); err != nil {
		t.Fatal(err)
	}
	r.end(t)
	for i := range truth.Turns {
		tid := inside[uint64(truth.Turns[i].generation)]
		if tid == 0 || int64(tid) == truth.Turns[i].generation {
			t.Fatalf("thread %d is %d outside", truth.Turns[i].generation, tid)
		}
		if r.growth(t, pid, tid, format.HostGILHeld) == 0 { // other tests compare the shares
			t.Fatalf("thread %d, %d outside, never held the GIL", truth.Turns[i].generation, tid)
		}
	}
}

// TestForkAndExec checks a child, the end of a process, and a process that executes another interpreter.
func TestForkAndExec(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	all := interpreters(t)
	storm := []string{"testdata/children.py", all[len(all)-1], "testdata/gcstorm.py", "1000", "2"}
	p := start(t, all[0], storm...)
	var child atomic.Int64
	pids := func() map[int]int64 { return processMap(p.pid, int(child.Load())) }
	pid, err := strconv.Atoi(strings.TrimSpace(p.read(t)))
	if err != nil {
		t.Fatal(err)
	}
	child.Store(int64(pid))
	r := record(t, Options{IsFull: true, Processes: pids}, p.pid)
	waitFor(t, func() bool { return r.growth(t, pid, int32(pid), format.HostGILHeld) > 100 })
	p.goOn(t)
	p.read(t) // ready
	waitFor(t, func() bool {
		_, err := os.Stat("/proc/" + strconv.Itoa(pid))
		return err != nil
	})
	before := len(r.all(format.KindHost, format.HostInterpreterReads))
	waitFor(t, func() bool { return len(r.all(format.KindHost, format.HostInterpreterReads)) > before+2 })
	p.goOn(t)
	var truth struct{ Counts [3]float64 }
	if err := json.Unmarshal([]byte(p.read(t)), &truth); err != nil {
		t.Fatal(err)
	}
	r.end(t)
	if got := r.growth(t, p.pid, 0, format.HostCollections2); got < truth.Counts[2] || got == 0 {
		t.Errorf("%v collections of all generations, not %v", got, truth.Counts[2])
	}
	if missing := r.Missing(); len(missing) > 0 {
		t.Error(missing)
	}
}

// TestLateInterpreter checks that an interpreter is found soon after another program has executed it.
func TestLateInterpreter(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	p := start(t, "sh", "-c", `echo ready; read line; exec "$0" good`, buildFake(t))
	good := start(t, buildFake(t), "good")
	r := record(t, Options{Processes: func() map[int]int64 { return processMap(p.pid, good.pid) }}, good.pid)
	time.Sleep(3 * firstFindInterval) // searches become rare
	p.goOn(t)
	begin := time.Now()
	waitFor(t, func() bool { return r.growth(t, p.pid, 0, format.HostInterpreterReads) > 0 })
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the interpreter was found after %v", took)
	}
}

// TestOtherPrograms checks processes without an interpreter, and PIDs without a process.
func TestOtherPrograms(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	command := exec.Command("sleep", "100")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	}()
	p := start(t, buildFake(t), "good")
	r := record(t, Options{Processes: func() map[int]int64 {
		return processMap(command.Process.Pid, 1<<30, p.pid)
	}}, p.pid)
	r.end(t)
	for _, row := range r.rows {
		if int(row.Pid) != p.pid {
			t.Errorf("%+v", row)
		}
	}
	if missing := r.Missing(); len(missing) > 0 {
		t.Error(missing)
	}
}
