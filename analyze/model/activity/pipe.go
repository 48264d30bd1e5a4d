package activity

// A replay of works and what a report does with them take about as long. So the replay runs in a goroutine of its
// own, and passes works in batches.

// batchSize is the number of works in a batch, and maxBatches the number of batches that exist at a time.
const batchSize, maxBatches = 256, 4

// passedWork is a work, or a span of time in which untimed works may have run.
type passedWork struct {
	Work
	isSpan      bool
	pid, device int32
	span        Interval
}

// workPipe passes works from one goroutine to another in order.
type workPipe struct {
	full  chan []passedWork
	empty chan []passedWork
	batch []passedWork // owned by the sender
}

func newWorkPipe() *workPipe {
	p := &workPipe{full: make(chan []passedWork, maxBatches), empty: make(chan []passedWork, maxBatches)}
	for range maxBatches - 1 {
		p.empty <- nil // memory is taken when it is needed
	}
	return p
}

// next returns the place of the next work of the batch.
func (p *workPipe) next() *passedWork {
	if len(p.batch) == batchSize {
		p.full <- p.batch
		p.batch = (<-p.empty)[:0]
	}
	if cap(p.batch) == 0 {
		p.batch = make([]passedWork, 0, batchSize)
	}
	p.batch = p.batch[:len(p.batch)+1]
	return &p.batch[len(p.batch)-1]
}

// sendWork sends a work.
func (p *workPipe) sendWork(w *Work) {
	to := p.next()
	to.Work, to.isSpan = *w, false
}

// sendSpan sends a span of time.
func (p *workPipe) sendSpan(pid, device int32, span Interval) {
	to := p.next()
	to.isSpan, to.pid, to.device, to.span = true, pid, device, span
}

// end sends the last batch.
func (p *workPipe) end() {
	p.full <- p.batch
	close(p.full)
}

// receive calls yield and untimed, unless it is nil, for all that is sent.
func (p *workPipe) receive(yield func(*Work), untimed func(pid, device int32, span Interval)) {
	for batch := range p.full {
		for i := range batch {
			switch w := &batch[i]; {
			case !w.isSpan:
				yield(&w.Work)
			case untimed != nil:
				untimed(w.pid, w.device, w.span)
			}
		}
		p.empty <- batch
	}
}

// eachWorkAlongside is eachWork with the replay in another goroutine.
func (a *attempt) eachWorkAlongside(
	means map[durationKey]*Duration, yield func(*Work), untimed func(pid, device int32, span Interval),
) error {
	p := newWorkPipe()
	result := make(chan error, 1)
	go func() {
		result <- a.eachWork(means, p.sendWork, p.sendSpan)
		p.end()
	}()
	p.receive(yield, untimed)
	return <-result
}
