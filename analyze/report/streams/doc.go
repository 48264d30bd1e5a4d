// Package streams reports what each CUDA stream was given to do, and whether work can overlap.
package streams
