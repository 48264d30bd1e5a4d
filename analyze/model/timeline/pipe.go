package timeline

// batchSize is the number of values in a batch of a Pipe, and maxBatches the number of batches that exist at a time.
const batchSize, maxBatches = 256, 4

// Pipe passes values from one goroutine to another in order, in batches. One goroutine calls Next and End, and another
// one calls Receive.
type Pipe[T any] struct {
	full  chan []T
	empty chan []T
	batch []T // owned by the sender
}

// NewPipe returns an empty pipe.
func NewPipe[T any]() *Pipe[T] {
	p := &Pipe[T]{full: make(chan []T, maxBatches), empty: make(chan []T, maxBatches)}
	for range maxBatches - 1 {
		p.empty <- nil // memory is taken when it is needed
	}
	return p
}

// Next returns the place of the next value, which may have an old one. The value is sent by a later call of Next or End.
func (p *Pipe[T]) Next() *T {
	if len(p.batch) == batchSize {
		p.full <- p.batch
		p.batch = (<-p.empty)[:0]
	}
	if cap(p.batch) == 0 {
		p.batch = make([]T, 0, batchSize)
	}
	p.batch = p.batch[:len(p.batch)+1]
	return &p.batch[len(p.batch)-1]
}

// End sends the last values.
func (p *Pipe[T]) End() {
	p.full <- p.batch
	close(p.full)
}

// Receive calls yield for all values, until the sender has called End. The pointers are valid until yield returns.
func (p *Pipe[T]) Receive(yield func(*T)) {
	for batch := range p.full {
		for i := range batch {
			yield(&batch[i])
		}
		p.empty <- batch
	}
}
