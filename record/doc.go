// Package record attaches to CUDA processes, drains what the probes send and writes
// a recording. It writes down facts; conclusions are drawn by package analyze.
//
// It needs Linux and the privileges that CheckPrivileges names, and changes nothing
// in the processes it records: probes are placed by the kernel and go with the
// recorder, however it ends.
package record
