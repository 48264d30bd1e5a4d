package idle

// queue has the latest operations of a stream on a channel. Operations in a queue run one after the other, without
// pauses but those in which the stream waits for something else, or the host is late.
type queue struct {
	// run are the operations since the last one with a measured start. Later operations move them.
	run []placed
	// unknownNs is the first call of operations without a known start since then; 0: there is none.
	unknownNs int64
}

const (
	maxRun = 256
	// launchedNs is the time after which a launch has certainly reached the GPU.
	launchedNs = 20_000
)

// endNs returns the probable end of the last operation, Unix ns.
func (q *queue) endNs() int64 {
	if len(q.run) == 0 {
		return 0
	}
	return q.run[len(q.run)-1].endNs
}

// add adds the next operation. It calls yield for the operations whose times no later operation changes.
func (q *queue) add(at *placed, yield func(*placed)) {
	if n := len(q.run); n > 0 {
		last := &q.run[n-1]
		if !last.hasEnd {
			last.possible.HiNs = max(last.possible.HiNs, at.call.startHiNs)
			last.longestNs = float64(last.possible.WidthNs())
		}
		slackNs := at.startNs - pauseNs - last.endNs
		switch waited := at.call.hold == nil && at.call.callNs+launchedNs < at.startNs; {
		case waited && last.isLimited:
			if at.call.callNs < last.endNs && at.isStartMeasured {
				last.extend(slackNs)
			}
		case waited && at.isStartMeasured && at.call.callNs < last.possible.HiNs:
			q.move(slackNs)
		}
	}
	if at.isStartMeasured || len(q.run) >= maxRun {
		q.flush(yield)
	}
	q.run = append(q.run, *at)
	if last := &q.run[len(q.run)-1]; last.measuredEndNs > last.endNs {
		q.move(last.measuredEndNs - last.endNs)
		last.endNs = max(last.endNs, last.measuredEndNs)
	}
}

// flush yields all operations.
func (q *queue) flush(yield func(*placed)) {
	for i := range q.run {
		yield(&q.run[i])
	}
	q.run = q.run[:0]
}

// move makes the last operation end later by ns: the latest operation that waited for something else, and all after
// it, ran later. If there is none, the last operation took longer.
func (q *queue) move(ns int64) {
	if ns <= 0 {
		return
	}
	for i := len(q.run) - 1; i >= 0; i-- {
		if q.run[i].isStartMeasured {
			break
		}
		if q.run[i].call.hold == nil {
			continue
		}
		for k := i; k < len(q.run); k++ {
			at := &q.run[k]
			moveNs := max(0, min(ns, at.call.startHiNs-at.startNs))
			at.startNs, at.endNs = at.startNs+moveNs, at.endNs+moveNs
			at.possible.HiNs = max(at.possible.HiNs, at.endNs)
		}
		return
	}
	q.run[len(q.run)-1].extend(ns)
}

// extend makes an operation take longer by ns.
func (p *placed) extend(ns int64) {
	if ns > 0 && !p.isMeasured {
		p.endNs += ns
		p.possible.HiNs = max(p.possible.HiNs, p.endNs)
		p.longestNs = max(p.longestNs, float64(p.endNs-p.startNs))
	}
}
