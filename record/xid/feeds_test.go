//go:build linux

package xid

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/rows"
	"github.com/gpurec/gpurec/record/simtest"
)

func TestXidsAreFollowed(t *testing.T) {
	testclass.Unit(t)
	f := simtest.NewSimulatedXids(t)
	c := clock.New()
	k, err := openKmsg(f.LogPath, c)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := openTracefs(f.TracefsPaths, c)
	if err != nil {
		t.Fatal(err)
	}
	if on, _ := os.ReadFile(filepath.Join(f.InstancePath, "events/nvidia/nvidia_dev_xid/enable")); string(on) != "1" {
		t.Errorf("the tracepoint is %q", on)
	}
	if name, _ := os.ReadFile(filepath.Join(f.InstancePath, "trace_clock")); string(name) != "mono" {
		t.Errorf("the trace's clock is %q", name)
	}
	entries, _ := os.ReadDir(filepath.Dir(f.InstancePath))
	if len(entries) != 1 {
		t.Errorf("a stale instance was left: %v", entries)
	}
	age := f.LimitToUptime(time.Minute)
	logged := c.NowNs()
	f.WriteKernelLog("NVRM: Xid (PCI:0000:00:06): 13, pid=1, name=old, before", age)
	f.WriteKernelLog("usb 1-1: new device", age)
	sent := make(chan []format.Row, 16)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		FollowXids(c, []Feed{k, trace}, NewReportMerger([]host.GPU{{PCI: "0000:00:06.0"}}), rows.NewSender(sent), stop)
		close(ended)
	}()
	byCode := make(map[float64]format.Row)
	take := func(n int) {
		t.Helper()
		for len(byCode) < n {
			select {
			case some := <-sent:
				for _, r := range some {
					byCode[r.Value] = r
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%d of %d Xids", len(byCode), n)
			}
		}
	}
	take(1)
	begin := c.NowNs()
	f.WriteTracePipe(`Xid (PCI:0000:00:06.0): 31, channel 0x0a, MMU Fault`)
	// The log's clock is 3 s late: the time of reading counts.
	f.WriteKernelLog("NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0a, MMU Fault", 3*time.Second)
	take(2)
	f.WriteKernelLog(
		"NVRM: Xid (PCI:0000:00:06): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
		3*time.Second,
	)
	simtest.AwaitPipeRead(t, f.LogFile)
	before := c.NowNs()
	close(stop) // reports before stop are written
	take(3)
	<-ended
	for code, want := range map[float64]string{13: "[kmsg] true", 31: "[tracepoint kmsg] false", 79: "[kmsg] false"} {
		var fact format.XidFact
		if err := json.Unmarshal([]byte(byCode[code].Message), &fact); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(fact.Sources, fact.Before); got != want {
			t.Errorf("Xid %v: %s", code, got)
		}
	}
	if at := byCode[13].StartNs + age.Nanoseconds(); at < logged-1e6 || at > begin {
		t.Errorf("the Xid from before is %d ms away from when it was logged", (at-logged)/1e6)
	}
	if r := byCode[31]; r.StartNs < begin-1e6 || r.StartNs > before || r.Pid != 462 {
		t.Errorf("Xid 31: %+v", r)
	}
	if r := byCode[79]; r.StartNs < begin || r.StartNs > before {
		t.Errorf("Xid 79 is %d ms away from when it was logged", (r.StartNs-begin)/1e6)
	}
	if on, _ := os.ReadFile(
		filepath.Join(f.InstancePath, "events/nvidia/nvidia_dev_xid/enable"),
	); string(on) != "10" &&
		string(on) != "0" {
		t.Errorf("the tracepoint was left %q", on)
	}
}

func TestMissingSourcesOfXidsAreNamed(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	if _, err := openKmsg(
		filepath.Join(dir, "kmsg"),
		clock.New(),
	); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("kmsg: %v", err)
	}
	if _, err := openTracefs([]string{dir}, clock.New()); err != errNoTracefs {
		t.Errorf("no tracefs: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := openTracefs(
		[]string{dir},
		clock.New(),
	); err == nil ||
		!strings.Contains(err.Error(), "no tracepoint") {
		t.Errorf("no driver: %v", err)
	}
}
