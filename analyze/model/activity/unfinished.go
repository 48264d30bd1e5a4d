package activity

import (
	"cmp"
	"slices"
)

// UnfinishedWork is the work that a stream runs at some time, and the works that wait behind it.
type UnfinishedWork struct {
	Work
	// LikelyNumber is the counter of the channel when the work began, if no work without a call came
	// before it since the last wait. Number is set only if that is certain.
	LikelyNumber int64
	Behind       int64 // later works of the stream that had not begun
}

// Unfinished returns the last work of each stream that had begun by atNs (Unix ns) and is not known to
// have ended by then. Streams whose last work has certainly ended, or never began, have none. A work
// without a successor and without a wait may have ended; UnfinishedWork cannot tell. The longest running
// work comes first. It returns errors of reading the recording.
func (a *Activity) Unfinished(atNs int64) ([]UnfinishedWork, error) {
	type streamEnd struct {
		running UnfinishedWork
		known   bool
		done    bool
	}
	ends := make(map[int32]*streamEnd)
	err := a.EachWork(func(w *Work) {
		if w.Call.StartNs > atNs {
			return
		}
		e := ends[w.Stream]
		if e == nil {
			e = new(streamEnd)
			ends[w.Stream] = e
		}
		if w.StartQuality == Unknown || w.Start.MiddleNs() > atNs {
			e.running.Behind++
			return
		}
		e.running = UnfinishedWork{Work: *w, LikelyNumber: cmp.Or(w.Number, w.likely)}
		e.known, e.done = true, w.doneNs <= atNs || w.EndQuality >= Bounded && w.End.HiNs <= atNs
	})
	var list []UnfinishedWork
	for _, e := range ends {
		if e.known && !e.done {
			list = append(list, e.running)
		}
	}
	slices.SortFunc(list, func(a, b UnfinishedWork) int {
		return cmp.Or(cmp.Compare(a.Start.LoNs, b.Start.LoNs), cmp.Compare(a.Stream, b.Stream))
	})
	return list, err
}
