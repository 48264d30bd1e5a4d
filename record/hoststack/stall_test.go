//go:build linux && amd64

package hoststack

import (
	"context"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// TestStalledMemory checks that a snapshot ends at its deadline if a read of the process's memory never
// does. Such a snapshot has the kernel's part of all threads.
func TestStalledMemory(t *testing.T) {
	testclass.Root(t)
	l := openSnapshotter(t)
	p := start(t, elftest.Compile(t, "testdata/stall.c", "stall", "-pthread", "-w", "-fno-omit-frame-pointer"))
	if line, err := p.output.ReadString('\n'); err != nil || line != "ready\n" {
		testclass.Missing(t, "userfaultfd does not work: "+line)
	}
	other := start(t, elftest.Compile(t, "testdata/waits.c", "waits", "-pthread", "-w"))
	for range 3 { // the second and the third snapshot find the first one waiting
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		begin := time.Now()
		taken, err := l.Take(ctx, p.pid)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the snapshot took %v", took)
		}
		if len(taken.Threads) != 2 || len(taken.Notes) != 1 || taken.Notes[0] != reasonTimeout {
			t.Fatalf("%d threads, notes %q", len(taken.Threads), taken.Notes)
		}
		th := taken.Threads[1]
		if th.Name != "stalls" || th.Status != StatusMissed || th.Reason != reasonTimeout ||
			th.SystemCall != "clock_nanosleep" {
			t.Errorf("%+v", th)
		}
	}
	// Other processes are not affected.
	other.waitForThreads(t, 1, 0)
	taken, err := l.Take(context.Background(), other.pid)
	if err != nil || taken.Count(StatusComplete) != 1 {
		t.Errorf("%+v, %v", taken, err)
	}
}
