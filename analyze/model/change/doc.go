// Package change finds the times at which the measured values of a recording move to another level:
// durations of steps, rates of launches, memory, and the samples of GPUs and of the host.
package change
