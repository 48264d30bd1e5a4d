package caching_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// allocatorRecording writes n events of a simulated training loop: activations that come and go,
// about 2,000 live blocks, from 200 call sites.
func allocatorRecording(t testing.TB, n int) *format.Recording {
	path := filepath.Join(t.TempDir(), "torch.parquet")
	w, err := format.Create(path, format.Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	recording := analyzetest.NewTestRecording(t)
	world := analyzetest.NewTorchAllocator(recording, rand.New(rand.NewPCG(1, 1)), 42, 0, analyzetest.TorchConf{})
	world.Capacity = 1 << 40
	for written := 0; written < n; {
		b := world.AllocBlock(512<<world.R.IntN(14), analyzetest.TorchSegment{})
		site := world.R.Int32N(200)
		analyzetest.SetStackAndSite(b.Row, site+1, fmt.Sprintf("forward (model.py:%d)", site))
		if len(world.Held) > 2000 {
			world.FreeBlock(world.Held[world.R.IntN(len(world.Held))])
		}
		if len(recording.Rows) > 4000 {
			var rows []format.Row
			for _, r := range recording.Rows {
				rows = append(rows, *r)
			}
			if err := w.Write(format.ClassAllocator, rows); err != nil {
				t.Fatal(err)
			}
			written += len(rows)
			recording.Rows = nil
		}
	}
	if err := w.Finish(format.Meta{StartNs: analyzetest.Epoch, EndNs: analyzetest.Epoch + world.Now}); err != nil {
		t.Fatal(err)
	}
	return analyzetest.OpenRecording(t, path)
}

func benchAllocators(b *testing.B, run func(*timeline.Timeline) error) {
	const n = 200_000
	rec := allocatorRecording(b, n)
	for b.Loop() {
		tl, err := timeline.Open(rec)
		if err != nil {
			b.Fatal(err)
		}
		if err := run(tl); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

func BenchmarkAllocators(b *testing.B) {
	benchAllocators(b, func(tl *timeline.Timeline) error { _, err := state.ReadAllocators(tl, 0); return err })
}

func BenchmarkLeaksOfTensors(b *testing.B) {
	benchAllocators(
		b,
		func(tl *timeline.Timeline) error { _, err := leaks.Run(tl, query.Options{Top: 20}); return err },
	)
}

// TestAllocatorsAreReplayedInBoundedMemory counts allocations of Go memory per event. Columns of
// row groups may be allocated, but nothing for single events.
func TestAllocatorsAreReplayedInBoundedMemory(t *testing.T) {
	testclass.Unit(t)
	var perEvent [2]float64
	for i, n := range []int{20_000, 60_000} {
		tl, err := timeline.Open(allocatorRecording(t, n))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, s, err := tl.ReplayMemoryAndAllocators(
			func(*livemem.Set, *livemem.Change) {},
			func(*caching.Allocator, *caching.AllocatorChange) {},
		)
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		perEvent[i] = float64(after.Mallocs-before.Mallocs) / float64(n)
		if pieces := len(s.List[0].Pieces); pieces > 20_000 {
			t.Errorf("%d pieces for about 2,000 blocks", pieces)
		}
	}
	if perEvent[1] > 0.05 || perEvent[1] > perEvent[0] {
		t.Errorf("%.3f allocations per event, %.3f in a shorter recording", perEvent[1], perEvent[0])
	}
}
