package activity

import (
	"slices"
	"sort"
)

// The driver may add a work without a call to another channel than that of the call. The next work of the stream waits
// for it, too. So while such a work may have run, the start of a work does not show the end of the one before it.

// hiddenTimes returns the times in which works without a call may have run, by process, in order of time. Only
// processes in which calls and counters of a channel disagreed outside of gaps have such times.
func (r *reader) hiddenTimes() map[int32][]Interval {
	hasSlips := make(map[int32]bool)
	for _, c := range r.channels {
		hasSlips[c.Pid] = hasSlips[c.Pid] || c.ownSlips > 0
	}
	hidden := make(map[int32][]Interval)
	for _, c := range r.channels {
		if !hasSlips[c.Pid] {
			continue
		}
		for _, s := range c.extra.list {
			if !overlapsGap(r.gaps, s.LoNs-gapSlackNs, s.HiNs) {
				hidden[c.Pid] = append(hidden[c.Pid], Interval{s.LoNs - extraSlackNs, s.HiNs + extraSlackNs})
			}
		}
	}
	for pid, list := range hidden {
		slices.SortFunc(list, func(a, b Interval) int { return int(max(-1, min(1, a.LoNs-b.LoNs))) })
		hidden[pid] = joinSorted(list, 0)
	}
	return hidden
}

// mayHideWork reports whether a work without a call may have run between the starts of two works of a stream.
func (w *chainWork) mayHideWork(next *chainWork) bool {
	list := w.channel.reader.hidden[w.Call.Pid]
	i := sort.Search(len(list), func(i int) bool { return list[i].HiNs >= w.Start.LoNs })
	return i < len(list) && list[i].LoNs <= next.Start.HiNs
}

// hide numbers the works again, if there are times in which works without a call may have run.
func (a *attempt) hide() error {
	if a.hidden = a.reader.hiddenTimes(); len(a.hidden) == 0 {
		return nil
	}
	return a.number()
}
