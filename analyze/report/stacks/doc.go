// Package stacks reports the call stacks of CUDA calls, and how complete the stacks are.
package stacks
