// Package cudaerrors reports failed CUDA calls. It lists asynchronous errors with the launches
// before them, and invalid frees with the call that freed the memory first.
package cudaerrors
