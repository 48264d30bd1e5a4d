//go:build linux && amd64

package hoststack

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// maxSnapshotTime is the longest snapshot of 2,000 threads on an idle machine, with reserve for other tests.
const maxSnapshotTime = 2 * time.Second

// TestManyThreads checks the number of stacks of 2,000 threads.
func TestManyThreads(t *testing.T) {
	testclass.Root(t)
	l := openSnapshotter(t)
	p := start(t, elftest.Compile(t, "testdata/waits.c", "waits", "-pthread", "-w"), "2000")
	p.goOn(t)
	p.waitForThreads(t, 2001, 0)
	for range 3 {
		taken := takeSnapshot(t, l, p.pid)
		t.Logf("%d threads in %v", len(taken.Threads), taken.Took)
		if n := taken.Count(StatusComplete); n != 2001 || taken.Took > maxSnapshotTime {
			t.Errorf("%d complete stacks in %v", n, taken.Took)
		}
	}
}

// TestSnapshotsChangeNothing checks that 1,000 snapshots do not change the result of a program that computes,
// sleeps and waits for signals.
func TestSnapshotsChangeNothing(t *testing.T) {
	testclass.Root(t)
	l := openSnapshotter(t)
	elftest.NeedTools(t, "python3")
	const script = `
import hashlib, select, time, os
print("ready", flush=True)
r, w = os.pipe()
h = hashlib.sha256()
for i in range(%d):
    h.update(b"%%d" %% i)
    if i %% 1000 == 0:
        begin = time.monotonic()
        time.sleep(0.001)
        select.select([r], [], [], 0.001)
        assert time.monotonic() - begin >= 0.002
print(h.hexdigest(), flush=True)
input()
`
	run := func() (*program, string) {
		p := start(t, "python3", "-c", fmt.Sprintf(script, 400_000))
		if line, err := p.output.ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatal(line, err)
		}
		return p, ""
	}
	p, _ := run()
	want, err := p.output.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p, _ = run()
	got := make(chan string)
	go func() {
		line, _ := p.output.ReadString('\n') // "" fails the comparison
		got <- line
	}()
	snapshots, isDone := 0, false
	for snapshots < 1000 || !isDone {
		takeSnapshot(t, l, p.pid)
		snapshots++
		select {
		case line := <-got:
			if isDone = true; line != want {
				t.Fatalf("the result is %q, not %q", line, want)
			}
		default:
		}
	}
	t.Logf("%d snapshots", snapshots)
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid)); err != nil ||
		!strings.Contains(string(status), "TracerPid:\t0\n") {
		t.Errorf("the program does not run as before: %v", err)
	}
}
