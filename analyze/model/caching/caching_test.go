package caching_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestAllocatorModelIsExact(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			configured := seed%4 != 3 // otherwise the model must infer the configuration
			same := analyzetest.TorchConf{Expandable: seed%2 == 0, Divisions: int64(seed % 3 * 4)}
			recording, worlds := analyzetest.TorchAllocatorRecording(t, seed, 500, func(w *analyzetest.TorchAllocator) {
				if w.Pid == 42 {
					w.Conf = same // both allocators of a process have the same configuration
				}
				w.Silent = seed%8 == 6
				w.Patient = !configured || seed%4 == 1
			})
			if configured {
				for _, w := range []*analyzetest.TorchAllocator{worlds[0], worlds[2]} {
					recording.AddRow(
						format.Row{
							Kind:    format.KindNote,
							Name:    format.NoteAllocator,
							Pid:     w.Pid,
							Message: fmt.Sprintf(`{"conf":%q}`, w.Conf),
						},
					)
				}
			}
			tl := recording.Timeline()
			for _, w := range worlds {
				compareTotals(t, tl, w)
				for i := range w.Samples {
					if s := &w.Samples[i]; s.Blocks != nil {
						compareBlocks(t, tl, w, s)
					}
				}
			}
		})
	}
}

func compareTotals(t *testing.T, tl *timeline.Timeline, w *analyzetest.TorchAllocator) {
	t.Helper()
	var times []int64
	for _, s := range w.Samples {
		times = append(times, analyzetest.Epoch+s.AtNs)
	}
	moments, err := state.ReadAllocatorsAt(tl, times)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.Samples {
		s := &w.Samples[i]
		if got := analyzetest.FindAllocatorState(moments[i], w); got.AllocatorTotals != s.Totals {
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
	}
	end := analyzetest.FindAllocatorState(moments[len(moments)-1], w)
	if end.Disagreed != 0 || end.UnmatchedFrees != 0 || end.LostFrees != 0 || end.FromStart == w.Silent ||
		w.Silent != (end.Compared == 0) {
		t.Errorf("pid %d device %d: %+v", w.Pid, w.Device, end)
	}
}

func compareBlocks(
	t *testing.T,
	tl *timeline.Timeline,
	w *analyzetest.TorchAllocator,
	s *analyzetest.TorchAllocatorSample,
) {
	t.Helper()
	list, err := state.ReadAllocators(tl, analyzetest.Epoch+s.AtNs)
	if err != nil {
		t.Fatal(err)
	}
	got := analyzetest.FindAllocatorState(list, w)
	blocks := make(map[int64]state.AllocatorBlock)
	for _, b := range got.Blocks {
		blocks[b.Ptr] = b
	}
	if !reflect.DeepEqual(blocks, s.Blocks) {
		for _, ptr := range slices.Sorted(maps.Keys(s.Blocks)) {
			if blocks[ptr] != s.Blocks[ptr] {
				t.Errorf("%x: got %+v, want %+v", ptr, blocks[ptr], s.Blocks[ptr])
			}
		}
		t.Fatalf("%d blocks, want %d", len(blocks), len(s.Blocks))
	}
	var reserved, segments int64
	last := int64(0)
	for _, r := range got.Ranges {
		reserved += r.Bytes
		if !r.Expandable {
			segments++
		}
		if r.Ptr < last {
			t.Fatal("ranges overlap")
		}
		last = r.Ptr + r.Bytes
	}
	if reserved != s.Totals.Reserved || segments != s.Totals.Segments {
		t.Fatalf("ranges of %d bytes, %d segments; want %+v", reserved, segments, s.Totals)
	}
}

// TestAllocatorModelOfARunningProgram deletes the first events, as if recording had started late.
// The totals that the allocator reports must be exact at once; for all others, differences between
// two samples must be exact.
func TestAllocatorModelOfARunningProgram(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			recording, worlds := analyzetest.TorchAllocatorRecording(
				t,
				100+seed,
				600,
				func(w *analyzetest.TorchAllocator) {
					w.Conf = analyzetest.TorchConf{Expandable: seed%2 == 0}
					w.Patient = true
				},
			)
			for _, w := range worlds[:2] {
				recording.AddRow(
					format.Row{
						Kind:    format.KindNote,
						Name:    format.NoteAllocator,
						Pid:     w.Pid,
						Message: fmt.Sprintf(`{"conf":%q}`, w.Conf),
					},
				)
			}
			cut := analyzetest.Epoch + worlds[0].Samples[150].AtNs
			recording.Rows = slices.DeleteFunc(
				recording.Rows,
				func(r *format.Row) bool { return r.Kind == format.KindAllocator && r.StartNs < cut },
			)
			tl := recording.Timeline()
			for _, w := range worlds {
				w.Samples = slices.DeleteFunc(
					w.Samples,
					func(s analyzetest.TorchAllocatorSample) bool { return analyzetest.Epoch+s.AtNs <= cut },
				)
				compareDifferences(t, tl, w)
			}
		})
	}
}

