// Package gpu reports NVML's samples of each GPU: use, memory, clocks, power, and what limits them.
package gpu
