//go:build linux

package privilege

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// broadcastProcessors is the number of processors on which threads change their capabilities.
const broadcastProcessors = 4

// onProcessors runs do while all threads of this process share n processors, and restores their
// affinities. Threads of a broadcast system call wait for each other in a loop. With 57 threads
// on 32 processors this took a CPU second for each call; with 4 processors it took 40 ms.
func onProcessors(n int, do func() error) error {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || all.Count() <= n {
		return do()
	}
	var few unix.CPUSet
	for cpu := 0; few.Count() < n; cpu++ {
		if all.IsSet(cpu) {
			few.Set(cpu)
		}
	}
	before := make(map[int]unix.CPUSet)
	for _, tid := range listOwnThreads() {
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil && unix.SchedSetaffinity(tid, &few) == nil {
			before[tid] = set
		}
	}
	err := do()
	for _, tid := range listOwnThreads() {
		set, ok := before[tid]
		if !ok {
			set = all // a new thread
		}
		_ = unix.SchedSetaffinity(tid, &set) // the thread may have ended
	}
	return err
}

// listOwnThreads returns the threads of this process.
func listOwnThreads() []int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	tids := make([]int, 0, len(entries))
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}
