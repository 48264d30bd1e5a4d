package timeline

import (
	"strings"

	"github.com/gpurec/gpurec/format"
)

// deviceAreas has the CUDA ordinal of the device that memory is on, from all recorded allocations. Memory of
// two devices is never in the same 2 MiB of addresses, because the driver maps device memory in pages of this
// size.
type deviceAreas struct {
	of      map[deviceArea]int32
	devices map[int32]int32 // by pid: a device of the process
	several bool            // memory of several devices of one process is known

	memory, allocations int // row groups that were read
}

// deviceArea is 2 MiB of the addresses of a process.
type deviceArea struct {
	pid  int32
	area int64 // address divided by areaBytes
}

const (
	areaBytes = 2 << 20
	// maxAreas bounds the areas of one allocation, to 512 GiB. maxKnownAreas bounds deviceAreas, to 200 MB.
	maxAreas, maxKnownAreas = 1 << 18, 1 << 22
)

// deviceAreasKey is the key of deviceAreas for Remember.
type deviceAreasKey struct{}

// readDeviceAreas reads all allocations once.
func (t *Timeline) readDeviceAreas() (*deviceAreas, error) {
	return Remember(t, deviceAreasKey{}, func() (*deviceAreas, error) {
		if t.areas == nil {
			t.areas = &deviceAreas{of: make(map[deviceArea]int32), devices: make(map[int32]int32)}
		}
		m := t.areas
		for _, spans := range [][]Span{t.Memory[m.memory:], t.Allocations[m.allocations:]} {
			for _, span := range spans {
				if err := t.addDeviceAreas(m, span.Group); err != nil {
					return nil, err
				}
			}
		}
		m.memory, m.allocations = len(t.Memory), len(t.Allocations)
		return m, nil
	})
}

// addDeviceAreas adds the allocations of a row group.
func (t *Timeline) addDeviceAreas(m *deviceAreas, g *format.Group) error {
	kind, name := g.Strings("kind"), g.Strings("name")
	ptr, bytes, context := g.Int64("ptr", nil), g.Int64("bytes", nil), g.Int64("context", nil)
	pid, device, result := g.Int32("pid", nil), g.Int32("device", nil), g.Int32("result", nil)
	if err := g.Err(); err != nil {
		return err
	}
	for i := range ptr {
		isBlock := kind.At(i) == format.KindAllocator && isAllocation(name.At(i))
		if kind.At(i) != format.KindAlloc && !isBlock || result[i] != 0 || ptr[i] == 0 {
			continue
		}
		d := t.DeviceOfCall(pid[i], context[i], device[i])
		if d < 0 {
			continue
		}
		if known, ok := m.devices[pid[i]]; ok && known != d {
			m.several = true
		}
		m.devices[pid[i]] = d
		m.add(pid[i], d, ptr[i], bytes[i])
	}
	return nil
}

// isAllocation reports whether an event of a caching allocator is about memory that its device then has.
func isAllocation(event string) bool {
	switch event {
	case format.AllocatorAlloc, format.AllocatorSegmentAlloc, format.AllocatorSegmentMap, format.AllocatorReportedAlloc:
		return true
	}
	return false
}

func (a *deviceAreas) add(pid, device int32, ptr, bytes int64) {
	first, last := ptr/areaBytes, (ptr+max(1, bytes)-1)/areaBytes
	for area := first; area <= min(last, first+maxAreas) && len(a.of) < maxKnownAreas; area++ {
		a.of[deviceArea{pid, area}] = device
	}
}

// deviceOf returns the device of an address, or -1.
func (a *deviceAreas) deviceOf(pid int32, ptr int64) int32 {
	if device, ok := a.of[deviceArea{pid, ptr / areaBytes}]; ok {
		return device
	}
	return -1
}

// PeerCopies identifies copies between two devices.
type PeerCopies struct{ areas *deviceAreas }

// ReadPeerCopies reads the devices of all recorded memory.
func (t *Timeline) ReadPeerCopies() (PeerCopies, error) {
	areas, err := t.readDeviceAreas()
	return PeerCopies{areas}, err
}

// Has reports whether a copy of device memory is known to be between two devices. If the allocation of one of
// the addresses was not recorded, it reports false.
func (p PeerCopies) Has(pid int32, to, from int64) bool {
	if p.areas == nil || !p.areas.several {
		return false
	}
	a, b := p.areas.deviceOf(pid, to), p.areas.deviceOf(pid, from)
	return a >= 0 && b >= 0 && a != b
}

// minContextVotes is the number of fills and copies that prove the device of a context.
const minContextVotes = 8

