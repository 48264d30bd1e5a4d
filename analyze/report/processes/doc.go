// Package processes lists the processes of a recording with their identity (rank, job, container),
// and adds the rank to rows that name a process.
package processes
