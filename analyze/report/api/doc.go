// Package api reports the host time that threads spend in CUDA calls, by driver function.
package api
