// Package clock converts times of CLOCK_MONOTONIC, which BPF programs use, to Unix time. All times
// are in ns.
package clock
