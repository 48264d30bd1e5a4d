// Package memory reports who holds memory at a moment, and compares it with NVML.
package memory
