//go:build linux && amd64

package hoststack

import (
	"context"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// TestStalledMemory checks that a look ends at its deadline if a read of the process's memory never
// does. Such a look has the kernel's part of all threads.
func TestStalledMemory(t *testing.T) {
	testclass.Root(t)
	l := openLooker(t)
	p := start(t, elftest.Compile(t, "testdata/stall.c", "stall", "-pthread", "-w", "-fno-omit-frame-pointer"))
	if line, err := p.output.ReadString('\n'); err != nil || line != "ready\n" {
		testclass.Missing(t, "userfaultfd does not work: "+line)
	}
	other := start(t, elftest.Compile(t, "testdata/waits.c", "waits", "-pthread", "-w"))
	for range 3 { // the second and the third look find the first one waiting
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		begin := time.Now()
		look, err := l.Look(ctx, p.pid)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the look took %v", took)
		}
		if len(look.Threads) != 2 || len(look.Notes) != 1 || look.Notes[0] != reasonTimeout {
			t.Fatalf("%d threads, notes %q", len(look.Threads), look.Notes)
		}
		th := look.Threads[1]
		if th.Name != "stalls" || th.Status != StatusMissed || th.Reason != reasonTimeout ||
			th.SystemCall != "clock_nanosleep" {
			t.Errorf("%+v", th)
		}
	}
	// Other processes are not affected.
	other.waitForThreads(t, 1, 0)
	look, err := l.Look(context.Background(), other.pid)
	if err != nil || look.Count(StatusComplete) != 1 {
		t.Errorf("%+v, %v", look, err)
	}
}
