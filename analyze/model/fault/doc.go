// Package fault finds asynchronous CUDA errors and the launches before them, and explains why frees
// failed.
package fault
