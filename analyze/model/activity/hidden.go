package activity

// The driver may add an operation without a call to another channel than that of the call. The next operation of the
// stream waits for it, too. So while such an operation may have run, the start of an operation does not show the end of
// the one before it.

// unfoundNs is about the longest time from the first operation of a channel until the recorder finds it.
const unfoundNs = 250_000_000

// hiddenTimes returns the times in which operations without a call may have run, by process. Only processes in which
// calls and counters of a channel disagreed outside of gaps have such times: then they may be within and around gaps,
// too.
func (r *reader) hiddenTimes() map[int32]*spans {
	hidden := make(map[int32]*spans)
	for _, c := range r.channels {
		if c.ownSlips > 0 {
			hidden[c.Pid] = &spans{mayGrow: true}
		}
	}
	for _, c := range r.sortedChannels() {
		times := hidden[c.Pid]
		if times == nil {
			continue
		}
		for _, s := range c.extra.unproven(c.FromNs-unfoundNs, min(c.ToNs, UnknownNs-extraSlackNs)) {
			times.add(Interval{s.LoNs - extraSlackNs, s.HiNs + extraSlackNs})
		}
	}
	for _, times := range hidden {
		times.join()
	}
	return hidden
}

// mayHideOperation reports whether an operation without a call may have run between the starts of two operations of a
// stream.
func (w *chainOperation) mayHideOperation(next *chainOperation) bool {
	times := w.channel.reader.hidden[w.Call.Pid]
	return times != nil && times.within(Interval{w.Start.LoNs, next.Start.HiNs}) > 0
}

// hide numbers the operations again, if there are times in which operations without a call may have run.
func (a *attempt) hide() error {
	if a.hidden = a.reader.hiddenTimes(); len(a.hidden) == 0 {
		return nil
	}
	return a.number()
}
