package analyze

import (
	"fmt"
	"strings"
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
	return appendBytes(nil, 6, validUTF8(unit))
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (p *trace) uuid() uint64 {
	p.nextUUID++
	return p.nextUUID
}

// threadTrack returns the track of a thread, under that of its process.
func (p *trace) threadTrack(th thread) *threadTrack {
	if tr, ok := p.threads[th]; ok {
		return tr
	}
	if _, ok := p.processes[th.pid]; !ok {
		uuid := p.uuid()
		p.processes[th.pid] = uuid
		d := appendVarint(nil, 1, uint64(th.pid))
		d = appendBytes(d, 6, validUTF8(p.t.facts.processes[th.pid].Name))
		p.w.track(uuid, 0, "", appendBytes(nil, trackProcess, d))
	}
	tr := &threadTrack{uuid: p.uuid()}
	p.threads[th] = tr
	d := appendVarint(nil, 1, uint64(th.pid))
	d = appendVarint(d, 2, uint64(th.tid))
	if name := p.t.facts.threads[th]; name != "" {
		d = appendBytes(d, 5, validUTF8(name))
	}
	p.w.track(tr.uuid, 0, "", appendBytes(nil, trackThread, d))
	return tr
}

// gpuTrack returns a track under a GPU's group; counter is its CounterDescriptor.
func (p *trace) gpuTrack(device int32, what string, counter []byte) uint64 {
	return p.track(trackKey{device: device, what: what}, what, counter)
}

// laneTrack returns the track of a stream.
func (p *trace) laneTrack(device, pid int32, stream int64) uint64 {
	name := "stream " + streamName(stream)
	if len(p.t.facts.processes) > 1 {
		name += fmt.Sprintf(" of process %d", pid)
	}
	return p.track(trackKey{device, laneKind, pid, stream}, name+" ("+laneKind+")", nil)
}

// laneKind says what the instants on a stream are, so that nobody takes them for
// times of the GPU.
const laneKind = "order of calls, not GPU time"

func (p *trace) track(key trackKey, name string, counter []byte) uint64 {
	if uuid, ok := p.tracks[key]; ok {
		return uuid
	}
	parent := p.gpu(key.device)
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
	}
	return 3
}

func (p *trace) gpu(device int32) uint64 {
	if uuid, ok := p.gpus[device]; ok {
		return uuid
	}
	uuid := p.uuid()
	p.gpus[device] = uuid
	name := "GPU (which is not known)"
	if device >= 0 {
		name = "GPU " + p.t.deviceLabel(device)
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
