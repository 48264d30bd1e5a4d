//go:build linux

package privilege

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestAffinityIsRestored starts and ends threads all the time. After onProcessors, each thread may use all
// processors, whenever it was created. GPUREC_ROUNDS is the number of rounds.
func TestAffinityIsRestored(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	rounds := 100
	if n, err := strconv.Atoi(os.Getenv("GPUREC_ROUNDS")); err == nil {
		rounds = n
	}
	created := int64(0)
	for round := range rounds {
		creators := startCreators(4)
		unlimited := 0
		if err := onProcessors(1, func() error {
			unlimited = countThreads(t, func(set *unix.CPUSet) bool { return set.Count() != 1 })
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		limited := creators.end(&all)
		limited += countThreads(t, func(set *unix.CPUSet) bool { return *set != all })
		if unlimited > 0 || limited > 0 {
			t.Fatalf("round %d: %d threads were not limited, and %d still are", round, unlimited, limited)
		}
		created += creators.created.Load()
	}
	t.Logf("%d rounds with %d new threads", rounds, created)
}

// countThreads returns the number of threads of this process whose affinity matches.
func countThreads(t *testing.T, matches func(*unix.CPUSet) bool) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil && matches(&set) { // an error: the thread has ended
			n++
		}
	}
	return n
}

// creators are goroutines that create threads until end.
type creators struct {
	created atomic.Int64
	ending  chan struct{} // closed by end
	running sync.WaitGroup
	last    []*thread
	mu      sync.Mutex // of last
}

// thread is a goroutine with a thread of its own, which ends with it.
type thread struct {
	end, ended chan struct{}
	set        unix.CPUSet // its affinity at the end
}

// startThread returns when the thread runs.
func startThread() *thread {
	started, t := make(chan struct{}), &thread{end: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		runtime.LockOSThread()
		close(started)
		<-t.end
		_ = unix.SchedGetaffinity(0, &t.set) // it fails for no thread
	}()
	<-started
	return t
}

// stop ends the thread, and returns its affinity.
func (t *thread) stop() *unix.CPUSet {
	close(t.end)
	<-t.ended
	return &t.set
}

// startCreators starts n goroutines. Each has up to 8 threads at a time.
func startCreators(n int) *creators {
	c := &creators{ending: make(chan struct{})}
	for range n {
		c.running.Go(c.create)
	}
	return c
}

func (c *creators) create() {
	var threads []*thread
	for {
		threads = append(threads, startThread())
		c.created.Add(1)
		select {
		case <-c.ending:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.last = append(c.last, threads...)
			return
		default:
		}
		if len(threads) == 8 {
			threads[0].stop()
			threads = threads[1:]
		}
	}
}

// end stops to create threads. It returns the number of living threads whose affinity is not all.
func (c *creators) end(all *unix.CPUSet) (n int) {
	close(c.ending)
	c.running.Wait()
	for _, t := range c.last {
		if *t.stop() != *all {
			n++
		}
	}
	return n
}
