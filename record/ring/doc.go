// Package ring drains the ring buffer of the BPF programs into chunks of memory.
package ring
