// Package gpu reports NVML's samples of each GPU: utilization, memory, clocks, power, and the
// reasons for low clocks.
package gpu
