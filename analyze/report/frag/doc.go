// Package frag reports fragmentation: free memory in pieces, maps of address ranges, and whether a
// request would fit.
package frag
