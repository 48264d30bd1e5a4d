// Package kernels reports launches of CUDA kernels and CUDA graphs.
package kernels
