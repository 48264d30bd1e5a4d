// Package cudaerrors reports failed CUDA calls, asynchronous errors with the launches before them,
// and invalid frees with the call that freed first.
package cudaerrors
