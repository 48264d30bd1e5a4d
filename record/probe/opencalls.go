//go:build linux

package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/bpf"
)

// MarkCallsOpen marks calls that have not returned by atNs (CLOCK_MONOTONIC, ns) as open. It sets their
// durations up to that time.
func MarkCallsOpen(calls []bpf.CudaEvent, atNs int64) {
	for i := range calls {
		e := &calls[i]
		e.Flags |= uint8(bpf.CudaEventFlagsEVENT_OPEN)
		e.DurNs = uint64(atNs) - e.StartNs - e.DurNs // so far, DurNs was the time of holds
		e.Ptr, e.Bytes = EntryPtrAndBytes(e)
	}
}

// EntryPtrAndBytes returns pointer and bytes of a call that has not returned. A value is 0 if the
// function returns it through an out pointer.
func EntryPtrAndBytes(e *bpf.CudaEvent) (ptr, bytes uint64) {
	call, _, _, ok := bpf.FunctionByCookie(e.Call)
	if !ok {
		return 0, 0
	}
	if call.Ptr.From != uint8(bpf.CudaArgFromARG_OUT) {
		ptr = e.Ptr
	}
	if call.Bytes.From != uint8(bpf.CudaArgFromARG_OUT) {
		bytes = e.Bytes
	}
	return ptr, bytes
}

// OpenCalls returns the calls that have not returned, per thread from the outermost inwards.
func (p *Probes) OpenCalls() ([]bpf.CudaEvent, error) {
	var (
		open []bpf.CudaEvent
		id   uint64
		t    bpf.CudaThread
	)
	threads := p.Objects.Threads.Iterate()
	for threads.Next(&id, &t) {
		open = appendOpenCalls(open, &t)
	}
	if err := threads.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("read open calls: %w", err)
	}
	return open, nil
}
