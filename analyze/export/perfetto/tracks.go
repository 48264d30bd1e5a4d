package perfetto

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Fields of TrackDescriptor that only some tracks have, and values of these fields.
const (
	trackProcess       = 3
	trackThread        = 4
	trackCounter       = 8
	trackChildOrdering = 11
	trackSiblingRank   = 12

	orderExplicit = 3
	unitSizeBytes = 3
)

// byteCounter is the encoded CounterDescriptor of counters in bytes.
var byteCounter = appendVarint(nil, 3, unitSizeBytes)

// counterUnit returns the encoded CounterDescriptor of a metric. The unit is the last word of the
// metric's name.
func counterUnit(metric string) []byte {
	_, unit, _ := cutLast(metric, "_")
	switch unit {
	case "bytes":
		return byteCounter
	case "percent", "pct":
		unit = "%"
	}
	return appendBytes(nil, 6, units.ValidUTF8(unit))
}

// cutLast cuts s at the last separator, like strings.Cut at the first.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// threadCounter is the encoded CounterDescriptor of counters of threads.
var threadCounter = appendBytes(nil, 6, "threads")

// partTracks are the UUIDs of the tracks in one part of a trace.
type partTracks struct {
	nextUUID  uint64
	processes map[int32]uint64 // by pid
	threads   map[origin.Thread]*threadTrack
	gpus      map[int32]uint64 // by CUDA device
	tracks    map[trackKey]uint64
	lanes     map[lane]uint64
	own       uint64 // track with gpurec's own messages; 0 if it does not exist yet
}

func newPartTracks() partTracks {
	return partTracks{
		processes: make(map[int32]uint64), threads: make(map[origin.Thread]*threadTrack), gpus: make(map[int32]uint64),
		tracks: make(map[trackKey]uint64), lanes: make(map[lane]uint64),
	}
}

// uuid returns a new UUID of a track.
func (p *trace) uuid() uint64 {
	p.nextUUID++
	return p.nextUUID
}

// processTrack returns the track of a process. It writes the track's descriptor on the first call,
// as do all functions below.
func (p *trace) processTrack(pid int32) uint64 {
	uuid, ok := p.processes[pid]
	if !ok {
		uuid = p.uuid()
		p.processes[pid] = uuid
		d := appendVarint(nil, 1, uint64(pid))
		d = appendBytes(d, 6, units.ValidUTF8(p.t.ProcessTitle(pid)))
		p.w.track(uuid, 0, "", appendBytes(nil, trackProcess, d))
	}
	return uuid
}

// threadTrack returns the track of a thread, a child of its process's track.
func (p *trace) threadTrack(th origin.Thread) *threadTrack {
	if tr, ok := p.threads[th]; ok {
		return tr
	}
	p.processTrack(th.Pid)
	tr := &threadTrack{uuid: p.uuid()}
	p.threads[th] = tr
	d := appendVarint(nil, 1, uint64(th.Pid))
	d = appendVarint(d, 2, uint64(th.Tid))
	if name := p.t.Facts.Threads[th]; name != "" {
		d = appendBytes(d, 5, units.ValidUTF8(name))
	}
	p.w.track(tr.uuid, 0, "", appendBytes(nil, trackThread, d))
	return tr
}

// openTrack returns a new track for one call that has not returned.
func (p *trace) openTrack(th origin.Thread, name string) *threadTrack {
	parent := p.processTrack(th.Pid)
	tr := &threadTrack{uuid: p.uuid()}
	p.w.track(tr.uuid, parent, fmt.Sprintf("%s of thread %d has not returned", name, th.Tid), nil)
	return tr
}

// gpuTrack returns a track in the group of a GPU.
func (p *trace) gpuTrack(device int32, kind string) uint64 {
	return p.track(trackKey{device: device, kind: kind}, kind, nil)
}

// counterTrack returns the track of a counter in the group of a GPU, or of a process.
func (p *trace) counterTrack(key trackKey, counter []byte) uint64 {
	return p.track(key, key.kind, counter)
}

// lane identifies the track with the work of a process on a stream.
type lane struct {
	stream   int64
	pid      int32
	device   int32
	captured bool // the work was captured into a graph
}

// laneTrack returns the track of a lane.
func (p *trace) laneTrack(l lane) uint64 {
	if uuid, ok := p.lanes[l]; ok {
		return uuid
	}
	name, kind := "stream "+query.StreamName(l.stream), laneKind
	if l.captured {
		name, kind = "captured on "+name, captureKind
	}
	if len(p.t.Facts.Processes) > 1 {
		name += fmt.Sprintf(" of process %d", l.pid)
	}
	uuid := p.track(trackKey{l.device, kind, l.pid, l.stream}, name+" ("+kind+")", nil)
	p.lanes[l] = uuid
	return uuid
}

// Kinds of lanes. They are part of the track's name, because the instants on a lane are not GPU
// times.
const (
	laneKind    = "order of calls, not GPU time"
	captureKind = "put into a graph, not run"
)

// processTracks is the value of trackKey.device for tracks that belong to a process, not to a GPU.
const processTracks = math.MinInt32

// track returns the track with a key. counter is the encoded CounterDescriptor of a counter track,
// or nil.
func (p *trace) track(key trackKey, name string, counter []byte) uint64 {
	if uuid, ok := p.tracks[key]; ok {
		return uuid
	}
	var parent uint64
	if key.device == processTracks {
		parent = p.processTrack(key.pid)
	} else {
		parent = p.gpu(key.device)
	}
	uuid := p.uuid()
	p.tracks[key] = uuid
	rest := appendVarint(nil, trackSiblingRank, gpuRank(key.kind))
	if counter != nil {
		rest = appendBytes(rest, trackCounter, counter)
	}
	p.w.track(uuid, parent, name, rest)
	return uuid
}

// gpuRank returns the position of a kind of track in the group of a GPU: errors first, then memory,
// streams, captured work and samples.
func gpuRank(kind string) uint64 {
	switch {
	case kind == "Xid errors", kind == "failed allocations":
		return 0
	case strings.HasPrefix(kind, "live memory"), strings.HasPrefix(kind, allocatorTrack):
		return 1
	case kind == laneKind:
		return 2
	case kind == captureKind:
		return 3
	}
	return 4
}

// gpu returns the track that groups the tracks of a CUDA device.
func (p *trace) gpu(device int32) uint64 {
	if uuid, ok := p.gpus[device]; ok {
		return uuid
	}
	uuid := p.uuid()
	p.gpus[device] = uuid
	name := "GPU (unknown device)"
	if device >= 0 {
		name = "GPU " + p.t.DeviceLabel(device)
	}
	p.w.track(uuid, 0, name, appendVarint(nil, trackChildOrdering, orderExplicit))
	return uuid
}

// ownTrack returns the track with gpurec's own messages: lost calls, sampling, parts of the trace.
func (p *trace) ownTrack() uint64 {
	if p.own == 0 {
		p.own = p.uuid()
		p.w.track(p.own, 0, "gpurec", nil)
	}
	return p.own
}
