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

// allocatorStates records which target processes have a PyTorch caching allocator, and finds the
// offset of the statistics in its allocator objects.
type allocatorStates struct {
	library  map[int]process.FileID     // pid -> library of the process's allocator
	loading  map[int]time.Time          // pid -> first scan that found the allocator without libc10.so
	layouts  map[process.FileID]uint64  // library -> offset of its statistics, in bytes
	searches map[int]*statsOffsetSearch // pid -> running search for the offset
	// hasHistory has the processes whose allocator's statistics may count events from before the
	// recording began, or before the process became a target.
	hasHistory map[int]bool
}

// statsOffsetSearch is a search for the offset of the statistics in one process's allocator
// objects. The BPF program compares the objects with the totals that PyTorch reports.
type statsOffsetSearch struct {
	library process.FileID
	reports link.Link
}

func newAllocatorStates() allocatorStates {
	return allocatorStates{
		library:    make(map[int]process.FileID),
		loading:    make(map[int]time.Time),
		layouts:    make(map[process.FileID]uint64),
		searches:   make(map[int]*statsOffsetSearch),
		hasHistory: make(map[int]bool),
	}
}

// forgetReplacedAllocator discards the allocator state of a process that has mapped another
// allocator. Without kernel BTF there is no exec event that would do so.
func (s *Set) forgetReplacedAllocator(libs []*library.Library, pid int) {
	lib := library.FirstOfKind(libs, library.KindAllocator)
	if known, ok := s.allocators.library[pid]; ok && lib != nil && known != lib.ID {
		s.forgetAllocator(pid)
		s.probes.ForgetAllocatorSource(pid)
	}
}

// noteAllocator writes a note about the caching allocator that a process has mapped: its library,
// its event source, and the reasons for missing data. It starts the search for the statistics.
func (s *Set) noteAllocator(libs []*library.Library, p *process.Process) {
	w := &s.allocators
	lib, reports := library.FirstOfKind(libs, library.KindAllocator), library.FirstOfKind(libs, library.KindReports)
	isOff := s.opt.Allocator == library.AllocatorModeOff
	if lib == nil || w.library[p.Pid] == lib.ID || reports == nil && !isOff && w.isLoadingLibc10(p.Pid) {
		return
	}
	w.library[p.Pid] = lib.ID
	if s.opt.OnAllocator != nil {
		s.opt.OnAllocator(p.Pid)
	}
	if isOff {
		return
	}
	fact := format.AllocatorFact{
		Allocator: format.MemoryTorch,
		Library:   lib.Path,
		BuildID:   lib.BuildID,
		Version:   library.ReadTorchVersion(p, lib.Path),
		Conf:      library.ReadAllocatorConf(p),
	}
	source, why := s.opt.Allocator.ChooseSource(lib, reports)
	switch {
	case source == nil:
		fact.Missing = library.ExplainMissingAllocator(lib.Path, fact.Version, why)
		s.opt.Warn(fact.Missing)
	case s.probes.AllocatorSource(source, p.Pid) == bpf.CudaAllocatorSourceSOURCE_REPORTS:
		if source == lib {
			why = "the process's first allocator event came from c10::reportMemoryUsageToProfiler"
		}
		fact.Source, fact.Limits = format.SourceReports, library.ExplainReportLimits(lib.Path, fact.Version, why)
		if why != "" {
			s.opt.Warn(fact.Limits)
		}
	default:
		fact.Source, fact.Missing = format.SourceTrace, s.startTotalsSearch(lib, reports, p.Pid)
	}
	text, err := json.Marshal(fact)
	if err != nil {
		return // cannot happen: the members are strings
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
	if source != nil && s.opt.OnEarlierAllocator != nil && p.StartNs <= s.beganNs && w.hasHistory[p.Pid] {
		s.opt.OnEarlierAllocator(p.Pid)
	}
}

// maxLibc10LoadTime limits how long the dynamic loader may take from mapping libc10_cuda.so to
// mapping libc10.so, on which libc10_cuda.so depends.
const maxLibc10LoadTime = time.Second

// isLoadingLibc10 reports whether a process without libc10.so may still be loading that library.
func (s *allocatorStates) isLoadingLibc10(pid int) bool {
	since, ok := s.loading[pid]
	if !ok {
		since = time.Now()
		s.loading[pid] = since
	}
	return time.Since(since) < maxLibc10LoadTime
}

// startTotalsSearch starts recording the totals (allocated and reserved bytes) of a process's
// PyTorch allocator. If it cannot, it returns the reason as a sentence.
func (s *Set) startTotalsSearch(lib, reports *library.Library, pid int) (missing string) {
	if at, ok := s.allocators.layouts[lib.ID]; ok {
		s.probes.SetStatsOffset(pid, at)
		return ""
	}
	link, err := s.probes.AttachReports(reports, pid)
	if err != nil {
		return "the totals of PyTorch's allocator statistics are not recorded: " + err.Error()
	}
	s.allocators.searches[pid] = &statsOffsetSearch{library: lib.ID, reports: link}
	return ""
}

// FinishTotalsSearches ends each search for the offset of PyTorch's allocator statistics that has
// found the offset.
func (s *Set) FinishTotalsSearches() {
	w := &s.allocators
	s.countMissedEvents()
	for pid, search := range w.searches {
		at, found := w.layouts[search.library]
		if !found {
			if at, found = s.probes.FindStatsOffset(pid); !found {
				continue
			}
			w.layouts[search.library] = at
		}
		s.probes.SetStatsOffset(pid, at)
		_ = search.reports.Close() // on an error, the kernel closes the link when the recorder exits
		delete(w.searches, pid)
	}
}

// forgetAllocator removes the PyTorch allocator of a process, and ends the search for its statistics.
func (s *Set) forgetAllocator(pid int) {
	w := &s.allocators
	if search := w.searches[pid]; search != nil {
		_ = search.reports.Close()
		delete(w.searches, pid)
	}
	delete(w.library, pid)
	delete(w.loading, pid)
	delete(w.hasHistory, pid)
	s.probes.ForgetStatsOffset(pid)
}

// StopTotalsSearches stops all searches for the offset of PyTorch's allocator statistics.
func (s *Set) StopTotalsSearches() {
	for _, search := range s.allocators.searches {
		_ = search.reports.Close()
	}
	clear(s.allocators.searches)
}
