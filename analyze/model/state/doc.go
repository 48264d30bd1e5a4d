// Package state returns all live memory and all caching allocators of a recording at a point in
// time.
package state
