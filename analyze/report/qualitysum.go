package report

import "slices"

// Add adds the quality of another recording of the same job. Counts become sums, shares become the means by calls, and
// times the maximum. Of sampled launches it keeps the recording with the smaller part recorded.
func (q *Quality) Add(o *Quality) {
	q.addShares(o)
	for _, c := range []struct{ to, from *int64 }{
		{&q.Events, &o.Events},
		{&q.LostEvents, &o.LostEvents},
		{&q.LostMemoryEvents, &o.LostMemoryEvents},
		{&q.LateProcesses, &o.LateProcesses},
		{&q.MissedEvents, &o.MissedEvents},
		{&q.StacksWithoutTable, &o.StacksWithoutTable},
		{&q.DroppedEvents, &o.DroppedEvents},
		{&q.UnmatchedFrees, &o.UnmatchedFrees},
		{&q.LostFrees, &o.LostFrees},
		{&q.OpenCalls, &o.OpenCalls},
		{&q.AbandonedCalls, &o.AbandonedCalls},
		{&q.UnknownAllocs, &o.UnknownAllocs},
		{&q.DamagedSegments, &o.DamagedSegments},
		{&q.StacksChecked, &o.StacksChecked},
		{&q.StacksWrong, &o.StacksWrong},
		{&q.Inferred.Inferred, &o.Inferred.Inferred},
		{&q.Inferred.Checked, &o.Inferred.Checked},
		{&q.Inferred.Wrong, &o.Inferred.Wrong},
		{&q.Inferred.WrongEstimated, &o.Inferred.WrongEstimated},
		{&q.Inferred.Busy, &o.Inferred.Busy},
		{&q.Inferred.Unchecked, &o.Inferred.Unchecked},
		{&q.AllocatorEvents, &o.AllocatorEvents},
		{&q.LostAllocatorEvents, &o.LostAllocatorEvents},
		{&q.AllocatorCompared, &o.AllocatorCompared},
		{&q.AllocatorDisagreed, &o.AllocatorDisagreed},
		{&q.AllocatorUnmatchedFrees, &o.AllocatorUnmatchedFrees},
		{&q.AllocatorLostFrees, &o.AllocatorLostFrees},
		{&q.AllocatorsByReports, &o.AllocatorsByReports},
	} {
		*c.to += *c.from
	}
	q.CompleteAfterNs = max(q.CompleteAfterNs, o.CompleteAfterNs)
	q.AllocatorWorstBytes = max(q.AllocatorWorstBytes, o.AllocatorWorstBytes)
	q.TruncatedTail = q.TruncatedTail || o.TruncatedTail
	for _, class := range o.Classes {
		if !slices.Contains(q.Classes, class) {
			q.Classes = append(slices.Clone(q.Classes), class)
		}
	}
	l, known := &o.Launches, &q.Launches
	if l.Sampled && (!known.Sampled || l.LaunchesNs*known.OfNs < known.LaunchesNs*l.OfNs) {
		*known = *l
	}
	q.Allocator.Add(&o.Allocator)
	switch q.GPUTiming {
	case "":
		q.GPUTiming = o.GPUTiming
	case o.GPUTiming:
	default:
		q.GPUTiming = "of some recordings"
	}
}

// addShares changes the shares to those of both recordings. It runs before the calls are added.
func (q *Quality) addShares(o *Quality) {
	calls := float64(q.Events + o.Events)
	if calls == 0 {
		return
	}
	mean := func(a, b float64) float64 { return (a*float64(q.Events) + b*float64(o.Events)) / calls }
	q.UnsymbolizedFramesPct = mean(q.UnsymbolizedFramesPct, o.UnsymbolizedFramesPct)
	shares := slices.Clone(q.StackShares)
	for i := range shares {
		shares[i].Pct = mean(shares[i].Pct, 0)
	}
	for _, s := range o.StackShares {
		at := slices.IndexFunc(shares, func(known StackStatusShare) bool { return known.Status == s.Status })
		if at < 0 {
			at = len(shares)
			shares = append(shares, StackStatusShare{Status: s.Status})
		}
		shares[at].Pct += mean(0, s.Pct)
	}
	q.StackShares = shares
}
