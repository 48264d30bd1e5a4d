// Package objects reports how many objects of the CUDA driver each call site created and did not
// destroy, such as events and graphs, and whether their number grows.
package objects
