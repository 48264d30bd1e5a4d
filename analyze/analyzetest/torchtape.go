package analyzetest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/format"
)

// TorchAllocatorRecording simulates allocators of several processes and devices for a number of
// steps each, and adds their events to one recording. The rows are only roughly in order of time.
// change can modify each allocator before it starts.
func TorchAllocatorRecording(
	t testing.TB,
	seed uint64,
	steps int,
	change func(*TorchAllocator),
) (*TestRecording, []*TorchAllocator) {
	r := rand.New(rand.NewPCG(seed, seed))
	recording := NewTestRecording(t)
	var worlds []*TorchAllocator
	for _, key := range []caching.AllocatorKey{{Pid: 42, Device: 0}, {Pid: 42, Device: 1}, {Pid: 77, Device: 0}} {
		conf := TorchConf{Expandable: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			conf.Divisions = 4
		}
		if r.IntN(3) == 0 && !conf.Expandable {
			conf.maxSplit = 30 * Mib
		}
		w := NewTorchAllocator(recording, r, key.Pid, key.Device, conf)
		change(w)
		for i := 0; i < steps || w.Last.Name == format.AllocatorAlloc; i++ {
			w.RunRandomOperation()
		}
		worlds = append(worlds, w)
	}
	worlds[1].Conf = worlds[0].Conf
	slices.SortStableFunc(recording.Rows, func(a, b *format.Row) int { return int(a.StartNs - b.StartNs) })
	for i := range recording.Rows {
		k := i + r.IntN(min(6, len(recording.Rows)-i))
		recording.Rows[i], recording.Rows[k] = recording.Rows[k], recording.Rows[i]
	}
	return recording, worlds
}

// FindAllocatorState returns the state of a simulated allocator from a list, or the zero value.
func FindAllocatorState(list []state.AllocatorState, w *TorchAllocator) state.AllocatorState {
	i := slices.IndexFunc(list, func(s state.AllocatorState) bool { return s.Pid == w.Pid && s.Device == w.Device })
	if i < 0 {
		return state.AllocatorState{}
	}
	return list[i]
}
