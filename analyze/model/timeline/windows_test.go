package timeline_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// allocatorMoment is the state of an allocator at a time.
type allocatorMoment struct {
	atNs     int64  // Unix ns
	name     string // of the allocator
	totals   caching.AllocatorTotals
	blocks   []caching.SegmentPiece // in order of address
	segments []segmentText          // in order of address
}

// segmentText is a segment or a mapped range, with its pieces as text.
type segmentText struct {
	from, to int64
	text     string
}

// momentsOf returns the states of allocators at times, Unix ns, by time and allocator.
func momentsOf(t *testing.T, tl *timeline.Timeline, times []int64) map[string]*allocatorMoment {
	t.Helper()
	list := make(map[string]*allocatorMoment)
	var order []*allocatorMoment
	err := state.VisitAllocatorsAt(tl, times, func(i int, a *caching.Allocator, _ bool) {
		m := &allocatorMoment{atNs: times[i], name: fmt.Sprintf("%d/%d", a.Pid, a.Device), totals: a.Seen}
		a.EachLiveBlock(func(p *caching.SegmentPiece) { m.blocks = append(m.blocks, *p) })
		slices.SortFunc(m.blocks, func(a, b caching.SegmentPiece) int { return int(a.Ptr - b.Ptr) })
		for s := range a.SegmentsInOrder() {
			g := segmentText{from: s.Ptr, text: fmt.Sprintf("pool %d mapped %v:", s.Pool, s.IsMappedRange())}
			for _, p := range a.PiecesWithin(s) {
				g.text += fmt.Sprintf(" %x+%d %d", p.Ptr, p.Size, p.State)
				g.to = p.Ptr + p.Size
			}
			m.segments = append(m.segments, g)
		}
		list[fmt.Sprintf("%d of %s", m.atNs, m.name)] = m
		order = append(order, m)
	}, func(i int, a *caching.Allocator) { order[i].totals = order[i].totals.AddTotals(a.Before) })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// windowRecording returns a recording of some seconds of random allocators of 2 processes and 2 devices. With churn, few
// sizes are used, so that addresses are used again and again for equal blocks.
func windowRecording(t *testing.T, seed uint64, churn bool) *analyzetest.TestRecording {
	var conf analyzetest.TorchConf
	recording, worlds := analyzetest.TorchAllocatorRecording(t, seed, 1500, func(w *analyzetest.TorchAllocator) {
		if w.Patient = true; w.Device == 0 {
			conf = w.Conf
		}
		w.Conf = conf // that of the other device of the process
		if !churn {
			return
		}
		for range 3000 {
			if size := int64(1+w.R.IntN(3)) * 300_000; len(w.Held) < 40 {
				w.AllocBlock(size, analyzetest.TorchSegment{})
			} else {
				w.FreeBlock(w.Held[w.R.IntN(len(w.Held)-1)])
			}
		}
	})
	for _, w := range worlds[1:] {
		recording.AddRow(format.Row{
			Kind: format.KindNote, Name: format.NoteAllocator, StartNs: analyzetest.Epoch, Pid: w.Pid, Device: -1,
			Message: fmt.Sprintf(`{"allocator":"torch","conf":%q}`, w.Conf.String()),
		})
	}
	last := int64(0)
	for _, r := range recording.Rows {
		last = max(last, r.StartNs)
	}
	stretch := 4 * analyzetest.Second / (last - analyzetest.Epoch)
	for _, r := range recording.Rows {
		r.StartNs = analyzetest.Epoch + (r.StartNs-analyzetest.Epoch)*stretch
	}
	recording.Meta.StartNs = analyzetest.Epoch
	recording.Meta.EndNs = analyzetest.Epoch + (last-analyzetest.Epoch)*stretch + 1
	return recording
}

// cutRecording returns the recording with a seed in windows.
func cutRecording(t *testing.T, seed uint64, churn bool, refused float64) *analyzetest.TestRecording {
	cut := windowRecording(t, seed, churn)
	cut.CutIntoWindows(analyzetest.AllocatorWindows{
		Seed: seed, WindowNs: 100 * analyzetest.Ms, Share: 0.2, Refused: refused,
	})
	return cut
}

// knownTimes returns the times at which the model must be exact, Unix ns: those of events and of readings.
func knownTimes(recording *analyzetest.TestRecording) (times []int64) {
	for _, r := range recording.Rows {
		if r.Kind == format.KindAllocator || r.Name == format.BlocksRead {
			times = append(times, r.StartNs)
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// windowOracle compares the blocks of a recording in windows with those of the complete one.
type windowOracle struct {
	t                  *testing.T
	cut                *timeline.Timeline
	seen, unseen, used int // blocks with the right origin; not seen; at an address that was used again
	wrong              int // blocks with a wrong predicted size
}

// compare fails the test unless an allocator has the wanted memory at a time. A predicted size may be wrong: nothing shows
// the size of a block whose free is the first event of a window.
func (o *windowOracle) compare(at string, got, want *allocatorMoment) {
	o.t.Helper()
	if got == nil || len(got.blocks) != len(want.blocks) {
		o.t.Fatalf("%s: %+v, want %+v", at, got, want)
	}
	isWrong := make(map[int64]bool)
	for i := range want.blocks {
		if g := &got.blocks[i]; g.IsSizePredicted() && g.Size != want.blocks[i].Size {
			isWrong[g.Ptr] = true
			o.wrong++
			g.Size = want.blocks[i].Size
		}
		o.compareBlock(at, &got.blocks[i], &want.blocks[i])
	}
	o.compareSegments(at, got, want, isWrong)
	g, w := got.totals, want.totals
	if len(isWrong) > 0 {
		g.Allocated, g.Active, g.InactiveSplit = w.Allocated, w.Active, w.InactiveSplit
	}
	if g != w {
		o.t.Fatalf("%s: totals %+v, want %+v", at, got.totals, want.totals)
	}
}

// compareSegments fails the test unless the segments are the wanted ones. It leaves out segments with a block of a
// wrong size.
func (o *windowOracle) compareSegments(at string, got, want *allocatorMoment, isWrong map[int64]bool) {
	o.t.Helper()
	for i, s := range want.segments {
		isLeftOut := false
		for ptr := range isWrong {
			isLeftOut = isLeftOut || s.from <= ptr && ptr < s.to
		}
		if !isLeftOut && (len(got.segments) != len(want.segments) || got.segments[i] != s) {
			o.t.Fatalf("%s: segments %v, want %v", at, got.segments, want.segments)
		}
	}
}

// isInGap reports whether events at a time, Unix ns, are not in the recording.
func (o *windowOracle) isInGap(ns int64) bool { return o.cut.UnrecordedAllocatorNs(ns, ns+1) > 0 }

// compareBlock fails the test if a block is not the wanted one. Its allocation must be the right one, or not seen. It may
// be that of an earlier equal block at the address, which was freed in a gap in which the wanted one was allocated.
func (o *windowOracle) compareBlock(at string, got, want *caching.SegmentPiece) {
	o.t.Helper()
	isRight := got.Ptr == want.Ptr && got.Size == want.Size && got.Requested == want.Requested &&
		got.State == want.State && got.Pool == want.Pool && got.Stream == want.Stream
	switch {
	case got.SinceNs == want.SinceNs && !got.IsUnseen:
		o.seen++
	case got.SinceNs < want.SinceNs: // nothing distinguishes the two blocks
		isRight = isRight && o.isInGap(want.SinceNs)
		o.used++
	default:
		isRight = isRight && got.IsUnseen && got.Origin == origin.NoOrigin && o.isInGap(want.SinceNs)
		o.unseen++
	}
	if !isRight {
		o.t.Fatalf("%s: block %+v, want %+v", at, got, want)
	}
}

// TestWindowsEqualCompleteModel compares the model of recordings in windows with that of complete ones, at each event and
// at each reading.
func TestWindowsEqualCompleteModel(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(10) {
		churn := seed%2 == 1
		cut := cutRecording(t, seed, churn, 0)
		times := knownTimes(cut)
		o := &windowOracle{t: t, cut: cut.Timeline()}
		want := momentsOf(t, windowRecording(t, seed, churn).Timeline(), times)
		got := momentsOf(t, o.cut, times)
		for key, w := range want {
			o.compare(fmt.Sprintf("seed %d, %s", seed, key), got[key], w)
		}
		if all := o.seen + o.unseen + o.used; o.wrong > all/500 {
			t.Errorf("seed %d: %d of %d blocks have a wrong predicted size", seed, o.wrong, all)
		}
		if o.seen < 1000 || o.unseen < 1000 || churn && o.used < 100 {
			t.Errorf("seed %d: %d blocks seen, %d not seen, %d addresses used again", seed, o.seen, o.unseen, o.used)
		}
		checkWindowCounts(t, cut, o.cut)
	}
}

// checkWindowCounts fails the test if gaps count as a fault of the recording, or if recorded and unrecorded allocations
// are not those of the allocators' counters.
func checkWindowCounts(t *testing.T, cut *analyzetest.TestRecording, tl *timeline.Timeline) {
	t.Helper()
	type numbers struct{ allocs, frees int64 }
	want := make(map[caching.AllocatorKey]numbers)
	lastNs := int64(0)
	for _, r := range cut.Rows {
		if r.Name == format.BlockTotals {
			key := caching.AllocatorKey{Pid: r.Pid, Device: r.Device}
			want[key] = numbers{max(want[key].allocs, int64(r.Value)), max(want[key].frees, r.Counter)}
			lastNs = max(lastNs, r.StartNs)
		}
	}
	for _, r := range cut.Rows { // events after the last totals
		key, n := caching.AllocatorKey{Pid: r.Pid, Device: r.Device}, numbers{}
		if r.StartNs > lastNs && r.Name == format.AllocatorAlloc {
			n.allocs++
		} else if r.StartNs > lastNs && r.Name == format.AllocatorFreeRequested {
			n.frees++
		}
		want[key] = numbers{want[key].allocs + n.allocs, want[key].frees + n.frees}
	}
	_, set, err := tl.ReplayMemoryAndAllocators(
		func(*livemem.Set, *livemem.Change) {}, func(*caching.Allocator, *caching.AllocatorChange) {},
	)
	if err != nil {
		t.Fatal(err)
	}
	set.EachAllocator(func(a *caching.Allocator) {
		c := &a.Counts
		if a.Check.Disagreed+c.LostFrees+c.UnmatchedFrees > 0 || !a.IsRecordedFromStart() || !a.HasWholeState() {
			t.Errorf("%d/%d: %d disagreed, %+v", a.Pid, a.Device, a.Check.Disagreed, *c)
		}
		allocs, frees := c.RecordedCalls()
		got := numbers{allocs + c.UnrecordedAllocs, frees + c.UnrecordedFrees}
		if w := want[caching.AllocatorKey{Pid: a.Pid, Device: a.Device}]; got != w || c.UnrecordedAllocs == 0 {
			t.Errorf("%d/%d: %+v, want %+v; not seen: %+v", a.Pid, a.Device, got, w, *c)
		}
	})
}

// TestWindowsWithoutReadings refuses most readings: a reading corrects the model whenever there is one, and totals are
// exact at each event.
func TestWindowsWithoutReadings(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(6) {
		cut := cutRecording(t, seed, seed%2 == 1, 0.7)
		complete := windowRecording(t, seed, seed%2 == 1).Timeline()
		var readings, events []int64
		for _, r := range cut.Rows {
			switch {
			case r.Name == format.BlocksRead:
				readings = append(readings, r.StartNs)
			case r.Kind == format.KindAllocator && r.Name != format.AllocatorSnapshot:
				events = append(events, r.StartNs)
			}
		}
		slices.Sort(readings)
		readings = slices.Compact(readings)
		want, got := momentsOf(t, complete, readings), momentsOf(t, cut.Timeline(), readings)
		for key, w := range want {
			if g := got[key]; g == nil || g.totals != w.totals || !slices.Equal(g.segments, w.segments) {
				t.Fatalf("seed %d: reading at %s: %+v, want %+v", seed, key, g, w)
			}
		}
		slices.Sort(events)
		compareOwnTotals(t, cut.Timeline(), seed)
	}
}

// compareOwnTotals fails the test unless the allocated and reserved bytes equal the allocator's own totals at each event.
func compareOwnTotals(t *testing.T, tl *timeline.Timeline, seed uint64) {
	t.Helper()
	states, err := state.ReadAllocators(tl, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Disagreed+s.LostFrees+s.UnmatchedFrees > 0 || s.Compared == 0 {
			t.Errorf(
				"seed %d: %d/%d: %d of %d disagree, %d lost frees, %d unmatched",
				seed,
				s.Pid,
				s.Device,
				s.Disagreed,
				s.Compared,
				s.LostFrees,
				s.UnmatchedFrees,
			)
		}
	}
}

// TestWindowsOfAProgram adds up the changes of a program's memory: they must lead to its live blocks at each time.
func TestWindowsOfAProgram(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(6) {
		tl := cutRecording(t, seed, seed%2 == 1, 0.3).Timeline()
		live := make(map[int64]livemem.Block)
		changes := 0
		check := func(p *timeline.ProgramMemory) {
			t.Helper()
			n := 0
			p.EachBlock(func(ptr int64, b livemem.Block) {
				n++
				if live[ptr^int64(b.Origin)<<48] != b {
					t.Fatalf(
						"seed %d: block %x is %+v, the changes say %+v",
						seed,
						ptr,
						b,
						live[ptr^int64(b.Origin)<<48],
					)
				}
			})
			if n != len(live) {
				t.Fatalf("seed %d: %d blocks, %d by the changes", seed, n, len(live))
			}
		}
		p, err := tl.ReplayProgram(func(p *timeline.ProgramMemory, c *livemem.Change) {
			key := c.Ptr ^ int64(c.Block.Origin)<<48
			if c.Kind == livemem.ChangeAllocated {
				live[key] = c.Block
			} else {
				if live[key] != c.Block {
					t.Fatalf("seed %d: at %d: %+v ends, but %+v is there", seed, c.AtNs, c.Block, live[key])
				}
				delete(live, key)
			}
			if c.Kind == livemem.ChangeFreeLost {
				t.Fatalf("seed %d: a free is lost", seed)
			}
			changes++
		}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		check(p)
		if changes < 1000 {
			t.Errorf("seed %d: %d changes", seed, changes)
		}
	}
}

// TestWindowsOfAGrowingRecording feeds recordings in pieces. After the last piece, the allocators are those of a direct
// replay, and nothing counts as lost.
func TestWindowsOfAGrowingRecording(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(4) {
		whole := cutRecording(t, seed, seed%2 == 1, 0.2).WriteAndOpen()
		pieces := analyzetest.SplitRecording(t, whole, 9)
		tl, err := timeline.Open(pieces[0].Rec)
		if err != nil {
			t.Fatal(err)
		}
		ignore := func(*timeline.ProgramMemory, *livemem.Change) {}
		r := tl.NewProgramReplay(ignore, nil, nil)
		for i, piece := range pieces {
			if i > 0 {
				if err := tl.Extend(piece.Rec); err != nil {
					t.Fatal(err)
				}
			}
			if i+1 < len(pieces) {
				if err := r.Advance(piece.LimitNs); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := r.Finish()
		if err != nil {
			t.Fatal(err)
		}
		direct, err := timeline.Open(whole)
		if err != nil {
			t.Fatal(err)
		}
		want, err := direct.ReplayProgram(ignore, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		compareFinalBlocks(t, fmt.Sprintf("seed %d", seed), got.Allocators, want.Allocators)
	}
}

// compareFinalBlocks fails the test unless two sets have the same allocators with the same blocks.
func compareFinalBlocks(t *testing.T, name string, got, want *caching.AllocatorSet) {
	t.Helper()
	texts := func(s *caching.AllocatorSet) (list []string) {
		s.EachAllocator(func(a *caching.Allocator) {
			if a.Counts.LostFrees+a.Counts.UnmatchedFrees+a.Check.Disagreed > 0 {
				t.Errorf("%s: %d/%d: %+v, %d disagreed", name, a.Pid, a.Device, a.Counts, a.Check.Disagreed)
			}
			totals := a.Totals()
			list = append(list, fmt.Sprintf("%d/%d %+v", a.Pid, a.Device, totals))
			a.EachLiveBlock(func(p *caching.SegmentPiece) {
				list = append(list, fmt.Sprintf("%d/%d %x %d %d", a.Pid, a.Device, p.Ptr, p.Size, p.State))
			})
		})
		slices.Sort(list)
		return list
	}
	g, w := texts(got), texts(want)
	if len(w) < 50 || !slices.Equal(g, w) {
		t.Errorf("%s: %d lines %v, want %d lines %v", name, len(g), g[:min(5, len(g))], len(w), w[:min(5, len(w))])
	}
}
