package rankstate

import (
	"cmp"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
)

// describeHost sets what the host of a rank does, and marks the operations that it waits for.
func (a *addition) describeHost(rank int) {
	r, g := &a.state.Ranks[rank], &a.state.Graph.Ranks[rank]
	pid, shift := r.Member.Pid, a.shift(r.Member.Host)
	h := a.host[pid]
	if h == nil {
		h = &hostCalls{}
	}
	r.LastCallNs = g.LastNs
	if h.lastNs > 0 {
		r.LastCallNs = max(r.LastCallNs, h.lastNs-shift)
	}
	var tid int32
	if n := len(r.Calls); n > 0 {
		tid = r.Calls[n-1].Tid
		if r.Calls[n-1].IsOpen {
			g.Host, r.Site = waitgraph.HostWaits, r.Calls[n-1].Site
			r.Does, r.SinceNs, r.IsInCall = "is in the call", r.Calls[n-1].StartNs, true
		}
	}
	for i := range h.open {
		c := &h.open[i]
		g.Host, tid, r.IsInCall = waitgraph.HostWaits, c.tid, true
		r.Does, r.SinceNs, r.Site, r.Stack = "waits in "+c.name, c.startNs-shift, a.t.SiteOfStack(c.stack), c.stack
	}
	a.markUnfinished(rank, h)
	if snapshots := a.snapshots[pid]; len(snapshots) > 0 && r.DeadNs == 0 {
		snapshot := &snapshots[len(snapshots)-1]
		if t := snapshot.Main(tid); t != nil && snapshot.AtNs-shift >= g.LastNs {
			a.describeThread(r, g, snapshot, t, snapshots)
		}
	}
}

// describeThread sets what the thread of a snapshot does.
func (a *addition) describeThread(
	r *Rank, g *waitgraph.Rank, snapshot *threadstate.Snapshot, t *threadstate.Thread, snapshots []threadstate.Snapshot,
) {
	site := cmp.Or(a.t.Stacks.Sites[t.Stack], t.Site())
	if g.Host == waitgraph.HostWaits && r.Site != "" {
		site = r.Site
	}
	r.Does, r.Site, r.Stack = snapshot.Why(t), site, t.Stack
	r.SinceNs = a.toNs - threadstate.SinceNs(snapshots, t, a.toNs) - a.shift(r.Member.Host)
	r.IsInCall = r.IsInCall || t.Wait.CUDACall != "" || strings.HasPrefix(t.Collective(), "nccl")
	switch {
	case t.Wait.CUDACall != "" || t.Collective() != "":
		g.Host = waitgraph.HostWaits
	case g.Host == waitgraph.HostUnknown:
		g.Host = waitgraph.HostElsewhere
	}
}

// markUnfinished marks the last operation of each stream that the host waits for.
func (a *addition) markUnfinished(rank int, h *hostCalls) {
	operations := a.state.Graph.Ranks[rank].Operations
	calls := a.state.Ranks[rank].Calls
	last := make(map[int64]int)
	for i := range operations {
		last[operations[i].Stream] = i
	}
	for stream, i := range last {
		for k := i; k >= 0 && operations[k].Order == operations[i].Order; k-- {
			onRecording := calls[k].StartNs + a.shift(a.state.Ranks[rank].Member.Host)
			if operations[k].Progress == waitgraph.Launched && h.waitsForLast(stream, onRecording) {
				operations[k].Progress = waitgraph.Unfinished
			}
		}
	}
}
