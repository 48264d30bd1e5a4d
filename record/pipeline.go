//go:build linux

package record

import (
	"errors"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/ring"
	"github.com/gpurec/gpurec/record/rowwriter"
)

// pipeline takes what the BPF programs send to the file: the drain copies records out of the ring
// buffer, the row writer decodes and writes them. Both have a goroutine each.
type pipeline struct {
	drain  *ring.Drain
	writer *rowwriter.Writer
	// processEvents are forks, execs and first calls, which cannot wait for the row writer.
	processEvents chan bpf.CudaProcessEvent
	failures      chan error    // has the error when the disk refuses
	full          chan struct{} // has an element when the recording has reached its size
}

// newPipeline makes a pipeline that does not run yet. It fills in the pool and the callbacks of the
// options.
func newPipeline(opt rowwriter.Options) (*pipeline, error) {
	p := &pipeline{
		processEvents: make(chan bpf.CudaProcessEvent, 4096),
		failures:      make(chan error, 1),
		full:          make(chan struct{}, 1),
	}
	pool, err := ring.NewPool()
	if err != nil {
		return nil, err
	}
	opt.Pool = pool
	opt.OnFailure = func(err error) { p.failures <- err }
	opt.OnFull = func() { p.full <- struct{}{} }
	p.writer = rowwriter.New(opt)
	p.drain, err = ring.NewDrain(opt.Probes.Objects.Events, p.writer.Chunks, pool, p.processEvents)
	if err != nil {
		_ = pool.Close() // the error that matters is already there
		return nil, err
	}
	return p, nil
}

// run starts the goroutines.
func (p *pipeline) run(rotateEvery time.Duration) {
	go p.writer.Run(rotateEvery)
	go p.drain.Run()
}

// empty drains what is left in the ring buffer, with late for events of processes, and waits for
// both goroutines. No rows may be sent any more when late was called last.
func (p *pipeline) empty(late func(e bpf.CudaProcessEvent)) error {
	done := make(chan error, 1)
	go func() { done <- p.drain.Finish() }()
	for {
		select {
		case e := <-p.processEvents:
			late(e)
		case err := <-done:
			return errors.Join(err, p.writer.Wait())
		}
	}
}

// close frees what the pipeline holds.
func (p *pipeline) close() { p.writer.Close() }
