// Package graph says what a CUDA graph holds.
package graph
