//go:build linux

package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/kernelargs"
)

// handleKey is the key of the map kernel_layouts: struct handle_key.
type handleKey struct{ Handle, Pid uint64 }

// SetKernelLayout makes launches read the values of these parameters, also those with more than 8 bytes.
func (p *Probes) SetKernelLayout(pid int32, function int64, l kernelargs.Layout) error {
	var layout bpf.CudaKernelLayout
	layout.Count = uint32(len(l))
	for i, parameter := range l[:min(len(l), len(layout.Size))] {
		layout.Size[i] = uint16(parameter.Size)
	}
	return p.Objects.KernelLayouts.Put(handleKey{uint64(function), uint64(uint32(pid))}, layout)
}

// ForgetKernelLayout forgets the parameters of a function. It returns an error if there are none.
func (p *Probes) ForgetKernelLayout(pid int32, function int64) error {
	return p.Objects.KernelLayouts.Delete(handleKey{uint64(function), uint64(uint32(pid))})
}

// LostArguments returns the number of launches whose arguments did not fit into the ring buffer.
func (p *Probes) LostArguments() int64 {
	var n uint64
	if p.Objects.ArgumentsLost == nil || p.Objects.ArgumentsLost.Get(&n) != nil {
		return 0
	}
	return int64(n)
}

// TakenArguments are the kept arguments of processes, in the order of launches.
type TakenArguments struct {
	Events []bpf.CudaArgumentsEvent
	// Launches is the number of launches whose arguments were read.
	Launches int64
}

// TakeArguments returns the kept arguments of the processes that pick selects, and forgets them and their streams.
// Later launches are kept again.
func (p *Probes) TakeArguments(pick func(pid uint32) bool) (taken TakenArguments, err error) {
	streams, err := p.keptStreams(pick)
	for i := range streams {
		err = errors.Join(err, ignoreMissing(p.Objects.KeptStreams.Delete(streams[i].key)))
		err = errors.Join(err, p.takeStream(&streams[i].value, &taken))
	}
	slices.SortFunc(taken.Events, func(a, b bpf.CudaArgumentsEvent) int {
		return cmp.Or(cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Tid, b.Tid))
	})
	return taken, errors.Join(err, p.unfreeze(pick))
}

// keptStream is an entry of the map kept_streams.
type keptStream struct {
	key   bpf.CudaArgumentsStream
	value bpf.CudaKeptStream
}

// maxIterations is how often keptStreams iterates at most.
const maxIterations = 4

// keptStreams returns the streams of the processes that pick selects.
func (p *Probes) keptStreams(pick func(pid uint32) bool) (list []keptStream, err error) {
	for round := 1; ; round++ {
		list = list[:0]
		var s keptStream
		entries := p.Objects.KeptStreams.Iterate()
		for entries.Next(&s.key, &s.value) {
			if pick(uint32(s.key.Pid)) {
				list = append(list, s)
			}
		}
		// New streams can end an iteration early.
		if err = entries.Err(); !errors.Is(err, ebpf.ErrIterationAborted) || round == maxIterations {
			return list, err
		}
	}
}

// takeStream adds the launches of a stream, clears their records, and lets another stream use them.
func (p *Probes) takeStream(s *bpf.CudaKeptStream, taken *TakenArguments) (err error) {
	taken.Launches += int64(s.Launches)
	var record, empty bpf.CudaArgumentsRecord
	for i := range min(uint64(p.keptLaunches), s.Launches) {
		at := s.Index*p.keptLaunches + uint32(i)
		if err := p.Objects.KeptArguments.Lookup(at, &record); err != nil {
			return err
		}
		if bpf.CudaRecordKind(record.Event.Kind) == bpf.CudaRecordKindRECORD_ARGUMENTS {
			taken.Events = append(taken.Events, record.Event)
		}
		if err := p.Objects.KeptArguments.Put(at, &empty); err != nil {
			return err
		}
	}
	return p.Objects.FreeStreams.Put(nil, s.Index)
}

// unfreeze lets the arguments of processes be kept again.
func (p *Probes) unfreeze(pick func(pid uint32) bool) (err error) {
	var pid uint32
	var one uint8
	var gone []uint32
	entries := p.Objects.FrozenProcesses.Iterate()
	for entries.Next(&pid, &one) {
		if pick(pid) {
			gone = append(gone, pid)
		}
	}
	err = entries.Err()
	for _, key := range gone {
		err = errors.Join(err, ignoreMissing(p.Objects.FrozenProcesses.Delete(key)))
	}
	return err
}

// ignoreMissing returns nil for the error of a key that is not in a map.
func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// CountArgumentLaunches returns the number of launches of the streams that TakeArguments has not forgotten.
func (p *Probes) CountArgumentLaunches() (n int64) {
	streams, _ := p.keptStreams(func(uint32) bool { return true }) // an incomplete count is corrected later
	for i := range streams {
		n += int64(streams[i].value.Launches)
	}
	return n
}

// Limits of the memory for kept arguments: 1,024 streams with 16 launches each take 19 MB.
const (
	maxKeptStreams = 1024
	minKeptStreams = 64
	maxKeptBytes   = 64 << 20
)

// sizeArgumentMaps sets the sizes of the maps for arguments. The kernel allocates all of their memory at once.
func (o *Options) sizeArgumentMaps(spec *ebpf.CollectionSpec) (streams uint32) {
	if !o.KernelArgs {
		spec.Maps["kernel_layouts"].MaxEntries = 1
	}
	if o.KeptLaunches == 0 {
		return 0
	}
	bytes := o.KeptLaunches * int(unsafe.Sizeof(bpf.CudaArgumentsRecord{}))
	streams = uint32(min(maxKeptStreams, max(minKeptStreams, maxKeptBytes/bytes)))
	spec.Maps["kept_streams"].MaxEntries, spec.Maps["free_streams"].MaxEntries = streams, streams
	spec.Maps["kept_arguments"].MaxEntries = streams * uint32(o.KeptLaunches)
	return streams
}

// fillFreeStreams makes all indexes of streams available.
func (p *Probes) fillFreeStreams(streams uint32) error {
	for i := range streams {
		if err := p.Objects.FreeStreams.Put(nil, i); err != nil {
			return fmt.Errorf("fill the queue of streams: %w", err)
		}
	}
	return nil
}
