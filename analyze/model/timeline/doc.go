// Package timeline opens a recording: facts, labels, contexts and devices, and its row groups
// merged by time. A Timeline replays memory calls and allocator events as often as reports need.
// Several goroutines may use one Timeline, each through its own View.
package timeline
