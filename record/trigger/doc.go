// Package trigger decides when a part of a running recording is kept. It is pure: it gets rows, calls, counts and
// the time, and returns events and decisions. Rows finds events in rows, Hangs in open calls, Losses in counts.
// Policy says which events get a capture.
package trigger
