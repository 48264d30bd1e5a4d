//go:build linux

package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// fakeXids is a kernel log and a tracefs in a folder; what is written to the files comes
// out as it would of the real ones.
type fakeXids struct {
	paths       xidPaths
	kmsg, trace *os.File
	instance    string
}

func newFakeXids(t *testing.T) *fakeXids {
	t.Helper()
	dir := t.TempDir()
	f := &fakeXids{paths: xidPaths{kmsg: filepath.Join(dir, "kmsg"), tracefs: []string{filepath.Join(dir, "missing"), dir}}}
	f.instance = filepath.Join(dir, "instances", instanceName(os.Getpid()))
	stale := filepath.Join(dir, "instances", instanceName(1<<22+1)) // no process has such a number
	for _, folder := range []string{filepath.Join(dir, "events/nvidia/nvidia_dev_xid"), filepath.Join(f.instance, "events/nvidia/nvidia_dev_xid"), stale} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"trace_clock", "events/nvidia/nvidia_dev_xid/enable"} {
		if err := os.WriteFile(filepath.Join(f.instance, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) *os.File {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	f.kmsg, f.trace = open(f.paths.kmsg), open(filepath.Join(f.instance, "trace_pipe"))
	return f
}

// awaitRead waits until everything in a pipe has been read.
func awaitRead(t *testing.T, pipe *os.File) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		switch n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ); {
		case err != nil:
			t.Fatal(err)
		case n == 0:
			return
		case time.Now().After(end):
			t.Fatalf("%d bytes of %s were not read", n, pipe.Name())
		}
	}
}

// atMost returns d, or half of the time since the machine was started where that is less:
// nothing is older than the kernel's clock.
func (f *fakeXids) atMost(d time.Duration) time.Duration {
	return min(d, time.Duration(monotonic()/2))
}

// log writes a line into the kernel's log, ago before now.
func (f *fakeXids) log(text string, ago time.Duration) {
	fmt.Fprintf(f.kmsg, "6,1,%d,-;%s\n SUBSYSTEM=pci\n", (monotonic()-ago.Nanoseconds())/1000, text)
}

// traced writes a line into the trace pipe.
func (f *fakeXids) traced(text string) {
	now := monotonic()
	fmt.Fprintf(f.trace, "  prog-7  [000] d..1. %5d.%06d: nvidia_dev_xid: %s\n", now/1e9, now%1e9/1e3, text)
}

func TestXidsAreFollowed(t *testing.T) {
	f := newFakeXids(t)
	c := newClock()
	k, err := openKmsg(f.paths.kmsg, c)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := openXidTrace(f.paths.tracefs, c)
	if err != nil {
		t.Fatal(err)
	}
	if on, _ := os.ReadFile(filepath.Join(f.instance, "events/nvidia/nvidia_dev_xid/enable")); string(on) != "1" {
		t.Errorf("the tracepoint is %q", on)
	}
	if clock, _ := os.ReadFile(filepath.Join(f.instance, "trace_clock")); string(clock) != "mono" {
		t.Errorf("the trace's clock is %q", clock)
	}
	entries, _ := os.ReadDir(filepath.Dir(f.instance))
	if len(entries) != 1 {
		t.Errorf("a stale instance was left: %v", entries)
	}
	age := f.atMost(time.Minute)
	logged := c.now()
	f.log("NVRM: Xid (PCI:0000:00:06): 13, pid=1, name=old, before", age)
	f.log("usb 1-1: new device", age)
	sent := make(chan []format.Row, 16)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		followXids(c, []xidFeed{k, trace}, newXidMerger([]gpuName{{pci: "0000:00:06.0"}}), newRowSender(sent), stop)
		close(ended)
	}()
	rows := make(map[float64]format.Row)
	take := func(n int) {
		t.Helper()
		for len(rows) < n {
			select {
			case some := <-sent:
				for _, r := range some {
					rows[r.Value] = r
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%d of %d Xids", len(rows), n)
			}
		}
	}
	take(1)
	begin := c.now()
	f.traced(`Xid (PCI:0000:00:06.0): 31, channel 0x0a, MMU Fault`)
	// The log's clock is 3 s behind: what matters is when it was read.
	f.log("NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0a, MMU Fault", 3*time.Second)
	take(2)
	f.log("NVRM: Xid (PCI:0000:00:06): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 3*time.Second)
	awaitRead(t, f.kmsg)
	before := c.now()
	close(stop) // what has come is written all the same
	take(3)
	<-ended
	for code, want := range map[float64]string{13: "[kmsg] true", 31: "[tracepoint kmsg] false", 79: "[kmsg] false"} {
		var fact format.XidFact
		if err := json.Unmarshal([]byte(rows[code].Message), &fact); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(fact.Sources, fact.Before); got != want {
			t.Errorf("Xid %v: %s", code, got)
		}
	}
	if at := rows[13].StartNs + age.Nanoseconds(); at < logged-1e6 || at > begin {
		t.Errorf("the Xid from before is %d ms away from when it was logged", (at-logged)/1e6)
	}
	if r := rows[31]; r.StartNs < begin-1e6 || r.StartNs > before || r.Pid != 462 {
		t.Errorf("Xid 31: %+v", r)
	}
	if r := rows[79]; r.StartNs < begin || r.StartNs > before {
		t.Errorf("Xid 79 is %d ms away from when it was logged", (r.StartNs-begin)/1e6)
	}
	if on, _ := os.ReadFile(filepath.Join(f.instance, "events/nvidia/nvidia_dev_xid/enable")); string(on) != "10" && string(on) != "0" {
		t.Errorf("the tracepoint was left %q", on)
	}
}

func TestMissingSourcesOfXidsAreNamed(t *testing.T) {
	dir := t.TempDir()
	if _, err := openKmsg(filepath.Join(dir, "kmsg"), newClock()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("kmsg: %v", err)
	}
	if _, err := openXidTrace([]string{dir}, newClock()); err != errNoTracefs {
		t.Errorf("no tracefs: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := openXidTrace([]string{dir}, newClock()); err == nil || !strings.Contains(err.Error(), "no tracepoint") {
		t.Errorf("no driver: %v", err)
	}
}

func TestXidsAreRecorded(t *testing.T) {
	needKernel(t)
	f := newFakeXids(t)
	f.log("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", f.atMost(time.Hour))
	fmt.Fprintln(f.trace, "  prog-7  [000] d..1.     1.000000: other_event: ")
	p := startSim(t, nil, "storm", "--calls", "100", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.xids = &f.paths
	s := start(t, opt)
	result := runWhile(t, s, func() {
		awaitRead(t, f.trace) // the log is read first: what was there before is read, too
		f.traced(`dev=0000:00:06.0 error_code=31 msg="channel 0x0a, MMU Fault"`)
		f.log("NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0a, MMU Fault", 0)
		p.step()
		p.expect("done")
	})
	p.finish()
	rows := factRows(t, result.Output, format.KindXid)
	if len(rows) != 2 || rows[0].Name != format.NameSXid || rows[0].Value != 20034 || rows[1].Value != 31 || rows[1].Pid != 462 ||
		!strings.Contains(rows[1].Message, `"sources":["tracepoint","kmsg"]`) {
		t.Errorf("%+v", rows)
	}
}
