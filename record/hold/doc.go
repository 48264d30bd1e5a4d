// Package hold stops threads of a started command until probes and unwind tables are in place for the
// code that they have loaded. docs/adr/0016-hold-a-started-command.md explains why and how.
//
// A BPF program waits in the kernel, on the dynamic loader's _dl_debug_state and on the functions of
// libcuda that programs call first. The tracer then seizes the thread by ptrace, so that it sleeps.
// If another program traces the thread, the thread stays in the BPF program. No signal is sent. When
// the recorder dies, the kernel detaches the tracer, and the BPF program returns within `patience`.
package hold
