// Package cpython reads the Python frames of another process's threads from its memory: CPython 3.11
// to 3.13 without free threading.
//
// Find looks for an interpreter in the process. The offsets of its structures come from the
// interpreter itself since 3.13, else from tables of this package. Distributions change structures, so
// Find checks the offsets before it believes them: each thread state must point back to its
// interpreter, and the thread pointers must be those of the process's threads. Each code object must
// have the type of code objects.
//
// The process controls all memory that is read. Frames, threads and texts are bounded.
package cpython
