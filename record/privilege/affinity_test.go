//go:build linux

package privilege

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestAffinityIsRestored checks that all threads, also new ones, may use all processors afterwards.
func TestAffinityIsRestored(t *testing.T) {
	testclass.Lab(t, "lab")
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	inside := 0
	err := onProcessors(1, func() error {
		started, stop := make(chan struct{}), make(chan struct{})
		defer close(stop)
		for range 20 { // these need threads of their own
			go func() {
				fds := []unix.PollFd{}
				started <- struct{}{}
				_, _ = unix.Poll(fds, 50)
				<-stop
			}()
			<-started
		}
		for _, tid := range listOwnThreads() {
			var set unix.CPUSet
			if unix.SchedGetaffinity(tid, &set) == nil && set.Count() == 1 {
				inside++
			}
		}
		return nil
	})
	if err != nil || all.Count() > 1 && inside == 0 {
		t.Errorf("%d threads were limited, %v", inside, err)
	}
	for _, tid := range listOwnThreads() {
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil && set != all {
			t.Errorf("thread %d may use %d processors, not %d", tid, set.Count(), all.Count())
		}
	}
}
