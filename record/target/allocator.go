//go:build linux

package target

import (
	"encoding/json"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// allocators knows which recorded processes have a caching allocator, and finds where the allocators
// keep their totals.
type allocators struct {
	known    map[int]process.FileID    // process -> its allocator's library
	loading  map[int]time.Time         // process -> when that was first seen without libc10.so
	layouts  map[process.FileID]uint64 // as process_allocator.allocated_at
	searches map[int]*layoutSearch     // by process
}

// layoutSearch compares allocator objects with what the allocator reports, until the words
// that hold its totals are found.
type layoutSearch struct {
	library process.FileID
	reports link.Link
}

func newAllocators() allocators {
	return allocators{
		known: make(
			map[int]process.FileID,
		),
		loading:  make(map[int]time.Time),
		layouts:  make(map[process.FileID]uint64),
		searches: make(map[int]*layoutSearch),
	}
}

// renewAllocator forgets the allocator of a process that has another one: where children are
// not followed, nobody tells that it became another program.
func (s *Set) renewAllocator(libs []*library.Library, pid int) {
	lib := library.First(libs, library.Allocator)
	if known, ok := s.allocators.known[pid]; ok && lib != nil && known != lib.ID {
		s.forgetAllocator(pid)
		s.probes.ForgetAllocatorSource(pid)
	}
}

// noteAllocator takes note of the caching allocator that a process has mapped: what it is,
// what of it is recorded, and where it keeps its totals or how to find out.
func (s *Set) noteAllocator(libs []*library.Library, p *process.Process) {
	w := &s.allocators
	lib, reports := library.First(libs, library.Allocator), library.First(libs, library.Reports)
	if lib == nil || s.opt.Allocator == library.AllocatorOff || w.known[p.Pid] == lib.ID ||
		reports == nil && w.isLoading(p.Pid) {
		return
	}
	w.known[p.Pid] = lib.ID
	fact := format.AllocatorFact{
		Allocator: format.MemoryTorch,
		Library:   lib.Path,
		BuildID:   lib.BuildID,
		Version:   library.TorchVersion(p, lib.Path),
		Conf:      library.AllocatorConf(p),
	}
	source, why := s.opt.Allocator.ChooseSource(lib, reports)
	switch {
	case source == nil:
		fact.Missing = library.MissingText(lib.Path, fact.Version, why)
		s.opt.Warn(fact.Missing)
	case s.probes.AllocatorSource(source, p.Pid) == bpf.CudaAllocatorSourceSOURCE_REPORTS:
		if source == lib {
			why = "it was probed after the first report of the process"
		}
		fact.Source, fact.Limits = format.SourceReports, library.LimitsText(lib.Path, fact.Version, why)
		if why != "" {
			s.opt.Warn(fact.Limits)
		}
	default:
		fact.Source, fact.Missing = format.SourceTrace, s.findTotals(lib, reports, p.Pid)
	}
	text, err := json.Marshal(fact)
	if err != nil {
		return // plain strings always encode
	}
	s.send([]format.Row{
		{
			Kind:    format.KindNote,
			Name:    format.NoteAllocator,
			StartNs: s.clock.NowNs(),
			Pid:     int32(p.Pid),
			Device:  -1,
			Message: string(text),
		},
	})
}

// loadingTime is how long the dynamic loader may take from libc10_cuda.so to libc10.so,
// which is what the other needs.
const loadingTime = time.Second

// isLoading reports whether a process without libc10.so may still be about to map it.
func (w *allocators) isLoading(pid int) bool {
	since, ok := w.loading[pid]
	if !ok {
		since = time.Now()
		w.loading[pid] = since
	}
	return time.Since(since) < loadingTime
}

// findTotals has the totals of a process's allocator recorded, or returns why they are not.
func (s *Set) findTotals(lib, reports *library.Library, pid int) (missing string) {
	if at, ok := s.allocators.layouts[lib.ID]; ok {
		s.probes.SetStatsOffset(pid, at)
		return ""
	}
	link, err := s.probes.AttachReports(reports, pid)
	if err != nil {
		return "what PyTorch's allocator counts itself is not recorded: " + err.Error()
	}
	s.allocators.searches[pid] = &layoutSearch{library: lib.ID, reports: link}
	return ""
}

// FinishSearches uses the totals of allocators that have been found.
func (s *Set) FinishSearches() {
	w := &s.allocators
	for pid, search := range w.searches {
		at, found := w.layouts[search.library]
		if !found {
			if at, found = s.probes.FindStatsOffset(pid); !found {
				continue
			}
			w.layouts[search.library] = at
		}
		s.probes.SetStatsOffset(pid, at)
		_ = search.reports.Close() // one that cannot be closed goes with the recorder
		delete(w.searches, pid)
	}
}

// forgetAllocator ends what is known of the allocator of a process.
func (s *Set) forgetAllocator(pid int) {
	w := &s.allocators
	if search := w.searches[pid]; search != nil {
		_ = search.reports.Close()
		delete(w.searches, pid)
	}
	delete(w.known, pid)
	delete(w.loading, pid)
	s.probes.ForgetStatsOffset(pid)
}

// CloseSearches ends the searches for the totals of allocators.
func (s *Set) CloseSearches() {
	for _, search := range s.allocators.searches {
		_ = search.reports.Close()
	}
	clear(s.allocators.searches)
}
