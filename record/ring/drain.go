//go:build linux

package ring

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/internal/pollfd"
	"github.com/gpurec/gpurec/record/clock"
)

// pollInterval is the longest time that records wait in the ring buffer. The BPF programs wake the drain earlier if a
// quarter of the buffer is full, and for process events.
const pollInterval = 25 * time.Millisecond

// Drain copies records from the ring buffer into chunks. It does no other work, so that the buffer
// does not fill up.
type Drain struct {
	reader        *ringbuf.Reader
	waiter        *pollfd.Waiter
	processEvents chan<- bpf.CudaProcessEvent // sent at once, before the records of calls
	chunks        chan<- []byte
	pool          *ChunkPool
	barriers      chan barrier
	stop          chan struct{}
	done          chan struct{}
	err           error

	// Of Run's goroutine.
	record  ringbuf.Record
	chunk   []byte
	pending *barrier
}

// barrier is a request to drain everything that is in the ring buffer now.
type barrier struct {
	left int           // bytes of records that are still in the ring buffer
	done chan struct{} // closed when their chunks have been sent
}

// NewDrain opens the ring buffer. Run sends records of calls, stacks and names in chunks to the
// channel chunks. It sends process events to processEvents.
func NewDrain(
	events *ebpf.Map,
	chunks chan<- []byte,
	pool *ChunkPool,
	processEvents chan<- bpf.CudaProcessEvent,
) (*Drain, error) {
	reader, err := ringbuf.NewReader(events)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	reader.SetDeadline(time.Unix(1, 0)) // reads never block
	waiter, err := pollfd.New(events.FD())
	if err != nil {
		reader.Close()
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	return &Drain{
		reader:        reader,
		waiter:        waiter,
		processEvents: processEvents,
		chunks:        chunks,
		pool:          pool,
		barriers:      make(chan barrier),
		stop:          make(chan struct{}),
		done:          make(chan struct{}),
	}, nil
}

// Run drains the ring buffer until Finish is called. It closes the channel of chunks when it
// returns.
func (d *Drain) Run() {
	defer close(d.done)
	defer close(d.chunks)
	d.chunk = d.pool.getChunk()
	for d.err == nil {
		d.waiter.Wait(time.Now().Add(clock.Share(pollInterval)), d.readAll)
		select {
		case <-d.stop:
			if d.reader.AvailableBytes() == 0 {
				return
			}
		default:
		}
	}
}

// readAll reads all available records, and sends them.
func (d *Drain) readAll() {
	for {
		err := d.reader.ReadInto(&d.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			d.err = fmt.Errorf("read ring buffer: %w", err)
			return
		}
		d.add(d.record.RawSample)
	}
	if len(d.chunk) > 0 {
		d.chunks <- d.chunk
		d.chunk = d.pool.getChunk()
	}
	d.updateBarrier(true)
}

// add sends a process event, or adds a record to the chunk. It sends the chunk when it is full.
func (d *Drain) add(record []byte) {
	if d.pending != nil {
		d.pending.left -= ringHeaderBytes + (len(record)+7)&^7
	}
	if isProcessEvent(record) {
		d.processEvents <- *(*bpf.CudaProcessEvent)(unsafe.Pointer(&record[0]))
		return
	}
	if len(d.chunk)+len(record)+8 > cap(d.chunk) {
		d.chunks <- d.chunk
		d.chunk = d.pool.getChunk()
		d.updateBarrier(false)
	}
	d.chunk = append(d.chunk, record...)
	for len(d.chunk)%8 != 0 { // align records to 8 bytes: the row writer reads them in place
		d.chunk = append(d.chunk, 0)
	}
}

// ringHeaderBytes is the size of the header of a record in the ring buffer. The kernel pads records to 8 bytes.
const ringHeaderBytes = 8

// updateBarrier ends a barrier whose records have been sent, and accepts the next one. empty says that the ring
// buffer was empty, and that all its records have been sent.
func (d *Drain) updateBarrier(empty bool) {
	if d.pending != nil && (empty || d.pending.left < 0) {
		close(d.pending.done)
		d.pending = nil
	}
	if d.pending == nil {
		select {
		case b := <-d.barriers:
			b.left = d.reader.AvailableBytes()
			d.pending = &b
		default:
		}
	}
}

// Barrier waits until all records that are in the ring buffer now have been sent to the channel of chunks. It
// returns false if that takes longer than limit, or if the drain has ended. Safe for concurrent use.
func (d *Drain) Barrier(limit time.Duration) bool {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	b := barrier{done: make(chan struct{})}
	select {
	case d.barriers <- b:
	case <-d.done:
		return false
	case <-timeout.C:
		return false
	}
	select {
	case <-b.done:
		return true
	case <-d.done: // it has drained everything
		return true
	case <-timeout.C:
		return false
	}
}

// isProcessEvent reports whether a record is a process event.
func isProcessEvent(sample []byte) bool {
	return len(sample) >= int(unsafe.Sizeof(bpf.CudaProcessEvent{})) &&
		bpf.CudaRecordKind(sample[0]) == bpf.CudaRecordKindRECORD_PROCESS
}

// Finish makes Run drain the remaining records, and waits until Run has returned. It closes the
// ring buffer.
func (d *Drain) Finish() error {
	close(d.stop)
	<-d.done
	return errors.Join(d.err, d.waiter.Close(), d.reader.Close())
}
