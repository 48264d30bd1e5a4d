// Package api reports where the CPU spends its time in CUDA calls.
package api
