// Package target keeps the set of recorded processes: it finds those that were asked for, follows
// their children, and probes the libraries that they map, now or later.
//
// One goroutine at a time may call the methods of a Set. Get, All and Mapped are safe for concurrent
// use beside it.
package target
