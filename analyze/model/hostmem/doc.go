// Package hostmem follows pinned, registered and managed memory of the host.
package hostmem
