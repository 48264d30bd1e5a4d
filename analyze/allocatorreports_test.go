package analyze

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/export/torchsnapshot"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	fragpkg "github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// reportsTraining is torchTraining of which the recording has the allocator's reports only.
func reportsTraining(t *testing.T, conf torchConf, leak int64) (*tape, *torchWorld) {
	conf.reports = true
	return torchTraining(t, conf, leak)
}

func TestLeaksOfReportedTensors(t *testing.T) {
	const leak = 3_000_000
	for name, conf := range map[string]torchConf{"segments": {}, "expandable segments": {expandable: true}} {
		t.Run(name, func(t *testing.T) {
			tp, w := reportsTraining(t, conf, leak)
			tl := tp.timeline()
			r, err := leaks.Run(tl, query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]any{
				"verdict": "growing", "site": "keep (train.py:42)", "memory_kind": format.MemoryTorch, "live_count": int64(590), "confidence": "high",
			} {
				if got := cell(t, r, 0, key); got != want {
					t.Errorf("%s is %v, want %v: %s", key, got, want, r.Tables[0].Rows[0].Evidence)
				}
			}
			rate := float64(cell(t, r, 0, "growth_bytes_per_min").(int64))
			if want := float64(600 * leak); math.Abs(rate-want) > want/20 {
				t.Errorf("grows by %.0f bytes/min, want %.0f", rate, want)
			}
			sum := w.totals()
			if got, want := r.Totals[0].Value, sum.Allocated+64*mib; got != want { // 64 MiB of the program's own call
				t.Errorf("%d bytes live, want %d", got, want)
			}
			if want := "reserved " + units.Bytes(sum.Reserved) + ", of which " + units.Bytes(sum.Allocated) + " allocated"; r.Facts[0].Value != want {
				t.Errorf("allocator: %q, want %q", r.Facts[0].Value, want)
			}
			for i := range r.Tables[0].Rows {
				if site := cell(t, r, i, "site"); site == "segment" {
					t.Error("memory of segments is counted twice")
				}
			}
			if v, _, _ := r.Number("growing"); v != 1 {
				t.Errorf("%v rows grow", v)
			}
			if q := r.Quality; q.AllocatorDisagreed != 0 || q.AllocatorCompared == 0 || q.AllocatorsByReports != 1 || !strings.Contains(q.String(), "1 processes with allocators known by reports only") {
				t.Errorf("quality %s", q.String())
			}
			if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "what was asked for rounded up") }) {
				t.Errorf("notes %q", r.Notes)
			}
		})
	}
}

func TestReportsWithoutALeak(t *testing.T) {
	for _, conf := range []torchConf{{}, {expandable: true}} {
		tp, _ := reportsTraining(t, conf, 0)
		r, err := leaks.Run(tp.timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v, _, _ := r.Number("growing"); v != 0 {
			t.Errorf("%s: %v rows grow: %v", conf, v, r.Tables[0].Rows[0].Cells)
		}
	}
}

// Blocks are found in the driver's memory by their addresses, whatever stacks say.
func TestDriversMemoryAroundAnAddress(t *testing.T) {
	var l timeline.Addressed
	number := int32(0)
	add := func(ptr, bytes int64) {
		l.Note(&ledger.Change{Kind: ledger.Allocated, Ptr: ptr, Block: ledger.Block{Bytes: bytes, Number: number}})
		number++
	}
	add(64*mib, 20*mib)
	add(10*mib, 2*mib)
	add(30*mib, mib) // too small for a segment
	add(12*mib, 4*mib)
	for ptr, want := range map[int64]int32{64 * mib: 0, 84*mib - 1: 0, 84 * mib: -1, 63 * mib: -1, 10 * mib: 1, 12*mib - 1: 1, 12 * mib: 3, 30 * mib: -1, 0: -1} {
		if n, ok := l.Around(ptr); ok != (want >= 0) || ok && n != want {
			t.Errorf("around %d MiB: %d, %v, want %d", ptr/mib, n, ok, want)
		}
	}
	l.Note(&ledger.Change{Kind: ledger.Freed, Ptr: 12 * mib})
	l.Note(&ledger.Change{Kind: ledger.Freed, Ptr: 11 * mib})
	if _, ok := l.Around(13 * mib); ok || len(l) != 2 {
		t.Errorf("after a free: %+v", l)
	}
}

// What reports do not tell is absent, and where that is all that a report is about, it says so.
func TestReportsSayWhatTheyLack(t *testing.T) {
	tp, w := reportsTraining(t, torchConf{}, 3_000_000)
	tl := tp.timeline()
	r, err := allocator.Run(tl, allocator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum := w.totals()
	for key, want := range map[string]any{
		"allocated_bytes": sum.Allocated, "reserved_bytes": sum.Reserved, "cached_bytes": sum.Reserved - sum.Allocated, "allocations": sum.Allocations, "from_start": true,
		"requested_bytes": nil, "active_bytes": nil, "inactive_split_bytes": nil, "segments": nil, "disagreed_events": int64(0), "lost_frees": int64(0),
	} {
		if got := cell(t, r, 0, key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	frag, pictures, err := fragpkg.Run(tl, fragpkg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if lacks, _ := frag.Facts[0].Value.(string); !strings.Contains(lacks, "are not in this recording") || !strings.Contains(lacks, "--allocator=auto") || len(pictures) != 0 || len(frag.Tables[0].Rows) != 0 {
		t.Errorf("frag: %+v, %d maps, rows %v", frag.Facts, len(pictures), frag.Tables[0].Rows)
	}
	s, data := takeSnapshot(t, tl, torchsnapshot.Options{At: query.AtTime, AtNs: epoch + w.now})
	if text := strings.Join(s.Missing, "\n"); !strings.Contains(text, "put together from blocks that were reported") || !strings.Contains(text, "bytes asked for") {
		t.Errorf("snapshot: %q", s.Missing)
	}
	var got torchPickle
	unpickle(t, data, &got)
	blocks := w.blocks()
	n, actions := 0, make(map[string]int64)
	for _, g := range got.Segments {
		for _, b := range g.Blocks {
			if b.State == "inactive" {
				continue
			}
			n++
			if want := blocks[b.Address]; b.Size != want.Bytes || b.State != "active_allocated" {
				t.Errorf("block %+v, want %+v", b, want)
			}
		}
	}
	for _, e := range got.Device_traces[0] {
		actions[e.Action]++
	}
	if n != len(blocks) || len(actions) != 2 || actions["alloc"]-actions["free_completed"] != sum.Allocations {
		t.Errorf("%d of %d blocks, trace %v", n, len(blocks), actions)
	}
}
