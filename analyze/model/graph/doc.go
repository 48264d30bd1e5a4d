// Package graph reconstructs the contents of CUDA graphs from the calls that built them.
package graph
