package streams

import (
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

// Handles that the CUDA driver gives a meaning of its own.
const (
	streamDefault   = 0 // CU_STREAM_LEGACY, or that of the thread in the _ptsz functions
	streamLegacy    = 1 // CU_STREAM_LEGACY
	streamPerThread = 2 // CU_STREAM_PER_THREAD
)

// stream names a stream of a process.
type stream struct {
	pid, device int32
	handle      int64 // streamLegacy and streamPerThread stand for streamDefault, too
}

// deviceOf names a device that a process uses.
type deviceOf struct{ pid, device int32 }

// deviceOf returns the device of a process that the stream is on.
func (s stream) deviceOf() deviceOf { return deviceOf{s.pid, s.device} }

// work is what a stream was given to do.
type work struct {
	launches, captured, copies, copiedBytes, fills int64
	waits                                          stats.Durations // of threads for the stream
	threads                                        map[int32]bool
	lastThread                                     int32 // already in threads
	firstNs, lastNs                                int64 // entries of the first and the last call
}

// operations is the number of operations that ran on the stream.
func (w *work) operations() int64 { return w.launches + w.copies + w.fills }

// scan sums up calls by stream, in one pass.
type scan struct {
	*calls.Reader
	streams map[stream]*work
	// lastStream and lastWork are those of the call before: most calls have the same stream.
	lastStream stream
	lastWork   *work
}

func newScan(r *calls.Reader) *scan {
	return &scan{Reader: r, streams: make(map[stream]*work)}
}

// add counts a call. Calls that failed gave the stream no work. Of the waits, only those for a
// stream count: queries do not wait, and events and contexts are no streams.
func (sc *scan) add(c *calls.Call) error {
	kind := sc.Kinds[c.Kind]
	if c.Failed() || kind == format.KindSync && catalog.BaseName(sc.Names.List[c.Name]) != "cuStreamSynchronize" {
		return nil
	}
	w := sc.workOf(stream{c.Pid, c.Device, handleOf(c)})
	if w.firstNs == 0 {
		w.firstNs = c.StartNs
	}
	w.lastNs = c.StartNs
	if c.Tid != w.lastThread {
		w.threads[c.Tid], w.lastThread = true, c.Tid
	}
	switch {
	case kind == format.KindSync:
		if c.Timed() {
			w.waits.Add(c.EndNs - c.StartNs)
		}
		return nil
	case c.Flags&format.FlagCaptured != 0:
		w.captured++
		return nil
	case kind == format.KindLaunch:
		w.launches++
	case kind == format.KindMemcpy:
		w.copies++
		w.copiedBytes += c.Bytes
	default:
		w.fills++
	}
	return nil
}

// workOf returns what is counted for a stream.
func (sc *scan) workOf(key stream) *work {
	if key == sc.lastStream && sc.lastWork != nil {
		return sc.lastWork
	}
	w := sc.streams[key]
	if w == nil {
		w = &work{threads: make(map[int32]bool)}
		sc.streams[key] = w
	}
	sc.lastStream, sc.lastWork = key, w
	return w
}

// operationsOfDevices returns how many operations the streams of each device ran.
func (sc *scan) operationsOfDevices() map[deviceOf]int64 {
	operations := make(map[deviceOf]int64)
	for key, w := range sc.streams {
		operations[key.deviceOf()] += w.operations()
	}
	return operations
}

// handleOf returns the stream that a call names, with one handle for each default stream.
func handleOf(c *calls.Call) int64 {
	switch {
	case c.Stream != streamDefault:
		return c.Stream
	case c.Flags&format.FlagPerThreadStream != 0:
		return streamPerThread
	}
	return streamLegacy
}
