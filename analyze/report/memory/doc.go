// Package memory reports the holders of memory at a point in time, and compares them with NVML.
package memory
