// Package nvml samples GPUs with NVML: metrics, facts, processes and Xids. Each GPU has its own
// goroutine, because NVML calls block for minutes for a GPU that has fallen off the bus.
package nvml
