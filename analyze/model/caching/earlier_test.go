package caching_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestEarlierState deletes the first events, as if recording had started late, and adds the state at a later time, as
// if it had been read from the process. From the first event on, all totals, blocks and segments must be exact, and all
// frees have a block. Before the reading, the sizes of a few freed blocks follow from the allocator's rules.
func TestEarlierState(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			recording, worlds := analyzetest.TorchAllocatorRecording(
				t,
				200+seed,
				500,
				func(w *analyzetest.TorchAllocator) {
					w.Conf = analyzetest.TorchConf{Expandable: seed%2 == 0}
					w.Patient = true
					w.Silent = false
				},
			)
			for _, w := range worlds[:2] {
				recording.AddRow(format.Row{
					Kind:    format.KindNote,
					Name:    format.NoteAllocator,
					Pid:     w.Pid,
					Message: fmt.Sprintf(`{"conf":%q}`, w.Conf),
				})
			}
			attached := analyzetest.Epoch + worlds[0].Samples[120].AtNs
			var rows []*format.Row
			read := make(map[*analyzetest.TorchAllocator]int64)
			for i, w := range worlds {
				readNs := analyzetest.Epoch + w.Samples[150+int(seed)+i].AtNs
				list, err := state.ReadAllocators(recording.Timeline(), readNs)
				if err != nil {
					t.Fatal(err)
				}
				s := analyzetest.FindAllocatorState(list, w)
				read[w] = readNs
				rows = append(rows, analyzetest.EarlierRows(&s, readNs+1)...)
				w.Samples = slices.DeleteFunc(w.Samples, func(o analyzetest.TorchAllocatorSample) bool {
					return analyzetest.Epoch+o.AtNs < attached
				})
			}
			recording.Rows = append(slices.DeleteFunc(recording.Rows, func(r *format.Row) bool {
				return r.Kind == format.KindAllocator && r.StartNs < attached
			}), rows...)
			tl := recording.Timeline()
			for _, w := range worlds {
				compareFromStart(t, tl, w, read[w])
			}
		})
	}
}

// maxPredictedBytes is how much a predicted block may differ from the true one. Larger holes are split.
const maxPredictedBytes = caching.MaxSmallRequestBytes

// compareFromStart compares an allocator at all samples. Its state was read at readNs.
func compareFromStart(t *testing.T, tl *timeline.Timeline, w *analyzetest.TorchAllocator, readNs int64) {
	t.Helper()
	var times []int64
	for _, s := range w.Samples {
		times = append(times, analyzetest.Epoch+s.AtNs)
	}
	moments, err := state.ReadAllocatorsAt(tl, times)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range w.Samples {
		got := analyzetest.FindAllocatorState(moments[i], w)
		isRead := analyzetest.Epoch+s.AtNs > readNs
		if active := got.Active - s.Totals.Active; !isRead && max(active, -active) <= maxPredictedBytes {
			got.Active -= active
		}
		if split := got.InactiveSplit - s.Totals.InactiveSplit; !isRead && max(split, -split) <= maxPredictedBytes {
			got.InactiveSplit -= split
		}
		if got.AllocatorTotals != s.Totals {
			t.Fatalf(
				"pid %d device %d (%s), sample %d after %s:\ngot  %+v\nwant %+v",
				w.Pid,
				w.Device,
				w.Conf,
				i,
				s.After,
				got.AllocatorTotals,
				s.Totals,
			)
		}
		if s.Blocks == nil || i%5 != 0 {
			continue
		}
		compareBlockSizes(t, tl, w, &w.Samples[i], isRead)
	}
	end := analyzetest.FindAllocatorState(moments[len(moments)-1], w)
	if end.Disagreed != 0 || end.LostFrees != 0 || end.UnmatchedFrees != 0 {
		t.Errorf("pid %d device %d: %+v", w.Pid, w.Device, end)
	}
}

// compareBlockSizes is compareBlocks without the origin of blocks from before the recording.
func compareBlockSizes(
	t *testing.T,
	tl *timeline.Timeline,
	w *analyzetest.TorchAllocator,
	s *analyzetest.TorchAllocatorSample,
	isRead bool,
) {
	t.Helper()
	list, err := state.ReadAllocators(tl, analyzetest.Epoch+s.AtNs)
	if err != nil {
		t.Fatal(err)
	}
	got := analyzetest.FindAllocatorState(list, w)
	var older int
	for _, b := range got.Blocks {
		want := s.Blocks[b.Ptr]
		if b.SinceNs == 0 {
			older++
			want.SinceNs, want.StackID, want.Site, want.Tid = 0, 0, b.Site, 0
			if more := b.Bytes - want.Bytes; !isRead && max(more, -more) <= maxPredictedBytes {
				want.Bytes = b.Bytes
			}
		}
		if b != want {
			t.Fatalf("%x: got %+v, want %+v", b.Ptr, b, want)
		}
	}
	if len(got.Blocks) != len(s.Blocks) {
		t.Fatalf("%d blocks, want %d", len(got.Blocks), len(s.Blocks))
	}
	var reserved int64
	for _, r := range got.Ranges {
		reserved += r.Bytes
	}
	if reserved != s.Totals.Reserved {
		t.Fatalf("ranges of %d bytes, want %d", reserved, s.Totals.Reserved)
	}
}

// TestRefusedState leaves the model as without a state.
func TestRefusedState(t *testing.T) {
	testclass.Unit(t)
	recording, worlds := analyzetest.TorchAllocatorRecording(t, 1, 100, func(*analyzetest.TorchAllocator) {})
	list, err := state.ReadAllocators(recording.Timeline(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := analyzetest.FindAllocatorState(list, worlds[0])
	rows := analyzetest.EarlierRows(&s, analyzetest.Epoch+1)
	rows[1].Bytes += 512
	recording.Rows = append(recording.Rows, rows...)
	facts := recording.Timeline().Facts
	if len(facts.EarlierStates) != 1 || !strings.Contains(facts.EarlierStates[0].Refused, "do not add up") {
		t.Errorf("states %+v", facts.EarlierStates[0])
	}
	after, err := state.ReadAllocators(recording.Timeline(), 0)
	if got := analyzetest.FindAllocatorState(
		after,
		worlds[0],
	); err != nil ||
		got.AllocatorTotals != s.AllocatorTotals ||
		got.UnmatchedFrees != s.UnmatchedFrees {
		t.Errorf("got %+v, %v; want %+v", got, err, s)
	}
}
