// Package operations reports when the GPU was busy, by channel and stream, and how certain its times
// are.
package operations
