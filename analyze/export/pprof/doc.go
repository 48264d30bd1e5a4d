// Package pprof builds pprof profiles of memory and of calls from a recording, and writes them as
// folded stacks.
package pprof
