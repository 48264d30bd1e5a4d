//go:build linux

package hostmetric

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
)

// rowSink keeps all rows.
type rowSink struct {
	mu   sync.Mutex
	rows []format.Row
}

func (s *rowSink) SendHost(rows []format.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = append(s.rows, rows...)
}

// all returns the rows of a metric.
func (s *rowSink) all(pid int, name string) (found []format.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rows {
		if r.Kind == format.KindHost && r.Name == name && int(r.Pid) == pid {
			found = append(found, r)
		}
	}
	return found
}

// growth returns by how much a metric has grown.
func (s *rowSink) growth(t *testing.T, pid int, name string) float64 {
	t.Helper()
	of := s.all(pid, name)
	if len(of) == 0 {
		return 0
	}
	for i := range of[1:] {
		if of[i+1].StartNs < of[i].StartNs || of[i+1].Value < of[i].Value {
			t.Errorf("%s: %v at %d, then %v at %d", name, of[i].Value, of[i].StartNs, of[i+1].Value, of[i+1].StartNs)
		}
	}
	return of[len(of)-1].Value - of[0].Value
}

// record starts a recorder. The returned function ends it.
func record(t *testing.T, pids ...int) (*Recorder, *rowSink, func()) {
	t.Helper()
	return recordMounts(t, "/proc/self/mountinfo", pids...)
}

// recordMounts starts a recorder that finds the mounts in a file.
func recordMounts(t *testing.T, mountInfo string, pids ...int) (*Recorder, *rowSink, func()) {
	t.Helper()
	sink, stop, ended := new(rowSink), make(chan struct{}), make(chan struct{})
	processes := make(map[int]int64)
	for _, pid := range pids {
		processes[pid] = 1
	}
	r := New(Options{Sink: sink, Clock: clock.New(), Processes: func() map[int]int64 { return processes }})
	r.mountInfo = mountInfo
	go func() {
		defer close(ended)
		r.Run(stop)
	}()
	end := sync.OnceFunc(func() {
		close(stop)
		<-ended
	})
	t.Cleanup(end)
	return r, sink, end
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not hold within 30 s")
		}
	}
}

// write writes a file of the kernel.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// limitedCgroups returns a cgroup without a limit below one with 5 % of a core, which a program gets also on a
// busy machine, in a hierarchy that has CPU limits.
func limitedCgroups(t *testing.T) (limited, inner cgroup) {
	t.Helper()
	if os.Geteuid() != 0 {
		testclass.Missing(t, "needs root")
	}
	text, err := readFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range parseMounts(text) {
		name := fmt.Sprintf("gpurec-test-%d", os.Getpid())
		limited = cgroup{path.Join(m.dir, name), path.Join("/", name), m.isV2}
		inner = cgroup{path.Join(limited.dir, "inner"), path.Join(limited.path, "inner"), m.isV2}
		if err := os.MkdirAll(inner.dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() {
			waitFor(t, func() bool { return os.Remove(inner.dir) == nil && os.Remove(limited.dir) == nil })
		})
		_, err := os.Stat(path.Join(limited.dir, "cpu.max"))
		switch {
		case !m.isV2:
			write(t, path.Join(limited.dir, "cpu.cfs_quota_us"), "5000")
		case err == nil:
			write(t, path.Join(limited.dir, "cpu.max"), "5000 100000")
		default:
			continue // the controller is not enabled here
		}
		return limited, inner
	}
	testclass.Missing(t, "no hierarchy of cgroups has CPU limits")
	return limited, inner
}

// startBusy starts a program that computes, in a cgroup, stopped.
func startBusy(t *testing.T, in cgroup) *os.Process {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "busy")
	if out, err := exec.Command("gcc", "-O1", "-o", binary, "testdata/busy.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	command := exec.Command(binary)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	})
	signal(t, command.Process, unix.SIGSTOP)
	write(t, path.Join(in.dir, "cgroup.procs"), strconv.Itoa(command.Process.Pid))
	return command.Process
}

