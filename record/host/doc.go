// Package host describes the machine: kernel release, CPUs, memory, clocks and GPUs.
package host
