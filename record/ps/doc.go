// Package ps lists the processes that use CUDA now.
package ps