func compareDifferences(t *testing.T, tl *timeline.Timeline, w *analyzetest.TorchAllocator) {
	t.Helper()
	var times []int64
	for _, s := range w.Samples {
		times = append(times, analyzetest.Epoch+s.AtNs)
	}
	moments, err := state.ReadAllocatorsAt(tl, times)
	if err != nil {
		t.Fatal(err)
	}
	// For blocks that were awaiting at the cut only the requested size is known. The holes at that
	// time are unknown.
	since := func(now, then caching.AllocatorTotals) caching.AllocatorTotals {
		return caching.AllocatorTotals{
			Allocated:     now.Allocated,
			Requested:     now.Requested - then.Requested,
			Reserved:      now.Reserved,
			Active:        0,
			InactiveSplit: 0,
			Segments:      now.Segments - then.Segments,
			Allocations:   now.Allocations - then.Allocations,
		}
	}
	first := analyzetest.FindAllocatorState(moments[5], w).AllocatorTotals
	unsure := 0
	for i, s := range w.Samples[5:] {
		got := analyzetest.FindAllocatorState(moments[i+5], w)
		if since(got.AllocatorTotals, first) != since(s.Totals, w.Samples[5].Totals) {
			// A block is allocated, and the next event frees a block of unknown size. Only the
			// difference of the two sizes is known, so the total between the two events is a guess.
			if unsure++; s.After != format.AllocatorAlloc || unsure > len(w.Samples)/50 {
				t.Fatalf(
					"pid %d device %d (%s), sample %d after %s:\ngot  %+v\nwant %+v",
					w.Pid,
					w.Device,
					w.Conf,
					i+5,
					s.After,
					since(got.AllocatorTotals, first),
					since(s.Totals, w.Samples[5].Totals),
				)
			}
		}
		if n := got.AllocatorTotals; min(
			n.Allocated,
			n.Requested,
			n.Reserved,
			n.Active,
			n.InactiveSplit,
			n.Segments,
			n.Allocations,
		) < 0 {
			t.Fatalf("negative: %+v", n)
		}
	}
	end := analyzetest.FindAllocatorState(moments[len(moments)-1], w)
	if end.Disagreed != 0 || end.LostFrees != 0 || end.FromStart {
		t.Errorf("pid %d device %d: %+v", w.Pid, w.Device, end)
	}
}

// TestAllocatorModelSurvivesRandomEvents applies random events that no allocator emits. The model
// must not panic, must end, and must forget the memory that has ended.
func TestAllocatorModelSurvivesRandomEvents(t *testing.T) {
	testclass.Unit(t)
	names := slices.Sorted(maps.Keys(caching.OpsByEventName))
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		recording := analyzetest.NewTestRecording(t)
		unit := []int64{512, analyzetest.Mib, 2 * analyzetest.Mib}[r.IntN(3)]
		for i := range int64(3000) {
			row := recording.AddRow(format.Row{
				Kind:    format.KindAllocator,
				Name:    names[r.IntN(len(names))],
				StartNs: analyzetest.Epoch + i,
				Pid:     42,
				Device:  r.Int32N(2),
				Ptr: r.Int64N(
					40,
				) * unit,
				Bytes:          r.Int64N(6) * unit,
				Stream:         r.Int64N(2),
				SrcPtr:         r.Int64N(2),
				AllocatedBytes: -1,
				ReservedBytes:  -1,
			})
			if r.IntN(2) == 0 {
				row.AllocatedBytes, row.ReservedBytes = r.Int64N(40)*unit, r.Int64N(40)*unit
			}
		}
		tl := recording.Timeline()
		list, err := state.ReadAllocators(tl, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if len(s.Blocks) > 40 || len(s.Ranges) > 80 {
				t.Errorf("seed %d: %d blocks and %d ranges at 40 addresses", seed, len(s.Blocks), len(s.Ranges))
			}
		}
		if _, err := leaks.Run(tl, query.Options{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAllocatorRules(t *testing.T) {
	testclass.Unit(t)
	list := caching.ParseAllocatorRules("garbage_collection_threshold:0.8, " +
		"roundup_power2_divisions:[256:1,512:2,1024:4,>:8],max_split_size_mb:128")
	four := caching.ParseAllocatorRules("roundup_power2_divisions:4")
	for _, c := range []struct {
		rules       caching.AllocatorRules
		bytes, want int64
	}{
		{caching.AllocatorRules{}, 1, 512},
		{caching.AllocatorRules{}, 513, 1024},
		{caching.AllocatorRules{}, analyzetest.Mib + 1, analyzetest.Mib + 512},
		{four, 1200, 1536},
		{four, 4 * 512, 4 * 512},
		{four, 2049, 2560},
		{four, 5 * analyzetest.Mib, 5 * analyzetest.Mib},
		{four, 5*analyzetest.Mib + 1, 6 * analyzetest.Mib},
		{list, 255*analyzetest.Mib + 1, 255*analyzetest.Mib + 512},
		{list, 513 * analyzetest.Mib, 768 * analyzetest.Mib},
		{list, 1025 * analyzetest.Mib, 1280 * analyzetest.Mib},
		{list, 4097 * analyzetest.Mib, 4608 * analyzetest.Mib},
	} {
		if got := c.rules.RoundBlockSize(c.bytes); got != c.want {
			t.Errorf("%d bytes: %d, want %d (%+v)", c.bytes, got, c.want, c.rules)
		}
	}
	if list.MaxSplit != 128*analyzetest.Mib || list.Expandable ||
		!caching.ParseAllocatorRules("expandable_segments:True").Expandable {
		t.Errorf("%+v", list)
	}
	for _, odd := range []string{
		"",
		":",
		"a",
		"a:",
		":b",
		"roundup_power2_divisions:[",
		"roundup_power2_divisions:[:,>:,>:x,0:2,99999999999:2",
		",,,",
		"max_split_size_mb:-1",
	} {
		rules := caching.ParseAllocatorRules(odd)
		if rules.RoundBlockSize(5000) < 5000 {
			t.Errorf("%q: %+v", odd, rules)
		}
	}
}
