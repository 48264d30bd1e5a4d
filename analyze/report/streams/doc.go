// Package streams reports the work of each CUDA stream, and whether work can overlap.
package streams
