// Package switches accounts the time of watched threads by state, at each context switch of the machine.
// A BPF program on the scheduler's tracepoint sums up time on processors, in run queues and in waits,
// and sends a record of each long wait. It needs kernel BTF, but neither tracefs nor kprobes, and it
// neither stops nor changes a thread.
package switches
