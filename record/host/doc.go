// Package host describes the machine: the kernel's release, CPUs, memory, clocks and GPUs.
package host
