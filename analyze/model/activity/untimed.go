package activity

// untimedCalls are the calls of a stream whose operations have no channel, since the last wait for the stream.
type untimedCalls struct {
	pid, device     int32
	queue           int32 // the stream, or the copies of its context, see streamTable.queueOf; -1: several or unknown
	firstNs, lastNs int64 // starts of the calls, Unix ns; 0: there are none
	operations      int64 // that they add
}

// add adds a call that adds operations to a queue.
func (u *untimedCalls) add(c *Call, queue int32, operations int64) {
	if u.firstNs == 0 {
		u.pid, u.device, u.queue, u.firstNs = c.Pid, c.Device, queue, c.StartNs
	}
	if u.queue != queue || c.hasNoPlace() {
		u.queue = -1
	}
	u.lastNs = c.StartNs
	u.operations += operations
}

// endUntimed passes on the time in which operations of a stream without a channel may have run.
func (r *reader) endUntimed(b *streamBarrier, ns int64) {
	if u := &b.untimed; u.firstNs != 0 {
		if r.onUntimed != nil {
			r.onUntimed(u.pid, u.device, Interval{u.firstNs, ns})
		}
		r.addUntimedBurst(u, ns)
	}
	b.untimed = untimedCalls{}
}
