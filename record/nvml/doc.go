// Package nvml samples GPUs through NVML: metrics, facts, processes and Xids. Every GPU has a
// goroutine of its own, because a GPU that fell off the bus does not answer for minutes.
package nvml
