//go:build linux

package probe

import (
	"errors"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
)

// unknownStatsOffset means that the offset of PyTorch's allocator statistics is unknown:
// OFFSET_UNKNOWN of event.h.
const unknownStatsOffset = ^uint64(0)

// SetAllocatorSource sets the library whose function reports the allocator events of a process.
// It has no effect after the process's first allocator event, and for other libraries.
func (p *Probes) SetAllocatorSource(lib *library.Library, pid int) {
	if lib.Kind != library.KindAllocator && lib.Kind != library.KindReports || pid == EveryProcess {
		return
	}
	a := bpf.CudaProcessAllocator{StatsOffset: unknownStatsOffset, Source: uint32(lib.AllocatorSource())}
	_ = p.Objects.Allocators.Update(uint32(pid), a, ebpf.UpdateNoExist) // an existing source is kept
}

// AllocatorSource returns the allocator source of a process. Before the process's first allocator
// event it returns the source of lib.
func (p *Probes) AllocatorSource(lib *library.Library, pid int) bpf.CudaAllocatorSource {
	var a bpf.CudaProcessAllocator
	if p.Objects.Allocators.Lookup(uint32(pid), &a) != nil {
		return lib.AllocatorSource()
	}
	return bpf.CudaAllocatorSource(a.Source)
}

// AttachReports probes c10::reportMemoryUsageToProfiler in one process. The probe finds the offset
// of the allocator's statistics. The caller closes the link.
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

// SetStatsOffset sets the offset, in bytes, of the statistics in a process's allocator objects.
// Only events of record_trace use the offset.
func (p *Probes) SetStatsOffset(pid int, at uint64) {
	var a bpf.CudaProcessAllocator
	if p.Objects.Allocators.Lookup(uint32(pid), &a) != nil {
		return // no state of this process: its totals are recorded as -1, unknown
	}
	a.StatsOffset = at
	_ = p.Objects.Allocators.Update(uint32(pid), a, ebpf.UpdateExist) // the entry may have been deleted
}

// FindStatsOffset returns the offset, in bytes, of the statistics in a process's allocator objects.
// ok is false while the search is not finished.
func (p *Probes) FindStatsOffset(pid int) (at uint64, ok bool) {
	var search bpf.CudaAllocatorSearch
	if p.Objects.AllocatorSearches.Lookup(uint32(pid), &search) != nil {
		return 0, false
	}
	return findMatchingOffset(&search)
}

// ForgetStatsOffset deletes the statistics offset of a process and its search for the offset.
func (p *Probes) ForgetStatsOffset(pid int) {
	p.SetStatsOffset(pid, unknownStatsOffset)
	_ = p.Objects.AllocatorSearches.Delete(uint32(pid)) // the search may not exist
}

// ForgetAllocatorSource deletes the allocator source of a process, after exec for example.
func (p *Probes) ForgetAllocatorSource(pid int) {
	_ = p.Objects.Allocators.Delete(uint32(pid)) // the entry may have been deleted
}

// AllocatorBeginning is the beginning of the allocator events of one process and device.
type AllocatorBeginning struct {
	Pid int
	// Missed is the number of events before the first recorded one, from the allocator's own
	// statistics. format.UnknownMissed: they could not be read yet.
	Missed int64
}

// AllocatorBeginnings returns the beginnings of allocator events. It returns those with a known number
// of events once.
func (p *Probes) AllocatorBeginnings() []AllocatorBeginning {
	var (
		list []AllocatorBeginning
		key  uint64
		b    bpf.CudaAllocatorBeginning
	)
	entries := p.Objects.AllocatorBeginnings.Iterate()
	for entries.Next(&key, &b) {
		list = append(list, AllocatorBeginning{int(key >> 32), countMissed(&b)})
		if b.IsRead != 0 {
			_ = p.Objects.AllocatorBeginnings.Delete(key) // the iteration continues with the next key
		}
	}
	return list
}

// ForgetAllocatorBeginnings deletes the beginnings of a process that has exited: its pid may be reused.
func (p *Probes) ForgetAllocatorBeginnings(pid int) {
	var (
		key uint64
		b   bpf.CudaAllocatorBeginning
	)
	entries := p.Objects.AllocatorBeginnings.Iterate()
	for entries.Next(&key, &b) {
		if int(key>>32) == pid {
			_ = p.Objects.AllocatorBeginnings.Delete(key) // the iteration continues with the next key
		}
	}
}

// countMissed compares the recorded events with the allocator's statistics. Actions that the
// statistics do not count are not compared.
func countMissed(b *bpf.CudaAllocatorBeginning) (missed int64) {
	if b.IsRead == 0 {
		return format.UnknownMissed
	}
	for action, happened := range b.Happened {
		if happened < b.Recorded[action] {
			return format.UnknownMissed // the words are no counters
		}
		missed += int64(happened - b.Recorded[action])
	}
	return missed
}

// minTotalsComparisons is the number of comparisons after which a word of PyTorch's allocator
// object is accepted as the total, if it matched every reported total.
const minTotalsComparisons = 32

// wordsPerStatArray is the size in 8-byte words of the array of one allocator statistic:
// STAT_ARRAY_WORDS of allocator.h.
const wordsPerStatArray = 12

// findMatchingOffset returns the offset of the first word that always matched the allocated bytes,
// if the word one array later always matched the reserved bytes. The first word of a statistic's
// array is the current value of all pools.
func findMatchingOffset(search *bpf.CudaAllocatorSearch) (offset uint64, ok bool) {
	if search.Comparisons < minTotalsComparisons {
		return 0, false
	}
	isSet := func(words []uint64, i int) bool { return i < 64*len(words) && words[i/64]>>(i%64)&1 != 0 }
	for piece, word := range search.Allocated {
		for ; word != 0; word &= word - 1 {
			i := 64*piece + bits.TrailingZeros64(word)
			if isSet(search.Reserved[:], i+wordsPerStatArray) {
				return uint64(8 * i), true
			}
		}
	}
	return 0, false
}
