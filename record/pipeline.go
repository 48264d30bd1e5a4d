//go:build linux

package record

import (
	"errors"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/ring"
	"github.com/gpurec/gpurec/record/rowwriter"
)

// pipeline moves records from the BPF programs to the file. The drain copies records out of the
// ring buffer; the row writer decodes and writes them. Each has its own goroutine.
type pipeline struct {
	drain  *ring.Drain
	writer *rowwriter.Writer
	// processEvents are forks, execs and first calls. They bypass the row writer, which may be
	// slow.
	processEvents chan bpf.CudaProcessEvent
	failures      chan error    // receives the first write error
	full          chan struct{} // receives an element when the recording reaches its size limit
}

// newPipeline makes a pipeline; run starts it. newPipeline sets the pool and the callbacks in opt.
func newPipeline(opt rowwriter.Options) (*pipeline, error) {
	p := &pipeline{
		processEvents: make(chan bpf.CudaProcessEvent, 4096),
		failures:      make(chan error, 1),
		full:          make(chan struct{}, 1),
	}
	pool, err := ring.NewChunkPool()
	if err != nil {
		return nil, err
	}
	opt.Pool = pool
	opt.OnFailure = func(err error) { p.failures <- err }
	opt.OnFull = func() { p.full <- struct{}{} }
	p.writer = rowwriter.New(opt)
	p.drain, err = ring.NewDrain(opt.Probes.Objects.Events, p.writer.Chunks, pool, p.processEvents)
	if err != nil {
		_ = pool.Close() // newPipeline returns the earlier error
		return nil, err
	}
	return p, nil
}

// run starts the goroutines of drain and row writer.
func (p *pipeline) run(rotateEvery time.Duration) {
	go p.writer.Run(rotateEvery)
	go p.drain.Run()
}

// drainAll drains the ring buffer and waits for both goroutines. It calls late for the remaining
// process events. After the last call of late, no rows may be sent to the row writer.
func (p *pipeline) drainAll(late func(e bpf.CudaProcessEvent)) error {
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

// close releases the resources of the pipeline.
func (p *pipeline) close() { p.writer.Close() }
