// Package snapshot takes snapshots of the threads of a process without stopping them: state,
// registers, kernel stack, the top of the user stack, and counts of context switches.
//
// A BPF iterator over tasks reads threads that wait. A thread that waits cannot change its registers
// or its stack. The iterator reads the counts first and last, so that Snapshot.IsConsistent can tell
// whether the thread ran meanwhile. A thread that runs has no valid registers in the kernel; a
// CPU-clock event interrupts it and reads them (Reader.Sample).
//
// Nothing is written into the process, and no thread is stopped. No program uses ptrace.
package snapshot
