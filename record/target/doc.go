// Package target maintains the set of target processes, which are recorded. It finds the requested
// processes, follows their children, and probes the libraries that they map, now or later.
//
// The methods of a Set must be called by one goroutine at a time, except Get, All, Oldest and
// NoteMapped, which are safe for concurrent use.
package target
