// Package works reports when the GPU was busy, by channel and stream, and how its times are known.
package works
