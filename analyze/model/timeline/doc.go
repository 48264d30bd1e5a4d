// Package timeline opens a recording: its facts, labels, contexts and devices, and its row groups
// merged by time. A Timeline replays memory and allocators as often as reports ask; several
// goroutines may use one, each with a View.
package timeline
