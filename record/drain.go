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

const (
	// pollInterval bounds how long records wait in the ring buffer; 64 MiB hold
	// 490,000 calls, so 5 ms are safe to 90 million calls a second.
	pollInterval = 5 * time.Millisecond
	// chunkBytes is what goes to the scribe at once.
	chunkBytes = 1 << 20
	// maxChunks bounds what waits between drain and scribe: 64 MiB.
	maxChunks = 64
)

// drain empties the ring buffer into chunks for the scribe until stop is closed and
// the buffer is empty. It only copies: nothing it does may take long.
type drain struct {
	reader *ringbuf.Reader
	births chan<- bpf.CudaProcessEvent // processes, which cannot wait for the scribe
	chunks chan<- []byte
	spare  <-chan []byte
	stop   chan struct{}
	done   chan struct{}
	err    error
}

func newDrain(events *ebpf.Map, chunks chan<- []byte, spare <-chan []byte, births chan<- bpf.CudaProcessEvent) (*drain, error) {
	reader, err := ringbuf.NewReader(events)
	if err != nil {
		return nil, fmt.Errorf("open ring buffer: %w", err)
	}
	return &drain{reader: reader, births: births, chunks: chunks, spare: spare, stop: make(chan struct{}), done: make(chan struct{})}, nil
}

func (d *drain) run() {
	defer close(d.done)
	defer close(d.chunks)
	var record ringbuf.Record
	chunk := d.chunk()
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
				chunk = d.chunk()
			}
			chunk = append(chunk, record.RawSample...)
			for len(chunk)%8 != 0 { // the scribe reads records in place
				chunk = append(chunk, 0)
			}
		}
		if len(chunk) > 0 {
			d.chunks <- chunk
			chunk = d.chunk()
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

// chunk returns an empty chunk, used or new.
func (d *drain) chunk() []byte {
	select {
	case c := <-d.spare:
		return c
	default:
		return make([]byte, 0, chunkBytes)
	}
}

// finish takes out what is left and waits for run to end.
func (d *drain) finish() error {
	close(d.stop)
	<-d.done
	return errors.Join(d.err, d.reader.Close())
}
