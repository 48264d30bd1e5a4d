// Package rankstate reads what each rank of a job did last: its last operations on each communicator, what is
// known about their ends, what its host does, and whether it died. It gives this to package waitgraph.
package rankstate
