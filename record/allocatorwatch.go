//go:build linux

package record

import (
	"encoding/json"
	"errors"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// allocatorWatch knows which recorded processes have a caching allocator, and finds where
// the allocators keep their totals. It belongs to the goroutine of Session.Run.
type allocatorWatch struct {
	known    map[int]fileID        // process -> its allocator's library
	loading  map[int]time.Time     // process -> when that was first seen without libc10.so
	layouts  map[fileID]uint64     // as process_allocator.allocated_at
	searches map[int]*layoutSearch // by process
}

// layoutSearch compares allocator objects with what the allocator reports, until the words
// that hold its totals are found.
type layoutSearch struct {
	library fileID
	reports link.Link
}

func newAllocatorWatch() allocatorWatch {
	return allocatorWatch{
		known: make(map[int]fileID), loading: make(map[int]time.Time), layouts: make(map[fileID]uint64), searches: make(map[int]*layoutSearch),
	}
}

// notFound is NOT_FOUND of event.h.
const notFound = ^uint64(0)

// tellBy has the allocator of a process recorded by what this library tells, unless its
// first event was faster.
func (p *probes) tellBy(lib *library, pid int) {
	if lib.kind == driverLibrary || pid == everyProcess {
		return
	}
	a := bpf.CudaProcessAllocator{AllocatedAt: notFound, Source: uint32(lib.source())}
	_ = p.objects.Allocators.Update(uint32(pid), a, ebpf.UpdateNoExist) // else the first event will tell
}

// sourceOf returns by what the allocator of a process is recorded; lib is what was to tell.
func (p *probes) sourceOf(lib *library, pid int) bpf.CudaAllocatorSource {
	var a bpf.CudaProcessAllocator
	if p.objects.Allocators.Lookup(uint32(pid), &a) != nil {
		return lib.source()
	}
	return bpf.CudaAllocatorSource(a.Source)
}

// renewAllocator forgets the allocator of a process that has another one: where children are
// not followed, nobody tells that it became another program.
func (s *Session) renewAllocator(libs []*library, pid int) {
	lib := firstOf(libs, allocatorLibrary)
	if known, ok := s.allocators.known[pid]; ok && lib != nil && known != lib.id {
		s.forgetAllocator(pid)
		s.probes.dropAllocator(pid)
	}
}

// knowAllocator takes note of the caching allocator that a process has mapped: what it is,
// what of it is recorded, and where it keeps its totals or how to find out.
func (s *Session) knowAllocator(libs []*library, p *process) {
	w := &s.allocators
	lib, reports := firstOf(libs, allocatorLibrary), firstOf(libs, reportLibrary)
	if lib == nil || s.opt.Allocator == AllocatorOff || w.known[p.pid] == lib.id || reports == nil && w.isLoading(p.pid) {
		return
	}
	w.known[p.pid] = lib.id
	fact := format.AllocatorFact{
		Allocator: format.MemoryTorch, Library: lib.path, BuildID: lib.buildID, Version: torchVersion(p, lib.path), Conf: allocatorConf(p),
	}
	teller, why := s.opt.Allocator.teller(lib, reports)
	switch {
	case teller == nil:
		fact.Missing = missingAllocator(lib.path, fact.Version, why)
		s.warn(fact.Missing)
	case s.probes.sourceOf(teller, p.pid) == bpf.CudaAllocatorSourceSOURCE_REPORTS:
		if teller == lib {
			why = "it was probed after the first report of the process"
		}
		fact.Source, fact.Limits = format.SourceReports, limitedAllocator(lib.path, fact.Version, why)
		if why != "" {
			s.warn(fact.Limits)
		}
	default:
		fact.Source, fact.Missing = format.SourceTrace, s.findTotals(lib, reports, p.pid)
	}
	text, err := json.Marshal(fact)
	if err != nil {
		return // plain strings always encode
	}
	s.scribe.send([]format.Row{{
		Kind: format.KindNote, Name: format.NoteAllocator, StartNs: s.clock.now(), Pid: int32(p.pid), Device: -1, Message: string(text),
	}})
}

// loadingTime is how long the dynamic loader may take from libc10_cuda.so to libc10.so,
// which is what the other needs.
const loadingTime = time.Second

// isLoading reports whether a process without libc10.so may still be about to map it.
func (w *allocatorWatch) isLoading(pid int) bool {
	since, ok := w.loading[pid]
	if !ok {
		since = time.Now()
		w.loading[pid] = since
	}
	return time.Since(since) < loadingTime
}

// findTotals has the totals of a process's allocator recorded, or returns why they are not.
func (s *Session) findTotals(lib, reports *library, pid int) (missing string) {
	if at, ok := s.allocators.layouts[lib.id]; ok {
		s.probes.setTotals(pid, at)
		return ""
	}
	link, err := s.probes.linkReports(reports, pid)
	if err != nil {
		return "what PyTorch's allocator counts itself is not recorded: " + err.Error()
	}
	s.allocators.searches[pid] = &layoutSearch{library: lib.id, reports: link}
	return ""
}

// linkReports has the reports of one process compared with its allocator objects.
func (p *probes) linkReports(reports *library, pid int) (link.Link, error) {
	if reports == nil {
		return nil, errors.New("libc10.so is not mapped")
	}
	if reports.missing != "" {
		return nil, errors.New(reports.missing)
	}
	executable, err := link.OpenExecutable(reports.executable())
	if err != nil {
		return nil, err
	}
	at := reports.probes[0].FileOffset
	if p.how == AttachMulti {
		return executable.UprobeMulti(nil, p.objects.AllocatorReport, &link.UprobeMultiOptions{Addresses: []uint64{at}, PID: uint32(pid)})
	}
	return executable.Uprobe("", p.objects.AllocatorReport, &link.UprobeOptions{Address: at, PID: pid})
}

// setTotals says where the allocators of a process keep their totals, if it is record_trace
// that tells of them.
func (p *probes) setTotals(pid int, at uint64) {
	var a bpf.CudaProcessAllocator
	if p.objects.Allocators.Lookup(uint32(pid), &a) != nil {
		return // totals are -1, not known
	}
	a.AllocatedAt = at
	_ = p.objects.Allocators.Update(uint32(pid), a, ebpf.UpdateExist) // it may be gone
}

// findTotals returns where the allocators of a process keep their totals, if that is known
// by now.
func (p *probes) findTotals(pid int) (at uint64, ok bool) {
	var seen bpf.CudaAllocatorSearch
	if p.objects.AllocatorSearches.Lookup(uint32(pid), &seen) != nil {
		return 0, false
	}
	return findLayout(&seen)
}

// forgetTotals forgets where the allocators of a process keep their totals.
func (p *probes) forgetTotals(pid int) {
	p.setTotals(pid, notFound)
	_ = p.objects.AllocatorSearches.Delete(uint32(pid)) // there may be none
}

// dropAllocator forgets by what the allocator of a process is recorded.
func (p *probes) dropAllocator(pid int) {
	_ = p.objects.Allocators.Delete(uint32(pid)) // it may be gone already
}

// endSearches looks whether totals have been found, and uses them.
func (s *Session) endSearches() {
	w := &s.allocators
	for pid, search := range w.searches {
		at, found := w.layouts[search.library]
		if !found {
			if at, found = s.probes.findTotals(pid); !found {
				continue
			}
			w.layouts[search.library] = at
		}
		s.probes.setTotals(pid, at)
		_ = search.reports.Close() // one that cannot be closed goes with the recorder
		delete(w.searches, pid)
	}
}

// forgetAllocator ends what is known of the allocator of a process.
func (s *Session) forgetAllocator(pid int) {
	w := &s.allocators
	if search := w.searches[pid]; search != nil {
		_ = search.reports.Close()
		delete(w.searches, pid)
	}
	delete(w.known, pid)
	delete(w.loading, pid)
	s.probes.forgetTotals(pid)
}

// endAllocators ends all searches.
func (s *Session) endAllocators() {
	for _, search := range s.allocators.searches {
		_ = search.reports.Close()
	}
	clear(s.allocators.searches)
}

// minLooks is how often a word must have been equal to a total to be taken for it.
const minLooks = 32

// statArrayWords is STAT_ARRAY_WORDS of allocator.h.
const statArrayWords = 12

// findLayout returns the first word that was always the allocated bytes, if that one array
// later was always the reserved bytes: in an array the current value of all pools is first.
func findLayout(seen *bpf.CudaAllocatorSearch) (at uint64, ok bool) {
	if seen.Looks < minLooks {
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
