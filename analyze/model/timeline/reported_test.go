package timeline_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestLeaksOfReportedTensors(t *testing.T) {
	testclass.Unit(t)
	const leak = 3_000_000
	for name, conf := range map[string]analyzetest.TorchConf{
		"segments":            {},
		"expandable segments": {Expandable: true},
	} {
		t.Run(name, func(t *testing.T) {
			recording, w := analyzetest.ReportedTrainingRecording(t, conf, leak)
			tl := recording.Timeline()
			r, err := leaks.Run(tl, query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]any{
				"verdict":     "growing",
				"site":        "keep (train.py:42)",
				"memory_kind": format.MemoryTorch,
				"live_count":  int64(590),
				"confidence":  "high",
			} {
				if got := analyzetest.CellValue(t, r, 0, key); got != want {
					t.Errorf("%s is %v, want %v: %s", key, got, want, r.Tables[0].Rows[0].Evidence)
				}
			}
			rate := float64(analyzetest.CellValue(t, r, 0, "growth_bytes_per_min").(int64))
			if want := float64(600 * leak); math.Abs(rate-want) > want/20 {
				t.Errorf("growth is %.0f bytes/min, want %.0f", rate, want)
			}
			sum := w.CheckedTotals()
			// memory that the program allocated with cuMemAlloc
			if got, want := r.Totals[0].Value, sum.Allocated+64*analyzetest.Mib; got != want {
				t.Errorf("%d bytes live, want %d", got, want)
			}
			want := units.FormatBytes(sum.Allocated) + " allocated of " + units.FormatBytes(sum.Reserved) + " reserved"
			if got := r.Facts[0].Value; got != want {
				t.Errorf("allocator: %q, want %q", got, want)
			}
			for i := range r.Tables[0].Rows {
				if site := analyzetest.CellValue(t, r, i, "site"); site == "segment" {
					t.Error("memory of segments is counted twice")
				}
			}
			if v, _, _ := r.FindNumber("growing"); v != 1 {
				t.Errorf("%v rows have the verdict growing", v)
			}
			if q := r.Quality; q.AllocatorDisagreed != 0 || q.AllocatorCompared == 0 || q.AllocatorsByReports != 1 ||
				!strings.Contains(q.String(), "1 process with allocators known by reports only") {
				t.Errorf("quality %s", q.String())
			}
			if !slices.ContainsFunc(r.Notes, func(n string) bool {
				return strings.Contains(n, "requested sizes rounded up")
			}) {
				t.Errorf("notes %q", r.Notes)
			}
		})
	}
}

func TestReportsWithoutALeak(t *testing.T) {
	testclass.Unit(t)
	for _, conf := range []analyzetest.TorchConf{{}, {Expandable: true}} {
		recording, _ := analyzetest.ReportedTrainingRecording(t, conf, 0)
		r, err := leaks.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v, _, _ := r.FindNumber("growing"); v != 0 {
			t.Errorf("%s: %v rows have the verdict growing: %v", conf, v, r.Tables[0].Rows[0].Cells)
		}
	}
}

// TestDriversMemoryAroundAnAddress checks that a block is matched to driver memory by its address,
// not by its stack.
func TestDriversMemoryAroundAnAddress(t *testing.T) {
	testclass.Unit(t)
	var l timeline.SegmentCandidates
	number := int32(0)
	add := func(ptr, bytes int64) {
		l.ApplyChange(
			&livemem.Change{
				Kind:  livemem.ChangeAllocated,
				Ptr:   ptr,
				Block: livemem.Block{Bytes: bytes, Number: number},
			},
		)
		number++
	}
	add(64*analyzetest.Mib, 20*analyzetest.Mib)
	add(10*analyzetest.Mib, 2*analyzetest.Mib)
	add(30*analyzetest.Mib, analyzetest.Mib) // a block that is too small for an allocator's segment
	add(12*analyzetest.Mib, 4*analyzetest.Mib)
	for ptr, want := range map[int64]int32{
		64 * analyzetest.Mib:   0,
		84*analyzetest.Mib - 1: 0,
		84 * analyzetest.Mib:   -1,
		63 * analyzetest.Mib:   -1,
		10 * analyzetest.Mib:   1,
		12*analyzetest.Mib - 1: 1,
		12 * analyzetest.Mib:   3,
		30 * analyzetest.Mib:   -1,
		0:                      -1,
	} {
		if n, ok := l.BlockAround(ptr); ok != (want >= 0) || ok && n != want {
			t.Errorf("around %d MiB: %d, %v, want %d", ptr/analyzetest.Mib, n, ok, want)
		}
	}
	l.ApplyChange(&livemem.Change{Kind: livemem.ChangeFreed, Ptr: 12 * analyzetest.Mib})
	l.ApplyChange(&livemem.Change{Kind: livemem.ChangeFreed, Ptr: 11 * analyzetest.Mib})
	if _, ok := l.BlockAround(13 * analyzetest.Mib); ok || len(l) != 2 {
		t.Errorf("after a free: %+v", l)
	}
}
