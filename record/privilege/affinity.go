//go:build linux

package privilege

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// broadcastProcessors is the number of processors on which threads change their capabilities.
const broadcastProcessors = 4

// onProcessors runs do while all threads of this process share n processors. Then it gives all threads the
// affinity that the current one had before. Threads of a broadcast system call wait for each other in a
// loop. With 57 threads on 32 processors this took a CPU second for each call; with 4 processors it took
// 40 ms.
//
// Broadcasts also change the affinity. A thread inherits that of its creator when clone begins, but
// /proc/self/task lists it only when clone ends. So no list of threads shows that the last limited thread
// is found. A broadcast stops each thread outside of clone until all threads have made the system call, and
// later threads inherit the result. It stays cheap: a thread that may use more processors moves later.
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
	syscall.ForkLock.RLock() // a child would keep the few processors
	defer syscall.ForkLock.RUnlock()
	if setAffinity(&few) != nil {
		return do()
	}
	return errors.Join(do(), setAffinity(&all))
}

// setAffinity sets the affinity of all threads of this process.
func setAffinity(set *unix.CPUSet) error {
	_, _, errno := psx.Syscall3(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*set), uintptr(unsafe.Pointer(set)))
	if errno != 0 {
		return fmt.Errorf("set the processors of all threads: %w", errno)
	}
	return nil
}
