package activity

import (
	"cmp"
	"slices"
)

// UnfinishedOperation is the operation that a stream runs at some time, and the operations that wait behind it.
type UnfinishedOperation struct {
	Operation
	// LikelyNumber is the counter of the channel when the operation began, if no operation without a call came
	// before it since the last wait. Number is set only if that is certain.
	LikelyNumber int64
	Behind       int64 // later operations of the stream that had not begun
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
	running UnfinishedOperation // the last operation that had begun
	done    bool                // it had ended
	behind  int64               // later operations that had not begun
}

// Unfinished returns the last operation of each stream that had begun by atNs (Unix ns) and is not known to
// have ended by then. Streams whose last operation has certainly ended, or never began, have none. An operation
// without a successor and without a wait may have ended; UnfinishedOperation cannot tell. Operations with others
// behind them come first, then the longest running operation. It returns errors of reading the recording.
func (a *Activity) Unfinished(atNs int64) ([]UnfinishedOperation, error) {
	type key struct {
		stream  cudaStream
		channel int32
	}
	ends := make(map[key]*streamEnd)
	err := a.EachOperation(func(w *Operation) {
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
		*e = streamEnd{running: UnfinishedOperation{Operation: *w, LikelyNumber: cmp.Or(w.Number, w.likely)}}
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
	var list []UnfinishedOperation
	for _, e := range streams {
		if e.running.Call.StartNs > 0 && !e.done {
			e.running.Behind = e.behind
			list = append(list, e.running)
		}
	}
	slices.SortFunc(list, func(a, b UnfinishedOperation) int {
		return cmp.Or(cmp.Compare(min(1, b.Behind), min(1, a.Behind)), cmp.Compare(a.Start.LoNs, b.Start.LoNs),
			cmp.Compare(a.Stream, b.Stream))
	})
	return list, err
}

// join adds another channel of the same stream. The operations of a stream run in the order of their calls,
// so those before the last begun one have ended.
func (e *streamEnd) join(o *streamEnd) {
	e.behind += o.behind
	if o.running.Call.StartNs > e.running.Call.StartNs {
		e.running, e.done = o.running, o.done
	}
}
