// Package hoststack takes the stacks of all threads of a running process from outside: kernel, native
// and Python frames. It does not stop the process, uses no ptrace, and writes nothing into it.
//
// A Snapshotter takes a snapshot in rounds:
//
//  1. The kernel copies state, registers, kernel stack, switch counts and 16 KiB of user stack of each
//     thread that waits (package snapshot).
//  2. Package remote unwinds the copy. What it lacks is read by process_vm_readv, as are the Python
//     frames (package cpython), which are in the heap.
//  3. The switch counts are read again. A kernel copy is valid if the thread's switch count did not
//     change during it. Later reads are valid if the count did not change during the round. Threads
//     without a valid stack take part in the next round.
//
// Threads that run are interrupted by a CPU-clock event, which copies stack and Python frames. A
// thread that no round catches is reported as missed, with its state.
//
// The kernel's part comes first and never waits for the process. All that reads memory or mappings of
// the process can wait, for example for a page on a dead file server. It runs in a goroutine of its
// own. At the deadline, the snapshot ends with the stacks that were read until then.
package hoststack
