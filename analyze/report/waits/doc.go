// Package waits reports CUDA calls in which a thread waits for the GPU (gpurec analyze sync).
package waits
