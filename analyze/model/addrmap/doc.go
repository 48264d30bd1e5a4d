// Package addrmap maps addresses to values. A Map is not safe for concurrent use.
package addrmap
