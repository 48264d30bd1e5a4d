package activity

// A replay of operations and what a report does with them take about as long. So the replay runs in a goroutine of its
// own, and passes operations in batches.

// batchSize is the number of operations in a batch, and maxBatches the number of batches that exist at a time.
const batchSize, maxBatches = 256, 4

// passedOperation is an operation, or a span of time in which untimed operations may have run.
type passedOperation struct {
	Operation
	isSpan      bool
	pid, device int32
	span        Interval
}

// operationPipe passes operations from one goroutine to another in order.
type operationPipe struct {
	full  chan []passedOperation
	empty chan []passedOperation
	batch []passedOperation // owned by the sender
}

func newOperationPipe() *operationPipe {
	p := &operationPipe{full: make(chan []passedOperation, maxBatches), empty: make(chan []passedOperation, maxBatches)}
	for range maxBatches - 1 {
		p.empty <- nil // memory is taken when it is needed
	}
	return p
}

// next returns the place of the next operation of the batch.
func (p *operationPipe) next() *passedOperation {
	if len(p.batch) == batchSize {
		p.full <- p.batch
		p.batch = (<-p.empty)[:0]
	}
	if cap(p.batch) == 0 {
		p.batch = make([]passedOperation, 0, batchSize)
	}
	p.batch = p.batch[:len(p.batch)+1]
	return &p.batch[len(p.batch)-1]
}

// sendOperation sends an operation.
func (p *operationPipe) sendOperation(w *Operation) {
	to := p.next()
	to.Operation, to.isSpan = *w, false
}

// sendSpan sends a span of time.
func (p *operationPipe) sendSpan(pid, device int32, span Interval) {
	to := p.next()
	to.isSpan, to.pid, to.device, to.span = true, pid, device, span
}

// end sends the last batch.
func (p *operationPipe) end() {
	p.full <- p.batch
	close(p.full)
}

// receive calls yield and untimed, unless it is nil, for all that is sent.
func (p *operationPipe) receive(yield func(*Operation), untimed func(pid, device int32, span Interval)) {
	for batch := range p.full {
		for i := range batch {
			switch w := &batch[i]; {
			case !w.isSpan:
				yield(&w.Operation)
			case untimed != nil:
				untimed(w.pid, w.device, w.span)
			}
		}
		p.empty <- batch
	}
}

// eachOperationAlongside is eachOperation with the replay in another goroutine.
func (a *attempt) eachOperationAlongside(
	means map[durationKey]*Duration, yield func(*Operation), untimed func(pid, device int32, span Interval),
) error {
	p := newOperationPipe()
	result := make(chan error, 1)
	go func() {
		result <- a.eachOperation(means, p.sendOperation, p.sendSpan)
		p.end()
	}()
	p.receive(yield, untimed)
	return <-result
}
