package rankstate

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// hostCalls are the last CUDA calls of a process.
type hostCalls struct {
	open   []hostCall      // waits for the GPU that have not returned
	synced map[int64]int64 // by stream: start of the last wait for it that returned, Unix ns
	allNs  int64           // the same for all streams
	lastNs int64           // start of the last call, Unix ns
	// abortNs is when the process first aborted a communicator, Unix ns; 0: it did not. An abort ends the kernels of
	// operations that would never end, and so the waits for them. cut are those waits. syncedBefore and allBeforeNs are
	// synced and allNs of the waits that returned before.
	abortNs      int64
	cut          []hostCall
	syncedBefore map[int64]int64
	allBeforeNs  int64
}

// newHostCalls returns the calls of a process that aborted a communicator at a time, Unix ns, or 0.
func newHostCalls(abortNs int64) *hostCalls {
	return &hostCalls{synced: make(map[int64]int64), syncedBefore: make(map[int64]int64), abortNs: abortNs}
}

// hostCall is a wait for the GPU.
type hostCall struct {
	name    string
	startNs int64
	stream  int64
	tid     int32
	all     bool // it waits for all streams
	some    bool // it waits for an unknown part of a stream
	stack   int32
}

// maxHostGroups is the number of row groups of calls that readHostCalls reads, the last ones.
const maxHostGroups = 2

// readHostCalls reads the last CUDA calls of all processes of a recording, up to a time, Unix ns. aborts has the times at
// which processes first aborted a communicator, Unix ns.
func readHostCalls(t *timeline.Timeline, aborts map[int32]int64, toNs int64) (map[int32]*hostCalls, error) {
	processes := make(map[int32]*hostCalls)
	for pid, at := range aborts {
		processes[pid] = newHostCalls(at)
	}
	read := 0
	for _, s := range slices.Backward(t.Calls) {
		if s.FirstNs > toNs {
			continue
		}
		if read++; read > maxHostGroups {
			break
		}
		addHostCalls(processes, s.Group, toNs)
		if err := s.Group.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	return processes, nil
}

// addHostCalls adds the calls of a row group.
func addHostCalls(processes map[int32]*hostCalls, g *format.Group, toNs int64) {
	kinds, names, copies := g.Strings("kind"), g.Strings("name"), g.Strings("copy_kind")
	start, dur, stream := g.Int64("start_ns", nil), g.Int64("dur_ns", nil), g.Int64("stream", nil)
	pid, tid, flags := g.Int32("pid", nil), g.Int32("tid", nil), g.Int32("flags", nil)
	stack := g.Int32("stack_id", nil)
	for i, at := range start {
		if at > toNs {
			continue
		}
		p := processes[pid[i]]
		if p == nil {
			p = newHostCalls(0)
			processes[pid[i]] = p
		}
		p.lastNs = max(p.lastNs, at)
		kind := kinds.At(i)
		if kind != format.KindSync && (kind != format.KindMemcpy || copies.At(i) != "DtoH") {
			continue
		}
		c := hostCall{
			name: catalog.BaseFunctionName(names.At(i)), startNs: at, stream: stream[i], tid: tid[i], stack: stack[i],
		}
		c.all, c.some = strings.HasPrefix(c.name, "cuCtx"), strings.HasPrefix(c.name, "cuEvent")
		switch open := flags[i]&format.FlagOpen != 0 || units.EndOfRange(at, dur[i]) > toNs; {
		case flags[i]&(format.FlagNoReturn|format.FlagAbandoned|format.FlagCaptured) != 0:
		case open:
			p.open = append(p.open, c)
		case kind != format.KindSync || c.some || strings.Contains(c.name, "WaitEvent"):
		default:
			p.addReturned(c, units.EndOfRange(at, dur[i]))
		}
	}
}

// addReturned adds a wait that returned at a time, Unix ns.
func (h *hostCalls) addReturned(c hostCall, endNs int64) {
	isBefore := h.abortNs == 0 || endNs < h.abortNs
	if !isBefore && c.startNs < h.abortNs {
		h.cut = append(h.cut, c)
		return
	}
	if c.all {
		h.allNs = max(h.allNs, c.startNs)
		if isBefore {
			h.allBeforeNs = max(h.allBeforeNs, c.startNs)
		}
		return
	}
	h.synced[c.stream] = max(h.synced[c.stream], c.startNs)
	if isBefore {
		h.syncedBefore[c.stream] = max(h.syncedBefore[c.stream], c.startNs)
	}
}

// progressOf returns what the CUDA calls of a process say about the end of an operation. isAborted says that the process
// aborted its communicator. h may be nil.
func (h *hostCalls) progressOf(o *collective.Operation, isAborted bool, longNs int64) waitgraph.Progress {
	called := o.StartNs + o.DurNs
	switch {
	case o.IsOpen:
		return waitgraph.Unfinished
	case h == nil:
		return waitgraph.Launched
	case isAborted && (h.allBeforeNs > called || h.syncedBefore[o.Stream] > called):
		return waitgraph.Done
	case isAborted && slices.ContainsFunc(h.cut, func(c hostCall) bool {
		return c.startNs > called && h.abortNs-c.startNs >= longNs && (c.all || c.stream == o.Stream)
	}):
		return waitgraph.Unfinished
	case isAborted:
		return waitgraph.Launched
	}
	if h.allNs > called || h.synced[o.Stream] > called {
		return waitgraph.Done
	}
	return waitgraph.Launched
}

// waitsForLast reports whether the host certainly waits for the last operation of a stream.
func (h *hostCalls) waitsForLast(stream, startNs int64) bool {
	return slices.ContainsFunc(h.open, func(c hostCall) bool {
		return c.startNs > startNs && (c.all || c.stream == stream && !c.some)
	})
}
