//go:build linux

package record

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gpurec/gpurec/bpf"
)

// pollInterval bounds how long records wait in the ring buffer; 32 MiB hold
// 245,000 calls, so 5 ms are safe to 45 million calls a second.
const pollInterval = 5 * time.Millisecond

// drain empties the ring buffer into chunks for the scribe until stop is closed and
// the buffer is empty. It only copies: nothing it does may take long.
type drain struct {
	reader *ringbuf.Reader
	births chan<- bpf.CudaProcessEvent // processes, which cannot wait for the scribe
	chunks chan<- []byte
	pool   *chunkPool
	stop   chan struct{}
	done   chan struct{}
	err    error
}

func newDrain(events *ebpf.Map, chunks chan<- []byte, pool *chunkPool, births chan<- bpf.CudaProcessEvent) (*drain, error) {
	reader, err := ringbuf.NewReader(events)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	return &drain{reader: reader, births: births, chunks: chunks, pool: pool, stop: make(chan struct{}), done: make(chan struct{})}, nil
}

func (d *drain) run() {
	defer close(d.done)
	defer close(d.chunks)
	var record ringbuf.Record
	chunk := d.pool.get()
	for {
		d.reader.SetDeadline(time.Now().Add(pollInterval))
		// Everything there is now, then up to pollInterval of waiting for more.
		for {
			err := d.reader.ReadInto(&record)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				d.err = fmt.Errorf("read ring buffer: %w", err)
				return
			}
			if isBirth(record.RawSample) {
				d.births <- *(*bpf.CudaProcessEvent)(unsafe.Pointer(&record.RawSample[0]))
				continue
			}
			if len(chunk)+len(record.RawSample)+8 > cap(chunk) {
				d.chunks <- chunk
				chunk = d.pool.get()
			}
			chunk = append(chunk, record.RawSample...)
			for len(chunk)%8 != 0 { // the scribe reads records in place
				chunk = append(chunk, 0)
			}
		}
		if len(chunk) > 0 {
			d.chunks <- chunk
			chunk = d.pool.get()
		}
		select {
		case <-d.stop:
			if d.reader.AvailableBytes() == 0 {
				return
			}
		default:
		}
	}
}

func isBirth(sample []byte) bool {
	return len(sample) >= int(unsafe.Sizeof(bpf.CudaProcessEvent{})) && bpf.CudaRecordKind(sample[0]) == bpf.CudaRecordKindRECORD_PROCESS
}

// finish takes out what is left and waits for run to end.
func (d *drain) finish() error {
	close(d.stop)
	<-d.done
	return errors.Join(d.err, d.reader.Close())
}
