// Package state holds all live memory and all caching allocators at a moment.
package state
