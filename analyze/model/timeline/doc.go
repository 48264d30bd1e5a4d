// Package timeline opens a recording: its facts, labels, contexts and devices, and its row groups
// merged by time. A Timeline replays memory and allocators as often as reports ask. It is not safe
// for concurrent use, except where a method says so.
package timeline
