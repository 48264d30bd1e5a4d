// Package idle computes when a GPU ran nothing, only copies, or only collectives, and why. It sweeps the
// operations of package activity in the order of their probable time, and asks the recorded calls what the
// host did in each gap.
//
// A time that the recording does not determine is an interval: of what is certain and what is possible.
package idle
