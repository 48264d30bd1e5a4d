// Package interpreter samples GIL and garbage collection of CPython 3.11 to 3.13 from outside: which thread holds
// the GIL, which threads wait for it, whether the collector runs, and how many collections each generation had.
// It reads the state of the main interpreter by process_vm_readv. It writes nothing into the process, places no
// probes, and does not stop it. Package cpython verifies the structures before it uses them.
//
// Each process has one goroutine, since reading another process's memory can block. Missing reports blocked reads.
// The end of a recording waits up to a second for such a read. The goroutine ends with the process.
//
// All values are samples. A pause begins and ends in the middle between two readings, so that the sum of pauses has
// no bias, and each row says how far its ends can be off. Collections between two readings have no row, but the
// counters of CPython count them. Readings come at random times of their intervals, since the GIL changes hands
// every 5 ms in many programs.
//
// A reading costs 3.2 µs of CPU time: one system call for GIL, collector and the thread that held the GIL last. A
// check of a thread that may wait for the GIL costs 2.2 µs, a search for the interpreter 0.4 to 0.9 ms. A wake-up
// costs 35 to 100 µs, far more than a reading. In auto mode, the rate of 200 Hz falls until all of it is below 0.5 %
// of a core: to 35 Hz here. The constant 1,000 Hz of full mode cost 5 % (2026-11-23, a virtual machine with two
// cores; a wake-up without one costs a few µs).
package interpreter
