// Package addrmap has a hash map with memory addresses as keys. A Map is not safe for concurrent
// use.
package addrmap
