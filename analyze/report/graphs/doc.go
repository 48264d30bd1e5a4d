// Package graphs reports CUDA graphs: where each was captured, what it contains, and what its launches cost.
package graphs
