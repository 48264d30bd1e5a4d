//go:build linux

package probe

import (
	"errors"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
)

// notFound is NOT_FOUND of event.h.
const notFound = ^uint64(0)

// SetAllocatorSource records the allocator of a process by the functions of this library, unless
// an event of it came before.
func (p *Probes) SetAllocatorSource(lib *library.Library, pid int) {
	if lib.Kind == library.Driver || pid == EveryProcess {
		return
	}
	a := bpf.CudaProcessAllocator{StatsOffset: notFound, Source: uint32(lib.Source())}
	_ = p.Objects.Allocators.Update(uint32(pid), a, ebpf.UpdateNoExist) // else the first event will tell
}

// AllocatorSource returns the source by which the allocator of a process is recorded; that of lib
// if there was no event yet.
func (p *Probes) AllocatorSource(lib *library.Library, pid int) bpf.CudaAllocatorSource {
	var a bpf.CudaProcessAllocator
	if p.Objects.Allocators.Lookup(uint32(pid), &a) != nil {
		return lib.Source()
	}
	return bpf.CudaAllocatorSource(a.Source)
}

// AttachReports probes the reports of one process, to find the totals of its allocators. The caller
// closes the link.
func (p *Probes) AttachReports(reports *library.Library, pid int) (link.Link, error) {
	if reports == nil {
		return nil, errors.New("libc10.so is not mapped")
	}
	if reports.Missing != "" {
		return nil, errors.New(reports.Missing)
	}
	executable, err := link.OpenExecutable(reports.Executable())
	if err != nil {
		return nil, err
	}
	at := reports.Probes[0].FileOffset
	if p.How == privilege.AttachMulti {
		return executable.UprobeMulti(
			nil,
			p.Objects.AllocatorReport,
			&link.UprobeMultiOptions{Addresses: []uint64{at}, PID: uint32(pid)},
		)
	}
	return executable.Uprobe("", p.Objects.AllocatorReport, &link.UprobeOptions{Address: at, PID: pid})
}

// SetStatsOffset sets the offset at which the allocators of a process keep their totals. It has no
// effect without an allocator that is recorded by record_trace.
func (p *Probes) SetStatsOffset(pid int, at uint64) {
	var a bpf.CudaProcessAllocator
	if p.Objects.Allocators.Lookup(uint32(pid), &a) != nil {
		return // totals are -1, not known
	}
	a.StatsOffset = at
	_ = p.Objects.Allocators.Update(uint32(pid), a, ebpf.UpdateExist) // it may be gone
}

// FindStatsOffset returns the offset at which the allocators of a process keep their totals, once it is
// known.
func (p *Probes) FindStatsOffset(pid int) (at uint64, ok bool) {
	var seen bpf.CudaAllocatorSearch
	if p.Objects.AllocatorSearches.Lookup(uint32(pid), &seen) != nil {
		return 0, false
	}
	return findLayout(&seen)
}

// ForgetStatsOffset forgets where the allocators of a process keep their totals.
func (p *Probes) ForgetStatsOffset(pid int) {
	p.SetStatsOffset(pid, notFound)
	_ = p.Objects.AllocatorSearches.Delete(uint32(pid)) // there may be none
}

// ForgetAllocatorSource removes the source by which the allocator of a process is recorded.
func (p *Probes) ForgetAllocatorSource(pid int) {
	_ = p.Objects.Allocators.Delete(uint32(pid)) // it may be gone already
}

// minLooks is how often a word must have been equal to a total to be taken for it.
const minLooks = 32

// statArrayWords is STAT_ARRAY_WORDS of allocator.h.
const statArrayWords = 12

// findLayout returns the first word that was always the allocated bytes, if that one array
// later was always the reserved bytes: in an array the current value of all pools is first.
func findLayout(seen *bpf.CudaAllocatorSearch) (at uint64, ok bool) {
	if seen.Comparisons < minLooks {
		return 0, false
	}
	isSet := func(words []uint64, i int) bool { return i < 64*len(words) && words[i/64]>>(i%64)&1 != 0 }
	for piece, word := range seen.Allocated {
		for ; word != 0; word &= word - 1 {
			i := 64*piece + bits.TrailingZeros64(word)
			if isSet(seen.Reserved[:], i+statArrayWords) {
				return uint64(8 * i), true
			}
		}
	}
	return 0, false
}
