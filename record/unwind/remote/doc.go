// Package remote unwinds native stacks of another process in user space, from registers and memory
// that the caller has read. It changes nothing in the process.
//
// Tables extracts the rules of unwinding from the .eh_frame sections of ELF files with the code of
// the OpenTelemetry profiler, which the recorder's unwinder in the kernel uses too. Space applies the
// rules: it goes from the innermost frame to the first one. Both bound their work, because the
// process controls its memory and its files.
package remote
