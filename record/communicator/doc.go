// Package communicator reads communicators of NCCL from the memory of a process: identity, rank, size and the
// library's own counters of collectives. It stops nothing and writes nothing.
package communicator
