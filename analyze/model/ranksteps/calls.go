package ranksteps

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// callKind is the role of a call in the time of a host.
type callKind uint8

const (
	callWait       callKind = iota // waits for the GPU
	callCopy                       // copies, without a wait for earlier work
	callLong                       // another call that blocked the host for longLaunchNs
	callCollective                 // no call of the driver: a wait for other ranks on the host, as with gloo
)

// hostCall is a call in which the host may be blocked.
type hostCall struct {
	startNs, durNs int64
	bytes          int64 // copied between host and device
	kind           callKind
}

// longLaunchNs is the duration from which on a launch is taken to wait for room in the queue of the GPU.
const longLaunchNs = 200_000

// maxHostCalls bounds the calls that are kept for a rank. Further ones are left out.
const maxHostCalls = 1 << 22

// readHostCalls reads the calls of the processes in which the host may be blocked.
func readHostCalls(t *timeline.Timeline, byPid map[int32]*rank) error {
	r := callReader{launches: len(t.Facts.Sampling.NoLaunches) == 0}
	for _, s := range t.Calls {
		r.addGroup(s.Group, byPid)
		if err := s.Group.Err(); err != nil {
			return t.WrapReadError(err)
		}
	}
	for _, k := range byPid {
		slices.SortStableFunc(k.calls, func(a, b hostCall) int { return cmp.Compare(a.startNs, b.startNs) })
	}
	return nil
}

// callReader has the columns of a row group.
type callReader struct {
	launches         bool // long launches count; they do not if only some of them are recorded
	kind, name, copy format.Strings
	start, dur       []int64
	parent, bytes    []int64
	pid, flags       []int32
}

// addGroup adds the calls of a row group.
func (r *callReader) addGroup(g *format.Group, byPid map[int32]*rank) {
	r.kind, r.name, r.copy = g.StringsInto(
		"kind",
		r.kind,
	), g.StringsInto(
		"name",
		r.name,
	), g.StringsInto(
		"copy_kind",
		r.copy,
	)
	r.start, r.dur, r.parent = g.Int64(
		"start_ns",
		r.start,
	), g.Int64(
		"dur_ns",
		r.dur,
	), g.Int64(
		"parent_start_ns",
		r.parent,
	)
	r.pid, r.flags = g.Int32("pid", r.pid), g.Int32("flags", r.flags)
	r.bytes = g.Int64("bytes", r.bytes)
	if g.Err() != nil {
		return
	}
	isWait := make([]bool, len(r.name.Dict))
	for i, name := range r.name.Dict {
		isWait[i] = strings.HasSuffix(catalog.BaseFunctionName(name), "Synchronize")
	}
	const unknown = format.FlagNoReturn | format.FlagAbandoned | format.FlagCaptured
	for i, at := range r.start {
		k := byPid[r.pid[i]]
		if k == nil || r.flags[i]&unknown != 0 || r.dur[i] <= 0 || len(k.calls) >= maxHostCalls {
			continue
		}
		c := hostCall{startNs: at, durNs: r.dur[i]}
		switch r.kind.At(i) {
		case format.KindSync:
			if !isWait[r.name.Index[i]] {
				continue
			}
		case format.KindMemcpy:
			if r.parent[i] != 0 {
				continue
			}
			direction := r.copy.At(i)
			if direction != "DtoH" { // a copy to the host waits for the work before it
				c.kind = callCopy
			}
			if direction == "DtoH" || direction == "HtoD" {
				c.bytes = max(0, r.bytes[i])
			}
		case format.KindLaunch:
			if !r.launches || c.durNs < longLaunchNs {
				continue
			}
			c.kind = callLong
		default:
			continue
		}
		k.calls = append(k.calls, c)
	}
}

// addCalls adds the calls of a rank to its steps.
func (r *rank) addCalls() {
	for i := range r.calls {
		c := &r.calls[i]
		if s := r.stepAt(c.startNs); s >= 0 {
			r.steps[s].copyBytes += c.bytes
		}
		r.addSpan(c.startNs, c.startNs+c.durNs, func(s *stepSum, ns int64) {
			switch c.kind {
			case callCopy:
				s.hostCopyNs += ns
			case callCollective:
				s.hostCollectiveNs += ns
				s.blockedNs += ns
			default:
				s.blockedNs += ns
			}
		})
	}
	for i := range r.operations {
		if s := r.stepAt(r.operations[i].StartNs); s >= 0 {
			r.steps[s].collectives++
		}
	}
}

// addSpan divides a span of time over the steps that it touches.
func (r *rank) addSpan(fromNs, toNs int64, add func(s *stepSum, ns int64)) {
	fromNs = max(fromNs, r.starts[0])
	for s := r.stepAt(fromNs); s >= 0 && s < len(r.steps) && r.starts[s] < toNs; s++ {
		add(&r.steps[s], min(toNs, r.starts[s+1])-max(fromNs, r.starts[s]))
	}
}
