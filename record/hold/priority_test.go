//go:build linux

package hold

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestPriorityIsRaised raises the priority of this process and restores it. It does so without
// capabilities, which a recording drops, if the machine lets root raise RLIMIT_NICE.
func TestPriorityIsRaised(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread without capabilities ends with the test
	own := newPriority()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NICE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur >= 20-raisedNice {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Fatal(err)
		}
	}
	niceNow := func() int {
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		return 20 - raw
	}
	before := niceNow()
	for _, step := range []struct {
		on   bool
		want int
	}{{true, raisedNice}, {false, before}, {true, raisedNice}, {false, before}} {
		if own.raise(step.on); niceNow() != step.want {
			t.Errorf("raise(%v): nice is %d, not %d", step.on, niceNow(), step.want)
		}
	}
}
