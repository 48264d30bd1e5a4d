//go:build linux

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// allocatorWatch knows which recorded processes have a caching allocator, and finds where
// the allocators keep their totals. It belongs to the goroutine of Session.Run.
type allocatorWatch struct {
	known    map[int]fileID // process -> its allocator's library
	layouts  map[fileID]bpf.CudaAllocatorLayout
	searches map[int]*layoutSearch // by process
}

// layoutSearch compares allocator objects with what the allocator reports, until the words
// that hold its totals are found.
type layoutSearch struct {
	library fileID
	reports link.Link
}

func newAllocatorWatch() allocatorWatch {
	return allocatorWatch{known: make(map[int]fileID), layouts: make(map[fileID]bpf.CudaAllocatorLayout), searches: make(map[int]*layoutSearch)}
}

// reportFunction is called with the allocator's totals whenever they change:
// c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device).
const reportFunction = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

var reportLibrary = regexp.MustCompile(`^libc10(-[0-9a-f]+)?\.so$`)

// knowAllocator takes note of the caching allocator that a process has mapped: what it is,
// and where it keeps its totals or how to find out.
func (s *Session) knowAllocator(lib *library, p *process) {
	w := &s.allocators
	if w.known[p.pid] == lib.id {
		return
	}
	s.forgetAllocator(p.pid) // of the program that this process was before
	w.known[p.pid] = lib.id
	fact := format.AllocatorFact{
		Allocator: format.MemoryTorch, Library: lib.path, BuildID: lib.buildID, Version: torchVersion(p, lib.path), Conf: allocatorConf(p),
	}
	if lib.missing != "" {
		fact.Missing = missingAllocator(lib.path, fact.Version, lib.missing)
		s.warn(fact.Missing)
	} else if layout, ok := w.layouts[lib.id]; ok {
		s.setLayout(p.pid, layout)
	} else {
		reports, err := s.linkReports(p)
		if err != nil {
			fact.Missing = "what PyTorch's allocator counts itself is not recorded: " + err.Error()
		} else {
			w.searches[p.pid] = &layoutSearch{library: lib.id, reports: reports}
		}
	}
	text, err := json.Marshal(fact)
	if err != nil {
		return // plain strings always encode
	}
	s.scribe.rows <- []format.Row{{
		Kind: format.KindNote, Name: format.NoteAllocator, StartNs: s.scribe.accounts.clock.now(), Pid: int32(p.pid), Device: -1, Message: string(text),
	}}
}

// linkReports probes the reports of a process. Without them the totals stay unknown.
func (s *Session) linkReports(p *process) (link.Link, error) {
	maps, err := p.maps()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(maps, func(m symbolize.Mapping) bool {
		return m.Executable() && reportLibrary.MatchString(filepath.Base(m.Path))
	})
	if i < 0 {
		return nil, errors.New("libc10.so is not mapped")
	}
	file, err := p.openMapped(maps[i])
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return s.probes.linkReports(file, p.pid)
}

// linkReports probes the reports of one process in a library. Where the function is, is
// not left to the package link: it reads ELF files in a way that a crafted one makes cost
// gigabytes.
func (p *probes) linkReports(library *os.File, pid int) (link.Link, error) {
	info, err := library.Stat()
	if err != nil {
		return nil, err
	}
	object, err := symbolize.NewObject(library, info.Size())
	if err != nil {
		return nil, fmt.Errorf("read symbols of libc10.so: %w", err)
	}
	function, ok := object.Find(reportFunction)
	at, mapped := object.FileOffset(function.Start)
	if !ok || !mapped {
		return nil, fmt.Errorf("libc10.so has no %s", symbolize.Demangle(reportFunction))
	}
	executable, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", library.Fd()))
	if err != nil {
		return nil, err
	}
	if p.how == AttachMulti {
		return executable.UprobeMulti(nil, p.objects.AllocatorReport, &link.UprobeMultiOptions{Addresses: []uint64{at}, PID: uint32(pid)})
	}
	return executable.Uprobe("", p.objects.AllocatorReport, &link.UprobeOptions{Address: at, PID: pid})
}

func (s *Session) setLayout(pid int, layout bpf.CudaAllocatorLayout) {
	_ = s.probes.objects.AllocatorLayouts.Put(uint32(pid), layout) // else totals are -1, not known
}

// endSearches looks whether totals have been found, and uses them.
func (s *Session) endSearches() {
	w := &s.allocators
	for pid, search := range w.searches {
		layout, found := w.layouts[search.library]
		if !found {
			var seen bpf.CudaAllocatorSearch
			if s.probes.objects.AllocatorSearches.Lookup(uint32(pid), &seen) != nil {
				continue
			}
			if layout, found = findLayout(&seen); !found {
				continue
			}
			w.layouts[search.library] = layout
		}
		s.setLayout(pid, layout)
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
	_ = s.probes.objects.AllocatorLayouts.Delete(uint32(pid)) // there may be none
	_ = s.probes.objects.AllocatorSearches.Delete(uint32(pid))
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
func findLayout(seen *bpf.CudaAllocatorSearch) (bpf.CudaAllocatorLayout, bool) {
	if seen.Looks < minLooks {
		return bpf.CudaAllocatorLayout{}, false
	}
	isSet := func(words []uint64, i int) bool { return i < 64*len(words) && words[i/64]>>(i%64)&1 != 0 }
	for piece, word := range seen.Allocated {
		for ; word != 0; word &= word - 1 {
			i := 64*piece + bits.TrailingZeros64(word)
			if isSet(seen.Reserved[:], i+statArrayWords) {
				return bpf.CudaAllocatorLayout{AllocatedAt: uint64(8 * i)}, true
			}
		}
	}
	return bpf.CudaAllocatorLayout{}, false
}