// contextVotes counts the fills and copies that show the device of a context.
type contextVotes struct {
	spans  int // row groups that were read
	counts map[contextKey]map[int32]int64
	// allocs counts the allocations of segments. It is set if a caching allocator's state was read, see
	// learnContextsBySegments.
	allocs      map[contextKey]map[int32]int64
	memorySpans int
}

// learnContextsByMemory finds the device of contexts from the memory that fills and copies use, if the
// contexts were created before the recording. PyTorch's allocator reports the device of each block. A few
// calls may use memory of another device.
func (t *Timeline) learnContextsByMemory() error {
	if t.Facts.OnlyDevice >= 0 || len(t.Allocations) == 0 {
		return nil
	}
	areas, err := t.readDeviceAreas()
	if err != nil {
		return err
	}
	if t.votes.counts == nil {
		t.votes.counts = make(map[contextKey]map[int32]int64)
	}
	for _, span := range t.Calls[t.votes.spans:] {
		if err := t.countContextVotes(areas, t.votes.counts, span.Group); err != nil {
			return err
		}
	}
	t.votes.spans = len(t.Calls)
	t.learnDevicesByVotes(t.votes.counts, minContextVotes)
	return t.learnContextsBySegments(areas)
}

// learnDevicesByVotes learns the devices of contexts with at least a number of votes that agree.
func (t *Timeline) learnDevicesByVotes(counts map[contextKey]map[int32]int64, least int64) {
	for key, devices := range counts {
		total := int64(0)
		for _, n := range devices {
			total += n
		}
		for device, n := range devices {
			switch {
			case key.context == 0 && n == total:
				t.contexts[key] = device
			case n >= least && n*10 > total*9:
				t.contexts.learnDevice(key, device)
			}
		}
	}
}

// learnContextsBySegments finds the device of contexts in which a caching allocator has allocated segments, so that
// these and the segments from before the recording are memory of one device. A process whose allocators had memory of
// one device only uses it in unknown contexts, too.
func (t *Timeline) learnContextsBySegments(areas *deviceAreas) error {
	states := make(map[int32]int) // by pid
	for _, s := range t.Facts.EarlierStates {
		if s.Refused == "" && len(s.Segments) > 0 {
			states[s.Pid]++
		}
	}
	if len(states) == 0 {
		return nil
	}
	if t.votes.allocs == nil {
		t.votes.allocs = make(map[contextKey]map[int32]int64)
	}
	for _, span := range t.Memory[t.votes.memorySpans:] {
		g := span.Group
		kind, memory := g.Strings("kind"), g.Strings("memory_kind")
		ptr, context, pid := g.Int64("ptr", nil), g.Int64("context", nil), g.Int32("pid", nil)
		if err := g.Err(); err != nil {
			return err
		}
		for i := range ptr {
			isKnown := context[i] != 0 || states[pid[i]] == 1
			if kind.At(i) == format.KindAlloc && memory.At(i) == format.MemoryDevice && ptr[i] != 0 && isKnown {
				t.addContextVote(t.votes.allocs, areas, contextKey{pid[i], context[i]}, ptr[i])
			}
		}
	}
	t.votes.memorySpans = len(t.Memory)
	t.learnDevicesByVotes(t.votes.allocs, 1)
	return nil
}

// addContextVote adds a vote for the device of an address, if that of the context is not known.
func (t *Timeline) addContextVote(
	votes map[contextKey]map[int32]int64,
	areas *deviceAreas,
	key contextKey,
	ptr int64,
) {
	if _, known := t.contexts[key]; known {
		return
	}
	if device := areas.deviceOf(key.pid, ptr); device >= 0 {
		if votes[key] == nil {
			votes[key] = make(map[int32]int64)
		}
		votes[key][device]++
	}
}

// countContextVotes counts the fills and copies of a row group by context and by the device of their memory.
func (t *Timeline) countContextVotes(areas *deviceAreas, votes map[contextKey]map[int32]int64, g *format.Group) error {
	kind, copyKind := g.Strings("kind"), g.Strings("copy_kind")
	ptr, src, context := g.Int64("ptr", nil), g.Int64("src_ptr", nil), g.Int64("context", nil)
	pid := g.Int32("pid", nil)
	if err := g.Err(); err != nil {
		return err
	}
	for i := range ptr {
		used := int64(0)
		switch {
		case kind.At(i) == format.KindMemset, strings.HasPrefix(copyKind.At(i), "Hto"):
			used = ptr[i]
		case strings.HasSuffix(copyKind.At(i), "toH"):
			used = src[i]
		}
		if used != 0 && context[i] != 0 {
			t.addContextVote(votes, areas, contextKey{pid[i], context[i]}, used)
		}
	}
	return nil
}
