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

// cudaStream identifies a stream of a process. Its copies can be on other channels than its kernels.
type cudaStream struct {
	context, handle int64
	pid, tid        int32 // tid of a PerThreadStream, else 0
}

func cudaStreamOf(c *Call) cudaStream {
	s := cudaStream{context: c.Context, handle: c.Stream, pid: c.Pid}
	if c.Stream == PerThreadStream {
		s.tid = c.Tid
	}
	return s
}

// streamEnd is the end of a stream on one channel.
type streamEnd struct {
	running UnfinishedWork // the last work that had begun
	done    bool           // it had ended
	behind  int64          // later works that had not begun
}

// Unfinished returns the last work of each stream that had begun by atNs (Unix ns) and is not known to
// have ended by then. Streams whose last work has certainly ended, or never began, have none. A work
// without a successor and without a wait may have ended; UnfinishedWork cannot tell. Works with others
// behind them come first, then the longest running work. It returns errors of reading the recording.
func (a *Activity) Unfinished(atNs int64) ([]UnfinishedWork, error) {
	type key struct {
		stream  cudaStream
		channel int32
	}
	ends := make(map[key]*streamEnd)
	err := a.EachWork(func(w *Work) {
		if w.Call.StartNs > atNs {
			return
		}
		k := key{cudaStreamOf(&w.Call), w.Channel}
		e := ends[k]
		if e == nil {
			e = new(streamEnd)
			ends[k] = e
		}
		if w.StartQuality == Unknown || w.Start.MiddleNs() > atNs {
			e.behind++
			return
		}
		*e = streamEnd{running: UnfinishedWork{Work: *w, LikelyNumber: cmp.Or(w.Number, w.likely)}}
		e.done = w.doneNs <= atNs || w.EndQuality >= Bounded && w.End.HiNs <= atNs
	})
	streams := make(map[cudaStream]*streamEnd)
	for k, e := range ends {
		if known := streams[k.stream]; known != nil {
			known.join(e)
		} else {
			streams[k.stream] = e
		}
	}
	var list []UnfinishedWork
	for _, e := range streams {
		if e.running.Call.StartNs > 0 && !e.done {
			e.running.Behind = e.behind
			list = append(list, e.running)
		}
	}
	slices.SortFunc(list, func(a, b UnfinishedWork) int {
		return cmp.Or(cmp.Compare(min(1, b.Behind), min(1, a.Behind)), cmp.Compare(a.Start.LoNs, b.Start.LoNs),
			cmp.Compare(a.Stream, b.Stream))
	})
	return list, err
}

// join adds another channel of the same stream. The works of a stream run in the order of their calls,
// so those before the last begun one have ended.
func (e *streamEnd) join(o *streamEnd) {
	e.behind += o.behind
	if o.running.Call.StartNs > e.running.Call.StartNs {
		e.running, e.done = o.running, o.done
	}
}
