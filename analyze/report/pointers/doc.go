// Package pointers reports errors in the use of memory: frees of wrong pointers, and kernels that got pointers
// into memory that was freed, or that no recorded call allocated.
package pointers
