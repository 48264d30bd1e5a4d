//go:build linux

package interpreter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/hoststack/cpython"
)

const (
	// maxWaiters limits the threads of a process whose states are read. Each costs about 2 µs a reading.
	maxWaiters = 8
	// maxCallBytes limits the text of /proc/PID/task/TID/syscall.
	maxCallBytes = 256
)

// waiters finds the threads that wait for the GIL by the arguments of their system calls. It keeps the
// files open.
type waiters struct {
	files map[int]int // descriptor, by thread
	text  [maxCallBytes]byte
	found []int32
}

// set sets the threads of a process.
func (w *waiters) set(pid int, threads []int) {
	threads = threads[:min(len(threads), maxWaiters)]
	for tid, fd := range w.files {
		if !slices.Contains(threads, tid) {
			unix.Close(fd)
			delete(w.files, tid)
		}
	}
	for _, tid := range threads {
		if _, ok := w.files[tid]; ok {
			continue
		}
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it has ended, or the kernel lacks CONFIG_HAVE_ARCH_TRACEHOOK
		}
		if w.files == nil {
			w.files = make(map[int]int)
		}
		w.files[tid] = fd
	}
}

// find returns the threads that wait for a GIL. The result is valid until the next call.
func (w *waiters) find(gil cpython.GIL) []int32 {
	w.found = w.found[:0]
	for tid, fd := range w.files {
		n, err := unix.Pread(fd, w.text[:], 0)
		if err != nil {
			unix.Close(fd) // the thread has ended
			delete(w.files, tid)
			continue
		}
		if addr, ok := parseFutex(string(w.text[:n])); ok && gil.Contains(addr) {
			w.found = append(w.found, int32(tid))
		}
	}
	return w.found
}

// close closes all files.
func (w *waiters) close() {
	for _, fd := range w.files {
		unix.Close(fd)
	}
	w.files = nil
}

// parseFutex returns the address of a futex call in the text of /proc/PID/task/TID/syscall. ok is false for
// other calls and for running threads.
func parseFutex(text string) (addr uint64, ok bool) {
	number, rest, found := strings.Cut(text, " ")
	if !found || number != futexNumber {
		return 0, false
	}
	first, _, _ := strings.Cut(rest, " ")
	addr, err := strconv.ParseUint(strings.TrimPrefix(first, "0x"), 16, 64)
	return addr, err == nil
}

// futexNumber is the number of the system call futex.
var futexNumber = strconv.Itoa(unix.SYS_FUTEX)
