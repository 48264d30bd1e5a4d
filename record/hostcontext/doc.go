// Package hostcontext records what the threads that use CUDA do outside of it: how long they run, wait for
// a processor and sleep, each long wait with its stack, and samples of their stacks while they run.
//
// The sources are:
//
//   - Package switches accounts all time in the kernel, at each context switch, and has the exact begin
//     and end of each wait.
//   - Snapshots take stacks of threads while they wait. The number of switches of the thread joins a
//     snapshot with its wait. A wait without a snapshot gets the stack of another wait of the thread with the same
//     user registers and system call, as inferred.
//   - CPU clocks take stacks of threads that run.
//
// Threads are watched from their first recorded call of CUDA on, within a tenth of a second. The first
// threads of direct children without CUDA are watched, too: they often load data.
//
// No source stops a thread or writes into a process. All that reads memory of a process has a deadline.
package hostcontext
