// Package hostmem tracks pinned, registered and managed host memory over time.
package hostmem
