package earlier_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const (
	mib  = 1 << 20
	base = 0x7f0000000000
)

// newRecording returns a recording of a process that had 40 blocks of 1 MiB in a segment of 64 MiB before it.
func newRecording(t *testing.T) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	s := state.AllocatorState{Pid: 42, Ranges: []state.AllocatorRange{{Ptr: base, Bytes: 64 * mib}}}
	for i := range int64(40) {
		s.Blocks = append(s.Blocks, state.AllocatorBlock{Ptr: base + i*mib, Bytes: mib, Requested: mib - 24})
	}
	s.Allocated, s.Reserved = 40*mib, 64*mib
	recording.Rows = append(recording.Rows, analyzetest.EarlierRows(&s, analyzetest.Epoch+analyzetest.Second)...)
	recording.AddRow(format.Row{
		Kind:    format.KindNote,
		Name:    format.NoteAllocator,
		Pid:     42,
		Device:  -1,
		Message: `{"allocator":"torch","source":"record_trace"}`,
	})
	return recording
}

// addEvents allocates new blocks, and frees as many old ones if frees is set. The new ones are of 1 MiB, behind the old ones.
func addEvents(recording *analyzetest.TestRecording, frees bool) {
	recording.AddLibraryStack(1, "/lib/libtorch.so", "f")
	allocated := int64(40 * mib)
	event := func(at int64, name string, ptr int64) {
		recording.AddRow(format.Row{
			Kind:           format.KindAllocator,
			Name:           name,
			MemoryKind:     format.MemoryTorch,
			StartNs:        analyzetest.Epoch + at,
			Pid:            42,
			Tid:            42,
			Ptr:            ptr,
			Bytes:          mib - 24,
			AllocatedBytes: allocated,
			ReservedBytes:  64 * mib,
			StackID:        1,
		})
	}
	for i := range int64(20) {
		at := (2 + 3*i) * analyzetest.Second
		event(at, format.AllocatorAlloc, base+(40+i)*mib)
		allocated += mib
		if frees {
			allocated -= mib
			event(at+analyzetest.Ms, format.AllocatorFreeRequested, base+i*mib)
			event(at+2*analyzetest.Ms, format.AllocatorFreeCompleted, base+i*mib)
		}
	}
}

func TestBlocksBySizePoolAndSegment(t *testing.T) {
	testclass.Unit(t)
	recording := newRecording(t)
	addEvents(recording, true)
	r, err := allocator.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := factText(r, "earlier")
	if want := "40 blocks, 40.0 MiB, in 1 segment of 64.0 MiB (PyTorch, read at +"; !strings.HasPrefix(text, want) {
		t.Errorf("fact %q, want %q", text, want)
	}
	if from := factText(r, "seen_from"); !strings.Contains(from, "blocks and segments from before were read") {
		t.Errorf("seen from %q", from)
	}
	sizes, blocks := analyzetest.ColumnTexts(
		t,
		r,
		"earlier",
		"size",
	), analyzetest.ColumnTexts(
		t,
		r,
		"earlier",
		"blocks",
	)
	if got, want := fmt.Sprint(sizes, blocks), "[64.0 KiB to 1.0 MiB free] [40 1]"; got != want {
		t.Errorf("table %s, want %s", got, want)
	}
	if n, _, _ := r.FindNumber("late_allocators"); n != 0 {
		t.Errorf("%v allocators are seen late", n)
	}
}

func TestRefusedBlocksAreUnknown(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddRow(format.Row{
		Kind: format.KindNote, Name: format.NoteAllocatorState, StartNs: analyzetest.Epoch, Pid: 42, Device: -1,
		Message: `{"refused":"the allocator did not pause for long enough"}`,
	})
	tl := recording.Timeline()
	r := &report.Report{}
	earlier.NewScan(tl, &query.Filter{}).Append(r)
	if text := factText(r, "earlier"); text != "unknown for process 42: the allocator did not pause for long enough" {
		t.Errorf("fact %q", text)
	}
	if len(r.Tables) != 0 {
		t.Errorf("%d tables", len(r.Tables))
	}
	r = &report.Report{}
	earlier.NewScan(tl, &query.Filter{Pids: []int32{7}}).Append(r)
	if len(r.Facts) != 0 {
		t.Errorf("another process: %+v", r.Facts)
	}
}

// TestExplainedGrowth compares the growth of one site with that of all memory. Where the program frees as much memory
// from before the recording, nothing grows.
func TestExplainedGrowth(t *testing.T) {
	testclass.Unit(t)
	for frees, want := range map[bool]string{false: "100", true: "<nil>"} {
		recording := newRecording(t)
		addEvents(recording, frees)
		r, err := leaks.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		var grown float64
		for _, f := range r.Totals {
			switch f.Key {
			case "explained_growth_pct":
				got = fmt.Sprint(f.Value)
			case "total_growth_bytes":
				grown, _, _ = r.FindNumber(f.Key)
			}
		}
		if got != want {
			t.Errorf("frees %v: %s %% of %v bytes explained, want %s", frees, got, grown, want)
		}
	}
}

// factText returns the text of a fact.
func factText(r *report.Report, key string) string {
	for _, f := range r.Facts {
		if f.Key == key {
			return fmt.Sprint(f.Value)
		}
	}
	return ""
}