func signal(t *testing.T, p *os.Process, s unix.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// settled returns the counters of a cgroup whose processes are stopped.
func settled(t *testing.T, c cgroup) (now throttling) {
	t.Helper()
	same := 0
	waitFor(t, func() bool {
		text, err := readFile(path.Join(c.dir, "cpu.stat"))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := parseThrottling(text)
		if same++; got != now {
			same = 0
		}
		now = got
		return same == 100
	})
	return now
}

// TestThrottling compares the metrics of a process below a limit with those of the cgroup.
func TestThrottling(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	limited, inner := limitedCgroups(t)
	busy := startBusy(t, inner)
	before := settled(t, limited)
	r, sink, end := record(t, busy.Pid)
	waitFor(t, func() bool { return len(sink.all(busy.Pid, format.HostThrottledNs)) > 0 })
	signal(t, busy, unix.SIGCONT)
	waitFor(t, func() bool {
		all := sink.all(busy.Pid, format.HostThrottledNs)
		return all[len(all)-1].Value-all[0].Value > 1.5e9
	})
	signal(t, busy, unix.SIGSTOP)
	after := settled(t, limited)
	end()
	for _, metric := range []struct {
		name string
		want int64
	}{
		{format.HostPeriods, after.periods - before.periods},
		{format.HostThrottled, after.throttled - before.throttled},
		{format.HostThrottledNs, after.throttledNs - before.throttledNs},
	} {
		if got := sink.growth(t, busy.Pid, metric.name); got != float64(metric.want) || got == 0 {
			t.Errorf("%s is %v, not %d", metric.name, got, metric.want)
		}
	}
	checkThrottleTimes(t, sink.all(busy.Pid, format.HostThrottledNs))
	limit := sink.all(busy.Pid, format.HostCPULimit)
	if len(limit) == 0 || limit[0].Value != 0.05 || limit[0].Message != limited.path {
		t.Errorf("limit %+v", limit)
	}
	t.Logf("cgroup v2: %v; %v in %v", limited.isV2, r.Missing(), r.Cost())
}

// checkThrottleTimes checks that a change of the throttled time lies in a short time between two rows.
func checkThrottleTimes(t *testing.T, all []format.Row) {
	t.Helper()
	changes, exact := 0, 0
	for i := range all[1:] {
		if all[i+1].Value > all[i].Value {
			changes++
			if all[i+1].StartNs-all[i].StartNs < 2*throttleInterval.Nanoseconds() {
				exact++
			}
		}
	}
	t.Logf("%d rows, %d changes, %d of them known to %v", len(all), changes, exact, 2*throttleInterval)
	if changes < 10 || exact < changes/2 {
		t.Errorf("the times of %d of %d changes are known", exact, changes)
	}
}

// TestVersion2 checks metrics of cgroup v2 with files in place of cgroups, and a limit that changes.
func TestVersion2(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	text, err := readFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	of := parseMembership(text)
	if !of.hasV2 {
		testclass.Missing(t, "no cgroup v2")
	}
	root, pid := t.TempDir(), os.Getpid()
	own := path.Join(root, of.v2)
	writeTree(t, own, map[string]string{
		"cpu.max": "150000 100000\n", "cpu.stat": "usage_usec 1\nnr_periods 10\nnr_throttled 3\nthrottled_usec 5000\n",
		"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=70\nfull total=1\n",
	})
	writeTree(t, root, map[string]string{"mountinfo": "41 31 0:38 / " + root + " rw - cgroup2 cgroup2 rw\n"})
	_, sink, end := recordMounts(t, path.Join(root, "mountinfo"), pid)
	waitFor(t, func() bool { return len(sink.all(pid, format.HostMemoryPressure)) > 0 })
	write(t, path.Join(own, "cpu.stat"), "nr_periods 14\nnr_throttled 5\nthrottled_usec 9000\n")
	waitFor(t, func() bool { return sink.growth(t, pid, format.HostThrottledNs) == 4e6 })
	write(t, path.Join(own, "cpu.max"), "50000 100000\n")
	waitFor(t, func() bool {
		all := sink.all(pid, format.HostCPULimit)
		return len(all) > 1 && all[0].Value == 1.5 && all[len(all)-1].Value == 0.5 && all[0].Message == of.v2
	})
	end()
	if periods, n := sink.growth(
		t,
		pid,
		format.HostPeriods,
	), sink.growth(
		t,
		pid,
		format.HostThrottled,
	); periods != 4 ||
		n != 2 {
		t.Errorf("%v periods, %v throttled", periods, n)
	}
	if got := sink.all(pid, format.HostMemoryPressure); got[0].Value != 70000 || got[0].Message != of.v2 {
		t.Errorf("pressure %+v", got)
	}
}

// TestHang checks that a file which hangs does not stop the end, and that nothing is sent after it.
func TestHang(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	fifo := path.Join(t.TempDir(), "mountinfo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, sink, end := recordMounts(t, fifo, os.Getpid())
	begin := time.Now()
	end()
	if took := time.Since(begin); took > 10*time.Second || len(r.Missing()) != 1 {
		t.Errorf("the end took %v, %v", took, r.Missing())
	}
	before := r.Cost()
	write(t, fifo, "") // the file ends
	waitFor(t, func() bool { return r.Cost() > before })
	sink.mu.Lock()
	defer sink.mu.Unlock()
	if len(sink.rows) > 0 {
		t.Errorf("%d rows after the end", len(sink.rows))
	}
}

// TestProcess checks bytes and pressure of a process without a limit.
func TestProcess(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	r, sink, end := record(t, os.Getpid())
	waitFor(t, func() bool { return len(sink.all(os.Getpid(), format.HostWriteBytes)) > 0 })
	file, err := os.Create("written.tmp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	end()
	if got := sink.growth(t, os.Getpid(), format.HostWriteBytes); got < 1<<20 {
		t.Errorf("%v bytes written", got)
	}
	for _, metric := range []string{
		format.HostMachineCPUPressure, format.HostMachineIOPressure, format.HostMachineMemoryPressure,
	} {
		_, err := os.Stat("/proc/pressure")
		if got := sink.all(0, metric); (len(got) == 0) != (err != nil) {
			t.Errorf("%d rows of %s", len(got), metric)
		}
		if err != nil && len(r.Missing()) == 0 {
			t.Error("nothing is missing")
		}
	}
	t.Log(r.Missing())
}

// TestEndedProcess checks that a process which ends is forgotten, and that Run ends.
func TestEndedProcess(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	command := exec.Command("sleep", "100")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	r, sink, end := record(t, command.Process.Pid, 1<<30)
	waitFor(t, func() bool { return len(sink.all(command.Process.Pid, format.HostReadBytes)) > 0 })
	_ = command.Process.Kill()
	_ = command.Wait() // it was killed
	waitFor(t, func() bool { return len(sink.all(0, format.HostMachineCPUPressure)) > 2 })
	end()
	if rows := sink.all(command.Process.Pid, format.HostReadBytes); len(rows) == 0 || len(rows) > 3 {
		t.Errorf("%d rows", len(rows))
	}
	t.Log(r.Cost())
}
