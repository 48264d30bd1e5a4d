package activity

// Interval contains a time, or bounds a length. LoNs and HiNs are inclusive, in ns.
type Interval struct{ LoNs, HiNs int64 }

// WidthNs returns the difference of the bounds.
func (i Interval) WidthNs() int64 { return i.HiNs - i.LoNs }

// MiddleNs returns the middle of the interval.
func (i Interval) MiddleNs() int64 { return i.LoNs + (i.HiNs-i.LoNs)/2 }

// Quality is the certainty of a time.
type Quality uint8

// Kinds of Quality.
const (
	Unknown   Quality = iota // nothing is known
	Estimated                // probably within its interval
	Bounded                  // within its interval
	Measured                 // within its interval, which is as wide as the residual of the clock
)

// Operation is one operation of a channel: a kernel, a graph launch, a copy, a fill or an event record.
type Operation struct {
	Call    Call
	Channel int32
	Stream  int32 // index in Result.Streams
	// Number is the counter of the channel when the operation began, or when the copy ended; 0 if it is not known
	// exactly. A graph launch with several operations has the number of the first one.
	Number int64
	// End, Start and Duration are Unix ns and ns. They are valid unless their quality is Unknown.
	End, Start, Duration                      Interval
	EndQuality, StartQuality, DurationQuality Quality
	// Queued reports that the operation waited in the queue of the channel, and for nothing else.
	Queued bool
	// Mean is the estimated duration of operations with the same label, only in Activity.EachOperation. nil: there
	// is none.
	Mean *Duration
	// handedOver reports that the operation waited in the queue for the operation before it on its stream, which ran
	// on another channel, and for nothing else.
	handedOver bool
	// handOverNs is the time from its start to the start of such an operation; 0: there is none.
	handOverNs int64
	// Hold is the last call that made the stream wait between the operation before and this one; nil: none did.
	Hold   *Hold
	doneNs int64 // a wait shows that the operation was done at this time; UnknownNs: none does
	likely int64 // the lowest number that the operation may have
	// likelyStartNs is the most probable start of an operation that is not measured; 0: unknown.
	likelyStartNs int64
	// toCopyNs is the time from a measured start to the measured end of a copy that waited for this operation, and
	// copyLabel the label of that copy; 0: there is none.
	toCopyNs  int64
	copyLabel labelKey
	// engineIdle and streamIdle report that a copy waited for no copy of its engine, and for no operation of its
	// stream.
	engineIdle, streamIdle bool
	engineFreeNs           int64 // latest end of the copy before this one on its engine, Unix ns; UnknownNs: unknown
	// first and last are the possible positions of the call on the channel.
	first, last int64
}

// StartNs returns the most probable start in Unix ns, within the bounds. The tightest samples are seen
// within transportNs. The start of a bounded operation follows from the operations before it, if their mean
// durations are known.
func (w *Operation) StartNs() int64 {
	switch {
	case w.StartQuality == Measured:
		return max(w.Start.LoNs, w.Start.HiNs-transportNs/2)
	case w.likelyStartNs != 0:
		return w.likelyStartNs
	}
	return w.Start.MiddleNs()
}

// EndNs returns the most probable end in Unix ns, within the bounds: if it is not measured, the start plus
// the mean duration of operations with the same label. Without that mean, it is the middle of the bounds. It
// is not valid if ProbableEnd has an unknown quality.
func (w *Operation) EndNs() int64 {
	switch {
	case w.EndQuality == Measured:
		return max(w.End.LoNs, w.End.HiNs-transportNs/2-gapMeanNs)
	case w.Mean != nil && w.StartQuality != Unknown:
		end := w.StartNs() + int64(w.Mean.MeanNs)
		if w.EndQuality == Bounded {
			end = min(max(end, w.End.LoNs), w.End.HiNs)
		}
		return end
	}
	return w.End.MiddleNs()
}

// guessStartNs returns the most probable start of an operation that is not measured, in Unix ns: after its call and
// after afterNs, which is followedFromNs of the operation before it on its stream.
func (w *Operation) guessStartNs(afterNs int64) int64 {
	ns := w.Call.StartNs
	if w.Call.EndNs != UnknownNs && !w.Call.Waits {
		ns = w.Call.EndNs
	}
	ns = max(ns+idleStartNs, afterNs)
	if w.isCopy() && w.EndQuality == Measured && w.Mean != nil && !w.BeginsAtCall() {
		ns = max(ns, w.EndNs()-int64(w.Mean.MeanNs))
	}
	return min(max(ns, w.Start.LoNs), w.Start.HiNs)
}

// followedFromNs returns when the next operation of the stream can probably begin, Unix ns; 0: it is unknown.
func (w *Operation) followedFromNs() int64 {
	switch {
	case w.StartQuality == Unknown:
	case w.isCopy() && w.EndQuality >= Bounded:
		return w.EndNs() + gapMeanNs
	case w.Mean != nil:
		return w.StartNs() + int64(w.Mean.MeanNs) + gapMeanNs
	}
	return 0
}

// ProbableEnd returns the end of the operation in Unix ns: if it is not measured, the start plus the mean
// duration of operations with the same label, plus or minus two standard errors, within the bounds. The
// quality is Unknown if the start is unknown.
func (w *Operation) ProbableEnd() (Interval, Quality) {
	if w.EndQuality == Measured || w.Mean == nil || w.StartQuality < Estimated {
		return w.End, w.EndQuality
	}
	end := Interval{
		w.Start.LoNs + int64(
			max(0, w.Mean.MeanNs-2*w.Mean.ErrorNs),
		),
		w.Start.HiNs + int64(w.Mean.MeanNs+2*w.Mean.ErrorNs),
	}
	if w.EndQuality == Bounded {
		end.LoNs = min(max(end.LoNs, w.End.LoNs), w.End.HiNs)
		end.HiNs = max(min(end.HiNs, w.End.HiNs), w.End.LoNs)
	}
	return end, Estimated
}

// boundDuration sets the duration from start and end.
func (w *Operation) boundDuration() {
	w.Duration, w.DurationQuality = w.boundedDuration()
}

// boundedDuration returns the duration that follows from start and end.
func (w *Operation) boundedDuration() (Interval, Quality) {
	if w.StartQuality < Bounded || w.EndQuality < Bounded {
		return Interval{}, Unknown
	}
	duration := Interval{max(0, w.End.LoNs-w.Start.HiNs), max(0, w.End.HiNs-w.Start.LoNs)}
	return duration, min(w.StartQuality, w.EndQuality)
}

// QueueTime returns how long the operation waited from the start of its call until its own start, in ns.
// Its quality is StartQuality.
func (w *Operation) QueueTime() Interval {
	return Interval{max(0, w.Start.LoNs-w.Call.StartNs), max(0, w.Start.HiNs-w.Call.StartNs)}
}
