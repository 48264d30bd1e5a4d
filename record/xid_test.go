//go:build linux

package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

func TestXidsInTheKernelLog(t *testing.T) {
	for _, c := range []struct {
		line string
		want string // pci sxid code pid process text
	}{
		{"NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS",
			"0000:00:06 false 31 462 illegal channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS"},
		{"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			"0000:3b:00 false 79 0  GPU has fallen off the bus."},
		{"NVRM: Xid (PCI:0000:3B:00): 79, pid=1234, GPU has fallen off the bus.", "0000:3B:00 false 79 1234  GPU has fallen off the bus."},
		{`NVRM: Xid (PCI:0000:3b:00): 13, pid="77", name='my prog', Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Illegal Instruction Encoding`,
			"0000:3b:00 false 13 77 my prog Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Illegal Instruction Encoding"},
		{"NVRM: Xid (0000:03:00): 8, Channel 00000013", "0000:03:00 false 8 0  Channel 00000013"},
		{"NVRM: Xid (PCI:0000:07:00 GPU-I:05): 94, pid=7194, name=train, Contained: SM (0x1). RST: No, D-RST: No",
			"0000:07:00 false 94 7194 train GPU-I:05 Contained: SM (0x1). RST: No, D-RST: No"},
		{"NVRM: Xid (PCI:0000:3b:00): 43, pid=9, name=a", "0000:3b:00 false 43 9 a "},
		{"NVRM: Xid (PCI:0000:3b:00): 45", "0000:3b:00 false 45 0  "},
		{"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "0000:05:00.0 true 20034 0  Fatal, Link 30 LTSSM Fault Up"},
		{"nvidia-nvswitch: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 00 egress", "0000:c1:00.0 true 12028 0  Non-fatal, Link 00 egress"},
		{"NVRM: Xid (PCI:0000:3b:00): 99999999999, pid=1", ""},
		{"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95", ""},
		{"NVRM: GPU at PCI:0000:3b:00: GPU-6a5e7b1c", ""},
		{"somebody: NVRM: Xid (PCI:0000:3b:00): 79, made up", ""},
	} {
		s, ok := parseKmsgXid(c.line)
		got := ""
		if ok {
			got = fmt.Sprintf("%s %v %d %d %s %s", s.pci, s.sxid, s.code, s.pid, s.process, s.text)
		}
		if got != c.want {
			t.Errorf("%s\n got %q\nwant %q", c.line, got, c.want)
		}
	}
}

func TestXidsOfTheTracepoint(t *testing.T) {
	for _, c := range []struct {
		line string
		ns   int64
		want string // pci code text
	}{
		{`         illegal-462     [003] d..1.  1234.567890: nvidia_dev_xid: dev=0000:00:06.0 error_code=31 msg="channel 0x0000000a, MMU Fault"`,
			1234567890000, "0000:00:06.0 31 channel 0x0000000a, MMU Fault"},
		{`   irq/44-nvidia-181     [000] .....    27.210862: nvidia_dev_xid: Xid (PCI:0000:00:06.0): 31, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS`,
			27210862000, "0000:00:06.0 31 channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS"},
		{`  a 7.000001: b-462     [003] d..1.  12.000007: nvidia_dev_xid: dev=0000:00:06.0 error_code=79 msg=GPU has fallen off the bus.`,
			12000007000, "0000:00:06.0 79 GPU has fallen off the bus."},
		{`CPU:3 [LOST 12 EVENTS]`, 0, ""},
		{`  x-1 [000] ..... 1.000000: other_event: dev=0000:00:06.0 error_code=31 msg="x"`, 0, ""},
	} {
		s, ns, ok := parseTraceXid(c.line)
		got := ""
		if ok {
			got = fmt.Sprintf("%s %d %s", s.pci, s.code, s.text)
		}
		if got != c.want || ns != c.ns {
			t.Errorf("%s\n got %d %q\nwant %d %q", c.line, ns, got, c.ns, c.want)
		}
	}
}

func TestKernelLogRecords(t *testing.T) {
	got := parseKmsg("6,339,5140900,-;NVRM: one; two\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:06.0\n4,340,5140901,c;next\nrubbish\n6,1,x,-;no time\n")
	want := []kmsgRecord{{5140900000, "NVRM: one; two"}, {5140901000, "next"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestXidProgramIsAccepted loads the program for the tracepoint, which exists only where
// the driver is.
func TestXidProgramIsAccepted(t *testing.T) {
	needKernel(t)
	x, err := openXidRaw(newClock())
	if err == nil {
		x.close()
		return
	}
	if strings.Contains(err.Error(), "pci_dev") {
		skip(t, "this kernel has no PCI: "+err.Error())
	}
	if !errors.Is(err, os.ErrNotExist) { // of the tracepoint, after the program was accepted
		t.Errorf("%v", err)
	}
}

func TestXidOfTheProgram(t *testing.T) {
	raw := make([]byte, rawXidSize)
	binary.NativeEndian.PutUint64(raw, 12345)
	binary.NativeEndian.PutUint64(raw[8:], 31)
	copy(raw[rawXidDevice:], "0000:00:06.0\x00rubbish")
	copy(raw[rawXidText:], "channel 0x0a\x00rubbish")
	s, ns, ok := decodeRawXid(raw)
	if want := (sighting{source: sourceTracepoint, pci: "0000:00:06.0", code: 31, text: "channel 0x0a"}); !ok || ns != 12345 || s != want {
		t.Errorf("%+v at %d", s, ns)
	}
	if _, _, ok := decodeRawXid(raw[:100]); ok {
		t.Error("a record that was cut off is taken")
	}
}

func FuzzXidText(f *testing.F) {
	f.Add("6,339,5140900,-;NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel\n SUBSYSTEM=pci")
	f.Add(`  a-1 [000] d..1. 1.000000: nvidia_dev_xid: dev=0000:00:06.0 error_code=31 msg="x"`)
	f.Add("4,1,1,-;nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30")
	f.Fuzz(func(t *testing.T, raw string) {
		m := newXidMerger(nil)
		for _, r := range parseKmsg(raw) {
			if s, ok := parseKmsgXid(r.text); ok {
				m.add(s, 1)
			}
		}
		for line := range strings.Lines(raw) {
			if s, _, ok := parseTraceXid(line); ok {
				m.add(s, 1)
			}
		}
		for _, row := range m.take(2) {
			var fact format.XidFact
			if err := json.Unmarshal([]byte(row.Message), &fact); err != nil || len(fact.Text) > 2*maxXidText || row.Pid < 0 {
				t.Errorf("%+v: %v", row, err)
			}
		}
	})
}

func TestXidOfSeveralSourcesIsOneRow(t *testing.T) {
	m := newXidMerger([]gpuName{{pci: "0000:00:05.0", index: 0}, {pci: "0000:00:06.0", index: 1}})
	trace := sighting{source: sourceTracepoint, atNs: 10e9, pci: "0000:00:06.0", code: 31, text: "channel 0x0a, fault"}
	kmsg := sighting{source: sourceKmsg, atNs: 10e9 + 3e6, pci: "0000:00:06", code: 31, pid: 462, process: "illegal", text: "channel 0x0a, fault"}
	at := func(s sighting, ns int64) sighting { s.atNs += ns; return s }
	other := kmsg
	other.code = 43
	history := kmsg
	history.before = true
	m.add(kmsg, 1)
	m.add(trace, 1)
	m.add(at(trace, 100e6), 1) // the same code again, 100 ms later
	m.add(at(kmsg, 100e6), 1)
	m.add(other, 1)
	m.add(at(trace, 5e9), 1) // seconds later: nobody else saw it
	m.add(sighting{source: sourceKmsg, pci: "0000:05:00.0", sxid: true, code: 20034, text: "Fatal"}, 2)
	if rows := m.take(1); len(rows) != 0 {
		t.Errorf("too early: %+v", rows)
	}
	m.add(history, 1)
	rows := slices.Concat(m.take(1), m.take(2), m.take(3))
	var got []string
	for _, r := range rows {
		var f format.XidFact
		if err := json.Unmarshal([]byte(r.Message), &f); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %v dev=%d pid=%d %s %dms %s %v before=%v", r.Name, r.Value, r.Device, r.Pid, f.Process, r.StartNs/1e6, f.PCI, f.Sources, f.Before))
	}
	want := []string{
		"xid 31 dev=1 pid=462 illegal 10003ms 0000:00:06 [kmsg] before=true",
		"xid 31 dev=1 pid=462 illegal 10000ms 0000:00:06.0 [tracepoint kmsg] before=false",
		"xid 31 dev=1 pid=462 illegal 10100ms 0000:00:06.0 [tracepoint kmsg] before=false",
		"xid 43 dev=1 pid=462 illegal 10003ms 0000:00:06 [kmsg] before=false",
		"xid 31 dev=1 pid=0  15000ms 0000:00:06.0 [tracepoint] before=false",
		"sxid 20034 dev=-1 pid=0  0ms 0000:05:00.0 [kmsg] before=false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

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
		followXids(c, []xidFeed{k, trace}, newXidMerger([]gpuName{{pci: "0000:00:06.0"}}), &rowSender{rows: sent}, stop)
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
