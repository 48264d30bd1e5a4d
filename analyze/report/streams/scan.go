package streams

import (
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

// Stream handles with a special meaning in the CUDA driver API.
const (
	defaultStreamHandle   = 0 // legacy default stream, or per-thread default stream in _ptsz functions
	legacyStreamHandle    = 1 // CU_STREAM_LEGACY
	perThreadStreamHandle = 2 // CU_STREAM_PER_THREAD
)

// streamKey identifies a CUDA stream of a process.
type streamKey struct {
	pid, device int32
	handle      int64 // legacyStreamHandle or perThreadStreamHandle for defaultStreamHandle
}

// processDevice identifies a device of a process.
type processDevice struct{ pid, device int32 }

// deviceOf returns the device of the stream in its process.
func (s streamKey) deviceOf() processDevice { return processDevice{s.pid, s.device} }

// streamWork has the statistics of the work of one stream.
type streamWork struct {
	launches, captured, copies, copiedBytes, fills int64
	waits                                          stats.Durations // waits of threads for the stream
	threads                                        map[int32]bool  // ids of threads that used the stream
	lastThread                                     int32           // thread of the last call
	firstNs, lastNs                                int64           // starts of the first and last call, Unix ns
}

// operationCount returns the number of operations that ran on the stream.
func (w *streamWork) operationCount() int64 { return w.launches + w.copies + w.fills }

// scan collects statistics of calls by stream, in one pass. It is not safe for concurrent use.
type scan struct {
	*calls.CallReader
	streams map[streamKey]*streamWork
	// lastStream and lastWork are those of the last call, because most calls have the same stream.
	lastStream streamKey
	lastWork   *streamWork
}

// newScan returns a scan of the calls of r.
func newScan(r *calls.CallReader) *scan {
	return &scan{CallReader: r, streams: make(map[streamKey]*streamWork)}
}

// addCall adds a call. It skips failed calls, because they add no work to the stream. Of the
// synchronization calls it counts only cuStreamSynchronize. It always returns nil.
func (sc *scan) addCall(c *calls.Call) error {
	kind := sc.Kinds[c.Kind]
	if c.Failed() ||
		kind == format.KindSync && catalog.BaseFunctionName(sc.Names.List[c.Name]) != "cuStreamSynchronize" {
		return nil
	}
	w := sc.workOfStream(streamKey{c.Pid, c.Device, streamHandleOf(c)})
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

// workOfStream returns the statistics of a stream, and creates them if necessary.
func (sc *scan) workOfStream(key streamKey) *streamWork {
	if key == sc.lastStream && sc.lastWork != nil {
		return sc.lastWork
	}
	w := sc.streams[key]
	if w == nil {
		w = &streamWork{threads: make(map[int32]bool)}
		sc.streams[key] = w
	}
	sc.lastStream, sc.lastWork = key, w
	return w
}

// sumOperationsByDevice returns the number of operations of all streams of each device.
func (sc *scan) sumOperationsByDevice() map[processDevice]int64 {
	operations := make(map[processDevice]int64)
	for key, w := range sc.streams {
		operations[key.deviceOf()] += w.operationCount()
	}
	return operations
}

// streamHandleOf returns the stream handle of a call. Each default stream has one handle.
func streamHandleOf(c *calls.Call) int64 {
	switch {
	case c.Stream != defaultStreamHandle:
		return c.Stream
	case c.Flags&format.FlagPerThreadStream != 0:
		return perThreadStreamHandle
	}
	return legacyStreamHandle
}
