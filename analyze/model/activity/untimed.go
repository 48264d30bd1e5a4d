package activity

// untimedCalls are the calls of a stream whose works have no channel, since the last wait for the stream.
type untimedCalls struct {
	pid, device     int32
	firstNs, lastNs int64 // starts of the calls, Unix ns; 0: there are none
}

// add adds a call.
func (u *untimedCalls) add(c *Call) {
	if u.firstNs == 0 {
		u.pid, u.device, u.firstNs = c.Pid, c.Device, c.StartNs
	}
	u.lastNs = c.StartNs
}

// endUntimed passes on the time in which works of a stream without a channel may have run.
func (r *reader) endUntimed(b *streamBarrier, ns int64) {
	if u := &b.untimed; u.firstNs != 0 && r.onUntimed != nil {
		r.onUntimed(u.pid, u.device, Interval{u.firstNs, ns})
	}
	b.untimed = untimedCalls{}
}
