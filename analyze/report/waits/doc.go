// Package waits reports calls in which the CPU waited for the GPU.
package waits
