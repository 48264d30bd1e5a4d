// Package kernels reports launches of kernels and graphs.
package kernels
