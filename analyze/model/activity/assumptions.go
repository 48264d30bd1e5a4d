package activity

import "math"

// Assumptions about the driver and the GPU. A measured or bounded value is wrong only if one of
// them is wrong.
const (
	// transportNs bounds the time from the GPU's time stamp until a reader sees the progress word.
	transportNs = 1000
	// resolutionNs is the step of the GPU's clock, which rounds down.
	resolutionNs = 32
	// gapMaxNs bounds the time from the end of an operation until the next operation of its stream begins, if that
	// one waits in the queue.
	gapMaxNs = 3000
	// handOverMaxNs bounds the time from the end of an operation until the next operation of its stream begins on
	// another channel, if that one waits in the queue. No GPU has measured it.
	handOverMaxNs = 10_000
	// graphGapMaxNs is the same if the next operation is the launch of a graph with several operations. On an
	// H200, it is up to 7 µs.
	graphGapMaxNs = 10_000
	// copyLateNs bounds the time from the end of a copy until the progress word of its channel shows it. On
	// an H200, it is 0.3 to 1.5 µs.
	copyLateNs = 3000
	// queuedNs is longer than the time from the return of a launch until an idle GPU begins the operation. On
	// an H200, it is 1.4 µs (p1), 2.2 µs (median) and 14.7 µs (p99).
	queuedNs = 20_000
	// unseenReturnNs is longer than a launch lasts whose return is not recorded.
	unseenReturnNs = 2_000_000
	// orderedReturnNs is the same for launches that the next launch of the stream overlaps. Threads that
	// share a stream order their launches, so longer launches overlap no other one.
	orderedReturnNs = 200_000
	// maxDriftPPM bounds the drift of the GPU's clock against the clock of the recording.
	maxDriftPPM = 50
)

// Estimates for values that a recording does not determine.
const (
	// gapMeanNs is the mean of that time, and gapErrorNs its standard error in a recording. On an H200,
	// 20 kernels of known durations have means of 0.3 to 1.5 µs. On an H100, the median of a training is 1.4 µs.
	gapMeanNs, gapErrorNs = 1200, 400
	// graphGapMeanNs is the mean of that time if the next operation is the launch of a graph with several operations.
	// A decode with graphs on an H200 has 5 µs. On an H100, 4.6 µs (median) lie between the words of a copy of
	// 1.3 µs and of the graph after it, and 9 µs while CUPTI records. graphGapErrorNs is its standard error.
	graphGapMeanNs, graphGapErrorNs = 5000, 1500
	// copyErrorNs is the standard error of the mean duration of copies: no word shows their start.
	copyErrorNs = 1000
	// idleStartNs is the median time from the return of a launch until an idle GPU begins the operation.
	idleStartNs = 2200
	// shortestNs is about the duration of the shortest kernels.
	shortestNs = 500
	// eventMeanNs and eventErrorNs are the prior of the duration of an event record.
	eventMeanNs, eventErrorNs = 500, 500
)

// Limits of memory.
const (
	maxPendingCalls   = 1 << 18 // unnumbered calls of a channel
	maxPendingSamples = 1 << 18 // samples of a channel between two anchors
	maxIntervals      = 1 << 17 // intervals of the busy time of a channel
	maxEvents         = 1 << 20 // events whose last record is kept
	maxEquations      = 60_000  // equations for durations of a process
	maxLabels         = 768     // labels with an estimated duration
	maxMarks          = 1024    // moments of a channel that wait for its next sample
)

// UnknownNs is the end of a call whose return was not recorded, and any other unbounded time.
const UnknownNs = math.MaxInt64
