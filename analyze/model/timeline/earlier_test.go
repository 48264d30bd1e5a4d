package timeline_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const (
	earlierSegment = 0x7f0000000000
	earlierRange   = 0x7e0000000000
)

// newEarlierRecording returns a recording of a process that had a segment of 20 MiB, and 60 MiB mapped to an expandable
// segment. They were read after a second. Before that, it freed the segment, and unmapped 20 MiB.
func newEarlierRecording(t *testing.T) *analyzetest.TestRecording {
	const mib = analyzetest.Mib
	recording := analyzetest.NewTestRecording(t)
	s := state.AllocatorState{
		Pid:    42,
		Ranges: []state.AllocatorRange{{Ptr: earlierRange, Bytes: 40 * mib, Expandable: true}},
		Blocks: []state.AllocatorBlock{{Ptr: earlierRange, Bytes: 4 * mib, Requested: 4*mib - 1}},
	}
	s.Allocated, s.Reserved = 4*mib, 40*mib
	recording.Rows = append(recording.Rows, analyzetest.EarlierRows(&s, analyzetest.Epoch+analyzetest.Second)...)
	event := func(at int64, name string, ptr, bytes, allocated, reserved int64) {
		recording.AddRow(format.Row{
			Kind: format.KindAllocator, Name: name, MemoryKind: format.MemoryTorch, StartNs: analyzetest.Epoch + at,
			Pid: 42, Tid: 42, Ptr: ptr, Bytes: bytes, AllocatedBytes: allocated, ReservedBytes: reserved,
		})
	}
	const ms = analyzetest.Ms
	event(10*ms, format.AllocatorFreeRequested, earlierSegment, 7*mib, 4*mib, 80*mib)
	event(11*ms, format.AllocatorFreeCompleted, earlierSegment, 7*mib, 4*mib, 80*mib)
	event(12*ms, format.AllocatorSegmentFree, earlierSegment, 20*mib, 4*mib, 80*mib)
	recording.AddFree(13*ms, analyzetest.Us, earlierSegment)
	recording.AddMemUnmap(14*ms, earlierRange+40*mib, 20*mib)
	recording.AddMemRelease(15*ms, 0x77)
	event(16*ms, format.AllocatorSegmentUnmap, earlierRange+40*mib, 20*mib, 4*mib, 40*mib)
	return recording
}

// TestEarlierSegmentsAreDriverMemory begins with the segments as driver memory, and matches all frees.
func TestEarlierSegmentsAreDriverMemory(t *testing.T) {
	testclass.Unit(t)
	const mib, ms = analyzetest.Mib, analyzetest.Ms
	recording := newEarlierRecording(t)
	for at, want := range map[int64]int64{1: 80 * mib, 14*ms + 2000: 40 * mib, 2 * analyzetest.Second: 40 * mib} {
		s, err := state.ReadMemory(recording.Timeline(), analyzetest.Epoch+at)
		if err != nil {
			t.Fatal(err)
		}
		var live int64
		for _, a := range s.Live {
			live += a.Bytes
		}
		if live != want || s.UnmatchedFrees != 0 || s.LostFrees != 0 {
			t.Errorf("at %d: %d bytes live, want %d; %d unmatched frees, %d lost", at, live, want, s.UnmatchedFrees,
				s.LostFrees)
		}
		if total := s.TotalOf(42, state.AllDeviceMemory); total.Allocs != 0 {
			t.Errorf("%d allocations", total.Allocs)
		}
	}
}

// TestEarlierBlocksAreProgramMemory begins with the blocks, without the segments.
func TestEarlierBlocksAreProgramMemory(t *testing.T) {
	testclass.Unit(t)
	const mib = analyzetest.Mib
	tl := newEarlierRecording(t).Timeline()
	var live, most int64
	p, err := tl.ReplayProgram(func(p *timeline.ProgramMemory, c *livemem.Change) {
		if !c.Block.IsEarlier() || p.T.SiteOfOrigin(c.Block.Origin) != "(before the recording)" {
			t.Errorf("change %+v", c)
		}
		live += livemem.LiveBytesChange(c)
		most = max(most, live)
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if most != 11*mib-1 || live != 4*mib-1 {
		t.Errorf("%d bytes live at most, %d at the end", most, live)
	}
	p.EachBlock(func(ptr int64, b livemem.Block) {
		if ptr != earlierRange || b.Bytes != 4*mib-1 {
			t.Errorf("%#x: %+v", ptr, b)
		}
	})
}

// TestEarlierMemoryEnds ends it with the primary context, and with the process.
func TestEarlierMemoryEnds(t *testing.T) {
	testclass.Unit(t)
	for name, end := range map[string]func(*analyzetest.TestRecording){
		"reset": func(recording *analyzetest.TestRecording) {
			segment := state.AllocatorState{Pid: 42, Ranges: []state.AllocatorRange{{Ptr: earlierSegment, Bytes: 20 << 20}}}
			segment.Reserved = 20 << 20
			recording.Rows = analyzetest.EarlierRows(&segment, analyzetest.Epoch+analyzetest.Second)
			recording.AddAPICall("cuDevicePrimaryCtxReset_v2", 2*analyzetest.Second, 0, 0)
		},
		"exit": func(recording *analyzetest.TestRecording) { recording.AddExit(42, 2*analyzetest.Second) },
	} {
		recording := newEarlierRecording(t)
		end(recording)
		s, err := state.ReadMemory(recording.Timeline(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Live) != 0 || len(s.Left) == 0 {
			t.Errorf("%s: live %v, left %v", name, s.Live, s.Left)
		}
	}
}

// TestManyEarlierPages bounds the pages of an expandable segment that a damaged recording claims.
func TestManyEarlierPages(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	const bytes = 1 << 47
	s := state.AllocatorState{Pid: 42, Ranges: []state.AllocatorRange{{Ptr: 1 << 21, Bytes: bytes, Expandable: true}}}
	s.Reserved = bytes
	recording.Rows = append(recording.Rows, analyzetest.EarlierRows(&s, analyzetest.Epoch+1)...)
	m, err := state.ReadMemory(recording.Timeline(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Live) != 1 || m.Live[0].Bytes != bytes {
		t.Errorf("%d allocations", len(m.Live))
	}
}
