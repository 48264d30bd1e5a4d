// Package hold stops threads of a started program while code that they have just loaded is not
// covered by probes and unwind tables yet.
//
// A BPF program on the dynamic loader's _dl_debug_state waits in the kernel. The tracer then
// seizes the thread by ptrace, so that it sleeps rather than waits busily. Where another program
// traces the thread already, it goes on waiting in the kernel. Neither way sends a signal. When
// the recorder dies, the kernel ends both: ptrace with the tracer's thread, the wait within
// patience.
package hold
