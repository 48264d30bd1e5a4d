package streams

import (
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

// Stream handles with a special meaning in the CUDA driver API.
const (
	streamDefault   = 0 // legacy default stream, or per-thread default stream in _ptsz functions
	streamLegacy    = 1 // CU_STREAM_LEGACY
	streamPerThread = 2 // CU_STREAM_PER_THREAD
)

// stream identifies a CUDA stream of a process.
type stream struct {
	pid, device int32
	handle      int64 // streamLegacy or streamPerThread for streamDefault
}

// processDevice identifies a device of a process.
type processDevice struct{ pid, device int32 }

// deviceOf returns the device of the stream in its process.
func (s stream) deviceOf() processDevice { return processDevice{s.pid, s.device} }

// work has the statistics of the work of one stream.
type work struct {
	launches, captured, copies, copiedBytes, fills int64
	waits                                          stats.Durations // waits of threads for the stream
	threads                                        map[int32]bool  // ids of threads that used the stream
	lastThread                                     int32           // thread of the last call
	firstNs, lastNs                                int64           // starts of the first and last call, Unix ns
}

// operations returns the number of operations that ran on the stream.
func (w *work) operations() int64 { return w.launches + w.copies + w.fills }

// scan collects statistics of calls by stream, in one pass. It is not safe for concurrent use.
type scan struct {
	*calls.CallReader
	streams map[stream]*work
	// lastStream and lastWork are those of the last call, because most calls have the same stream.
	lastStream stream
	lastWork   *work
}

// newScan returns a scan of the calls of r.
func newScan(r *calls.CallReader) *scan {
	return &scan{CallReader: r, streams: make(map[stream]*work)}
}

// add adds a call. It skips failed calls, because they add no work to the stream. Of the
// synchronization calls it counts only cuStreamSynchronize. It always returns nil.
func (sc *scan) add(c *calls.Call) error {
	kind := sc.Kinds[c.Kind]
	if c.Failed() || kind == format.KindSync && catalog.BaseFunctionName(sc.Names.List[c.Name]) != "cuStreamSynchronize" {
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
		if c.HasDuration() {
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

// workOf returns the statistics of a stream, and creates them if necessary.
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

// operationsOfDevices returns the number of operations of all streams of each device.
func (sc *scan) operationsOfDevices() map[processDevice]int64 {
	operations := make(map[processDevice]int64)
	for key, w := range sc.streams {
		operations[key.deviceOf()] += w.operations()
	}
	return operations
}

// handleOf returns the stream handle of a call. Each default stream has one handle.
func handleOf(c *calls.Call) int64 {
	switch {
	case c.Stream != streamDefault:
		return c.Stream
	case c.Flags&format.FlagPerThreadStream != 0:
		return streamPerThread
	}
	return streamLegacy
}
