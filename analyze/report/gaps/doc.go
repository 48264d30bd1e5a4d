// Package gaps reports when GPUs ran nothing, only copies or only collectives, and why, from GPU times.
// Without GPU times, it reports intervals in which a process launched no work, and the CPU activity in
// them.
package gaps
