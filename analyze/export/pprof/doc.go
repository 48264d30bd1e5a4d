// Package pprof writes stacks of a recording as a pprof profile or as folded stacks.
package pprof
