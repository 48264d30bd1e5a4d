package blocks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// scan collects the blocks of each size over the readings of a window. It is not safe for concurrent use.
type scan struct {
	t          *timeline.Timeline
	filter     *query.Filter
	window     query.Window
	callers    *query.SeenCallers
	allocators []*allocatorStats // by process and device, after read
}

// newScan returns a scan of the allocators that pass the filter.
func newScan(t *timeline.Timeline, f *query.Filter) *scan {
	return &scan{t: t, filter: f, window: f.NarrowWindow(t.RecordingWindow()), callers: query.NewSeenCallers()}
}

// read reads the recording. It returns errors of reading.
func (s *scan) read() error {
	known := make(map[*blockreadings.Allocator]*allocatorStats)
	selected := blockreadings.Selection{Window: s.window, Passes: s.passes}
	list, err := blockreadings.Read(s.t, selected, func(a *blockreadings.Allocator) {
		if known[a] == nil {
			known[a] = newAllocatorStats(a)
		}
		known[a].addReading()
	})
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.Readings+int(a.Refused+a.Skipped+a.Teardown) == 0 { // all of its readings are outside of the window
			continue
		}
		of := known[a]
		if of == nil {
			of = newAllocatorStats(a)
		}
		of.hasEnded = s.t.Facts.Processes[a.Pid].ExitNs > 0
		of.finish()
		s.allocators = append(s.allocators, of)
	}
	return nil
}

// passes reports whether an allocator passes the filter. A reading that found no allocator is about all devices.
func (s *scan) passes(key blockreadings.Key) bool {
	if key.Device < 0 {
		s.callers.Pids[key.Pid] = true
		return len(s.filter.Pids) == 0 || slices.Contains(s.filter.Pids, key.Pid)
	}
	s.callers.AddCaller(key.Pid, 0, key.Device, 0)
	return s.filter.PassesAllocator(key.Pid, key.Device)
}

// count returns the number of usable, of refused and of other readings of all allocators.
func (s *scan) count() (used, refused, unused int64) {
	for _, a := range s.allocators {
		used += a.Used
		refused += a.Refused
		unused += a.unused()
	}
	return used, refused, unused
}
