package perfetto

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Fields of TrackDescriptor that only some tracks have, and values of these fields.
const (
	fieldTrackProcess       = 3
	fieldTrackThread        = 4
	fieldTrackCounter       = 8
	fieldTrackChildOrdering = 11
	fieldTrackSiblingRank   = 12

	childOrderingExplicit = 3
	counterUnitBytes      = 3
)

// byteCounterDescriptor is the encoded CounterDescriptor of counters in bytes.
var byteCounterDescriptor = appendVarintField(nil, 3, counterUnitBytes)

// newCounterDescriptor returns the encoded CounterDescriptor of a metric. The unit is the last word
// of the metric's name.
func newCounterDescriptor(metric string) []byte {
	_, unit, _ := cutAtLast(metric, "_")
	switch unit {
	case "bytes":
		return byteCounterDescriptor
	case "percent", "pct":
		unit = "%"
	}
	return appendBytesField(nil, 6, units.ReplaceInvalidUTF8(unit))
}

// cutAtLast cuts a string at the last separator, like strings.Cut at the first.
func cutAtLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// threadCounterDescriptor is the encoded CounterDescriptor of counters of threads.
var threadCounterDescriptor = appendBytesField(nil, 6, "threads")

// partTracks are the UUIDs of the tracks in one part of a trace.
type partTracks struct {
	nextUUID  uint64
	processes map[int32]uint64 // by pid
	threads   map[origin.Thread]*threadTrack
	gpus      map[int32]uint64 // by CUDA device
	tracks    map[trackKey]uint64
	lanes     map[streamLane]uint64
	gpuLanes  map[streamLane]*threadTrack
	hostLanes map[hostLane]*threadTrack
	own       uint64 // track with gpurec's own messages; 0 if it does not exist yet

	collectiveLanes map[collectiveLane]*threadTrack
}

func newPartTracks() partTracks {
	return partTracks{
		processes: make(map[int32]uint64), threads: make(map[origin.Thread]*threadTrack), gpus: make(map[int32]uint64),
		tracks: make(map[trackKey]uint64), lanes: make(map[streamLane]uint64),
		gpuLanes: make(map[streamLane]*threadTrack), hostLanes: make(map[hostLane]*threadTrack),
		collectiveLanes: make(map[collectiveLane]*threadTrack),
	}
}

// newTrackUUID returns a UUID that no other track of this part has.
func (t *traceBuilder) newTrackUUID() uint64 {
	t.nextUUID++
	return t.nextUUID
}

// findProcessTrack returns the track of a process. It writes the track's descriptor on the first
// call, as do all functions below.
func (t *traceBuilder) findProcessTrack(pid int32) uint64 {
	uuid, ok := t.processes[pid]
	if !ok {
		uuid = t.newTrackUUID()
		t.processes[pid] = uuid
		d := appendVarintField(nil, 1, uint64(pid))
		d = appendBytesField(d, 6, units.ReplaceInvalidUTF8(t.t.ProcessTitle(pid)))
		t.w.writeTrackDescriptor(uuid, 0, "", appendBytesField(nil, fieldTrackProcess, d))
	}
	return uuid
}

// findThreadTrack returns the track of a thread, a child of its process's track.
func (t *traceBuilder) findThreadTrack(th origin.Thread) *threadTrack {
	if tr, ok := t.threads[th]; ok {
		return tr
	}
	t.findProcessTrack(th.Pid)
	tr := &threadTrack{uuid: t.newTrackUUID()}
	t.threads[th] = tr
	d := appendVarintField(nil, 1, uint64(th.Pid))
	d = appendVarintField(d, 2, uint64(th.Tid))
	if name := t.t.Facts.Threads[th]; name != "" {
		d = appendBytesField(d, 5, units.ReplaceInvalidUTF8(name))
	}
	t.w.writeTrackDescriptor(tr.uuid, 0, "", appendBytesField(nil, fieldTrackThread, d))
	return tr
}

// newOpenCallTrack returns a new track for one call that has not returned.
func (t *traceBuilder) newOpenCallTrack(th origin.Thread, name string) *threadTrack {
	parent := t.findProcessTrack(th.Pid)
	tr := &threadTrack{uuid: t.newTrackUUID()}
	t.w.writeTrackDescriptor(tr.uuid, parent, fmt.Sprintf("%s of thread %d has not returned", name, th.Tid), nil)
	return tr
}

// findGPUTrack returns a track in the group of a GPU.
func (t *traceBuilder) findGPUTrack(device int32, kind string) uint64 {
	return t.findTrack(trackKey{device: device, kind: kind}, kind, nil)
}

// findCounterTrack returns the track of a counter in the group of a GPU, or of a process.
func (t *traceBuilder) findCounterTrack(key trackKey, counter []byte) uint64 {
	return t.findTrack(key, key.kind, counter)
}

