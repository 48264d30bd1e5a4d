// Package processes lists the recorded processes with their identity (rank, job, container). It
// also adds the rank to rows that name a process.
package processes
