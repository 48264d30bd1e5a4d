// Package frag reports fragmentation: unused memory in small pieces, maps of address ranges, and
// the unused memory that a request of a given size could use.
package frag