// streamLane identifies the track with the work of a process on a stream.
type streamLane struct {
	stream   int64
	pid      int32
	device   int32
	captured bool // the work was captured into a graph
	onGPU    bool // the lane shows GPU times
	// copies is the direction of the copies that the lane shows, OpCopyToDevice or OpCopyToHost; else 0.
	copies activity.Op
}

// findLaneTrack returns the track of the work of a process on a stream.
func (t *traceBuilder) findLaneTrack(l streamLane) uint64 {
	if uuid, ok := t.lanes[l]; ok {
		return uuid
	}
	name, kind := "stream "+query.StreamName(l.stream), streamLaneKind
	switch {
	case l.captured:
		name, kind = "captured on "+name, captureLaneKind
	case l.onGPU:
		kind = gpuLaneKind
		switch l.copies {
		case activity.OpCopyToDevice:
			name += ", copies to the device"
		case activity.OpCopyToHost:
			name += ", copies to the host"
		}
	}
	if len(t.t.Facts.Processes) > 1 {
		name += fmt.Sprintf(" of process %d", l.pid)
	}
	uuid := t.findTrack(trackKey{l.device, kind, l.pid, l.stream, l.copies}, name+" ("+kind+")", nil)
	t.lanes[l] = uuid
	return uuid
}

// findGPULane returns the track of the operations of a stream at their times on the GPU.
func (t *traceBuilder) findGPULane(l streamLane) *threadTrack {
	if tr, ok := t.gpuLanes[l]; ok {
		return tr
	}
	tr := &threadTrack{uuid: t.findLaneTrack(l)}
	t.gpuLanes[l] = tr
	return tr
}

// findHostLane returns a track below that of a thread, or of a process if the tid is 0.
func (t *traceBuilder) findHostLane(l hostLane) *threadTrack {
	if tr, ok := t.hostLanes[l]; ok {
		return tr
	}
	var parent uint64
	if l.Tid == 0 {
		parent = t.findProcessTrack(l.Pid)
	} else {
		parent = t.findThreadTrack(l.Thread).uuid
	}
	tr := &threadTrack{uuid: t.newTrackUUID()}
	t.hostLanes[l] = tr
	t.w.writeTrackDescriptor(tr.uuid, parent, l.kind, nil)
	return tr
}

// Kinds of lanes. They are part of the track's name, because the instants on a lane are not GPU
// times.
const (
	gpuLaneKind     = "GPU time"
	streamLaneKind  = "order of calls, not GPU time"
	captureLaneKind = "put into a graph, not run"
)

// processTrackDevice is the value of trackKey.device for tracks that belong to a process, not to a
// GPU.
const processTrackDevice = math.MinInt32

// findTrack returns the track with a key. counter is the encoded CounterDescriptor of a counter
// track, or nil.
func (t *traceBuilder) findTrack(key trackKey, name string, counter []byte) uint64 {
	if uuid, ok := t.tracks[key]; ok {
		return uuid
	}
	var parent uint64
	if key.device == processTrackDevice {
		parent = t.findProcessTrack(key.pid)
	} else {
		parent = t.findGPUGroup(key.device)
	}
	uuid := t.newTrackUUID()
	t.tracks[key] = uuid
	rest := appendVarintField(nil, fieldTrackSiblingRank, gpuTrackRank(key.kind))
	if counter != nil {
		rest = appendBytesField(rest, fieldTrackCounter, counter)
	}
	t.w.writeTrackDescriptor(uuid, parent, name, rest)
	return uuid
}

// gpuTrackRank returns the position of a kind of track in the group of a GPU: errors first, then
// memory, streams, captured work and samples.
func gpuTrackRank(kind string) uint64 {
	switch {
	case kind == "Xid errors", kind == "failed allocations":
		return 0
	case strings.HasPrefix(kind, "live memory"), strings.HasPrefix(kind, allocatorCounterPrefix):
		return 1
	case kind == streamLaneKind, kind == gpuLaneKind:
		return 2
	case kind == captureLaneKind:
		return 3
	}
	return 4
}

// findGPUGroup returns the track that groups the tracks of a CUDA device.
func (t *traceBuilder) findGPUGroup(device int32) uint64 {
	if uuid, ok := t.gpus[device]; ok {
		return uuid
	}
	uuid := t.newTrackUUID()
	t.gpus[device] = uuid
	name := "GPU (unknown device)"
	if device >= 0 {
		name = "GPU " + t.t.DeviceLabel(device)
	}
	t.w.writeTrackDescriptor(uuid, 0, name, appendVarintField(nil, fieldTrackChildOrdering, childOrderingExplicit))
	return uuid
}

// findGpurecTrack returns the track with gpurec's own messages: lost calls, sampling, parts of the
// trace.
func (t *traceBuilder) findGpurecTrack() uint64 {
	if t.own == 0 {
		t.own = t.newTrackUUID()
		t.w.writeTrackDescriptor(t.own, 0, "gpurec", nil)
	}
	return t.own
}
