package activity

// Driver 580 puts short copies from the host into the queue of their stream. On an H100, these are copies of
// pageable memory up to 64 KiB, and of pinned memory up to 4 KiB. Between 8 and 24 KiB of pinned memory, it does so
// for some copies. All other copies between host and device run on copy engines. docs/benchmarks/gpu-times.md has
// the measurement.
const (
	// Copies up to onStreamBytes always run on the channel of their stream.
	onStreamBytes = 4 << 10
	// Copies above anyPlaceBytes always run on a copy engine.
	anyPlaceBytes = 64 << 10
)

// placeOf returns the channel of a copy to the device of a number of bytes; 0: the number is unknown.
func placeOf(bytes int64) Place {
	switch {
	case bytes > anyPlaceBytes:
		return OnEngine
	case bytes > onStreamBytes || bytes <= 0:
		return AnyPlace
	}
	return OnStream
}

// The progress word of a copy engine's channel belongs to the end of a copy. On an H200, the word comes
// 0.3 to 1.5 µs after the end that CUPTI reports. A copy engine runs one copy at a time.

// lateNs bounds how long after the end of an operation its progress word comes.
func (c *channelState) lateNs() int64 {
	if c.showsEnds {
		return copyLateNs
	}
	return 0
}

// setEndOfCopy sets the end of a copy, and bounds its start.
func (c *channelState) setEndOfCopy(w *Operation, word Interval, quality Quality) {
	w.End = Interval{max(w.Call.StartNs, word.LoNs-copyLateNs), word.HiNs}
	w.EndQuality = quality
	w.Start, w.StartQuality = Interval{w.Call.StartNs, w.End.HiNs}, min(quality, Bounded)
	w.engineFreeNs = UnknownNs
	if w.Number == 0 {
		return
	}
	if before, _ := c.moments.beginOf(w.Number - 1); before.HiNs < w.End.HiNs {
		w.beginAfter(before.LoNs - copyLateNs)
		w.engineIdle, w.engineFreeNs = before.HiNs <= w.Call.StartNs, before.HiNs
	}
}

// beginAfter raises the lower bound of a copy's start.
func (w *Operation) beginAfter(ns int64) { w.Start.LoNs = min(max(w.Start.LoNs, ns), w.Start.HiNs) }

// finishCopy sets the bounds of a copy that follow from other operations. next is a later operation of the stream;
// nil: there is none.
func (w *chainOperation) finishCopy(next *chainOperation) {
	if w.EndQuality == Unknown {
		return
	}
	w.End.HiNs = min(w.End.HiNs, w.doneNs)
	if next != nil && next.isAfter(&w.Operation, w.channel) {
		w.End.HiNs = min(w.End.HiNs, next.Start.HiNs)
	}
	w.End.HiNs = max(w.End.HiNs, w.End.LoNs)
	w.Start.HiNs = min(w.Start.HiNs, w.End.HiNs)
	w.Start.LoNs = min(w.Start.LoNs, w.Start.HiNs)
	w.Duration = Interval{0, w.End.HiNs - w.Start.LoNs}
	w.DurationQuality = w.StartQuality
}

// noteCopy notes the time until the end of the copy that follows on the stream, if it certainly waited for
// this operation and nothing else: it was in the queue when this operation began.
func (w *chainOperation) noteCopy(next *chainOperation) {
	if w.StartQuality != Measured || next.EndQuality != Measured || !next.isCopy() || !next.followsKnown ||
		next.number != w.number+1 || w.parts > 1 || next.Call.EndNs > w.Start.LoNs || next.engineFreeNs > w.Start.LoNs {
		return
	}
	w.toCopyNs, w.copyLabel = next.EndNs()-w.StartNs(), labelKey{next.Call.Op, next.Call.Label}
}

// copyNs returns the probable duration of a copy that began at once, because its stream and its engine
// were idle at the call. It returns 0 for any other operation.
func (w *Operation) copyNs() int64 {
	if w.EndQuality != Measured || !w.BeginsAtCall() {
		return 0
	}
	return max(1, w.EndNs()-w.StartNs())
}

// BeginsAtCall reports whether a copy begins soon after its call, because its stream and its engine were idle.
func (w *Operation) BeginsAtCall() bool {
	holds := w.Hold != nil && w.Hold.Kind != HoldOrder
	return w.isCopy() && !holds && w.engineIdle && w.streamIdle
}

// isCopy reports whether a copy engine runs the operation.
func (w *Operation) isCopy() bool { return w.Call.runsOnEngine() }

// isCopy reports whether operations of a kind copy between host and device.
func isCopy(op Op) bool { return op == OpCopyToDevice || op == OpCopyToHost }
