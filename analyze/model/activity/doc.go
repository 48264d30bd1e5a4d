// Package activity computes when the GPU ran the recorded operations. It numbers the operations of each channel
// from the recorded calls, and reads their start times from the samples of the channel's progress word. The
// word of a copy engine's channel shows the ends of copies instead.
//
// Every value is measured, bounded or estimated. A measured or bounded value is an interval that
// contains the true time if the assumptions in assumptions.go hold. Lost calls, unrecorded
// launches and operations without a call widen intervals; they never shift the numbering in silence.
package activity
