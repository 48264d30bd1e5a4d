package perfetto

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Fields of TrackDescriptor beyond those that every track has.
const (
	trackProcess       = 3
	trackThread        = 4
	trackCounter       = 8
	trackChildOrdering = 11
	trackSiblingRank   = 12

	orderExplicit = 3
	unitSizeBytes = 3
)

// byteCounter is a CounterDescriptor for bytes.
var byteCounter = appendVarint(nil, 3, unitSizeBytes)

// counterUnit returns the CounterDescriptor for a metric, by the unit that its name
// ends in.
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

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// threadCounter is a CounterDescriptor for threads.
var threadCounter = appendBytes(nil, 6, "threads")

// traceTracks are the tracks that a part of a trace has.
type traceTracks struct {
	nextUUID  uint64
	processes map[int32]uint64
	threads   map[origin.Thread]*threadTrack
	gpus      map[int32]uint64
	tracks    map[trackKey]uint64
	lanes     map[lane]uint64
	own       uint64 // track of gpurec itself
}

func newTraceTracks() traceTracks {
	return traceTracks{
		processes: make(map[int32]uint64), threads: make(map[origin.Thread]*threadTrack), gpus: make(map[int32]uint64),
		tracks: make(map[trackKey]uint64), lanes: make(map[lane]uint64),
	}
}

func (p *trace) uuid() uint64 {
	p.nextUUID++
	return p.nextUUID
}

// processTrack returns the track of a process.
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

// threadTrack returns the track of a thread, under that of its process.
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

// openTrack returns a track for one call that has not returned.
func (p *trace) openTrack(th origin.Thread, name string) *threadTrack {
	parent := p.processTrack(th.Pid)
	tr := &threadTrack{uuid: p.uuid()}
	p.w.track(tr.uuid, parent, fmt.Sprintf("%s of thread %d has not returned", name, th.Tid), nil)
	return tr
}

// gpuTrack returns a track under a GPU's group.
func (p *trace) gpuTrack(device int32, what string) uint64 {
	return p.track(trackKey{device: device, what: what}, what, nil)
}

// counterTrack returns the track of a counter under a GPU's group, or under a process.
func (p *trace) counterTrack(key trackKey, counter []byte) uint64 {
	return p.track(key, key.what, counter)
}

// lane is where work of a process on a stream is shown.
type lane struct {
	stream   int64
	pid      int32
	device   int32
	captured bool
}

// laneTrack returns the track of a stream, or of what was captured on it.
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

// What the instants on a stream are, so that nobody takes them for times of the GPU.
const (
	laneKind    = "order of calls, not GPU time"
	captureKind = "put into a graph, not run"
)

// processTracks stands for the device of tracks that are under a process.
const processTracks = math.MinInt32

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
	rest := appendVarint(nil, trackSiblingRank, gpuRank(key.what))
	if counter != nil {
		rest = appendBytes(rest, trackCounter, counter)
	}
	p.w.track(uuid, parent, name, rest)
	return uuid
}

// gpuRank orders the tracks of a GPU: errors, memory, streams, samples.
func gpuRank(what string) uint64 {
	switch {
	case what == "Xid errors", what == "failed allocations":
		return 0
	case strings.HasPrefix(what, "live memory"), strings.HasPrefix(what, allocatorTrack):
		return 1
	case what == laneKind:
		return 2
	case what == captureKind:
		return 3
	}
	return 4
}

func (p *trace) gpu(device int32) uint64 {
	if uuid, ok := p.gpus[device]; ok {
		return uuid
	}
	uuid := p.uuid()
	p.gpus[device] = uuid
	name := "GPU (which is not known)"
	if device >= 0 {
		name = "GPU " + p.t.DeviceLabel(device)
	}
	p.w.track(uuid, 0, name, appendVarint(nil, trackChildOrdering, orderExplicit))
	return uuid
}

// ownTrack is where gpurec says what it does not know.
func (p *trace) ownTrack() uint64 {
	if p.own == 0 {
		p.own = p.uuid()
		p.w.track(p.own, 0, "gpurec", nil)
	}
	return p.own
}
