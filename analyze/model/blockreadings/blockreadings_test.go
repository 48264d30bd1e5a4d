package blockreadings_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

var everything = blockreadings.Selection{
	Window: query.Window{ToNs: 1 << 62}, Passes: func(blockreadings.Key) bool { return true },
}

// readAll reads a recording. It fails the test on an error.
func readAll(
	t *testing.T,
	recording *analyzetest.TestRecording,
	selected blockreadings.Selection,
	consume func(*blockreadings.Allocator),
) []*blockreadings.Allocator {
	t.Helper()
	list, err := blockreadings.Read(recording.Timeline(), selected, consume)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// reading is the truth about a reading: its blocks and what the previous reading makes of them.
type reading struct {
	levels  map[blockreadings.Size]blockreadings.Level
	sinceNs map[int64]int64 // by address
	blocks  []analyzetest.TestBlock
}

// newReading returns the truth about a reading. The address, the size and the pool of a block decide whether it is an old one.
func newReading(blocks []analyzetest.TestBlock, atNs int64, before *reading) *reading {
	r := &reading{
		levels: make(map[blockreadings.Size]blockreadings.Level), sinceNs: make(map[int64]int64), blocks: blocks,
	}
	for _, b := range blocks {
		size := blockreadings.Size{Requested: b.Requested, Pool: b.Pool, Stream: b.Stream}
		l := r.levels[size]
		r.levels[size] = blockreadings.Level{Blocks: l.Blocks + 1, Bytes: l.Bytes + b.Bytes}
		r.sinceNs[b.Ptr] = atNs
		if before == nil {
			continue
		}
		if i := slices.IndexFunc(before.blocks, func(o analyzetest.TestBlock) bool {
			o.Name = b.Name
			return o == b
		}); i >= 0 {
			r.sinceNs[b.Ptr] = before.sinceNs[b.Ptr]
		}
	}
	return r
}

// compare fails the test unless an allocator has the blocks of a reading.
func (r *reading) compare(t *testing.T, a *blockreadings.Allocator, before *reading) {
	t.Helper()
	if got := maps.Collect(a.EachLevel()); !maps.Equal(got, r.levels) {
		t.Fatalf("at %d: levels %v, want %v", a.AtNs, got, r.levels)
	}
	ages := make(map[string]int)
	var all blockreadings.Level
	for b := range a.EachBlock() {
		ages[fmt.Sprint(b.Size, b.SinceNs)]++
		all.Blocks, all.Bytes = all.Blocks+1, all.Bytes+b.Bytes
	}
	for _, b := range r.blocks {
		size := blockreadings.Size{Requested: b.Requested, Pool: b.Pool, Stream: b.Stream}
		ages[fmt.Sprint(size, r.sinceNs[b.Ptr])]--
	}
	for what, n := range ages {
		if n != 0 {
			t.Fatalf("at %d: %d blocks too many of %s", a.AtNs, n, what)
		}
	}
	if all != a.AllBlocks() {
		t.Fatalf("at %d: %v blocks, want %v", a.AtNs, a.AllBlocks(), all)
	}
	for size, c := range a.EachChange() {
		if before == nil {
			continue
		}
		if c.New-c.Gone != r.levels[size].Blocks-before.levels[size].Blocks {
			t.Fatalf("at %d: changes %v of %v do not lead from %v to %v", a.AtNs, c, size, before.levels[size],
				r.levels[size])
		}
	}
}

// TestRandomReadings compares each usable reading of random allocators with their blocks. Some readings are refused, and
// some have a wrong total or lack a row.
func TestRandomReadings(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		recording := analyzetest.NewTestRecording(t)
		var allocators []*analyzetest.TestAllocator
		truth := make(map[blockreadings.Key]map[int64]*reading)
		want := make(map[blockreadings.Key]blockreadings.Counts)
		last := make(map[blockreadings.Key]*reading)
		isKnown := make(map[blockreadings.Key]bool)
		for i := range int32(3) {
			a := analyzetest.NewTestAllocator(recording, 42+i/2, i%2)
			a.CompleteEvery = 8
			allocators = append(allocators, a)
		}
		for i := range int64(120) {
			a := allocators[r.IntN(len(allocators))]
			key := blockreadings.Key{Pid: a.Pid, Device: a.Device}
			counts, at := want[key], i*100*analyzetest.Ms
			if r.IntN(8) == 0 {
				a.Refuse(at, "busy")
				counts.Refused++
				want[key] = counts
				continue
			}
			changeBlocks(r, a)
			rows := a.Read(at)
			isKnown[key] = isKnown[key] || rows[0].Message == format.BlocksComplete
			switch damaged := r.IntN(10) == 0 && damage(r, recording, rows); {
			case !isKnown[key]:
				counts.Skipped++
			case damaged:
				isKnown[key] = false
				counts.Wrong++
			default:
				counts.Used++
				now := newReading(a.Blocks(), analyzetest.Epoch+at, last[key])
				if truth[key] == nil {
					truth[key] = make(map[int64]*reading)
				}
				truth[key][analyzetest.Epoch+at], last[key] = now, now
			}
			want[key] = counts
		}
		before := make(map[blockreadings.Key]*reading)
		list := readAll(t, recording, everything, func(a *blockreadings.Allocator) {
			now := truth[a.Key][a.AtNs]
			if now == nil {
				t.Fatalf("seed %d: the reading of %v at %d is not usable", seed, a.Key, a.AtNs)
			}
			now.compare(t, a, before[a.Key])
			before[a.Key] = now
		})
		for _, a := range list {
			if a.Counts != want[a.Key] {
				t.Errorf("seed %d: %v has %+v, want %+v", seed, a.Key, a.Counts, want[a.Key])
			}
			if before[a.Key] != nil { // a wrong reading at the end changes nothing
				before[a.Key].compare(t, a, nil)
			}
		}
	}
}

// changeBlocks allocates and frees some blocks.
func changeBlocks(r *rand.Rand, a *analyzetest.TestAllocator) {
	for range r.IntN(12) {
		a.AllocIn(int64(1+r.IntN(4))*1000, int64(r.IntN(2)), int64(r.IntN(2)))
	}
	for _, b := range a.Blocks() {
		switch r.IntN(6) {
		case 0:
			a.Free(b.Ptr)
		case 1:
			a.AwaitStream(b.Ptr)
		}
	}
}

// damage makes a reading wrong: a total is not the sum of its rows. It reports whether it found a row to damage.
func damage(r *rand.Rand, recording *analyzetest.TestRecording, rows []*format.Row) bool {
	switch r.IntN(4) {
	case 0:
		rows[0].Value++
	case 1:
		rows[0].AllocatedBytes += 512
	case 2:
		rows[0].ReservedBytes += 512
	default:
		if len(rows) < 2 {
			return false
		}
		lost := rows[len(rows)-1]
		if lost.Name != format.BlockAllocated {
			return false
		}
		recording.Rows = slices.DeleteFunc(recording.Rows, func(o *format.Row) bool { return o == lost })
	}
	return true
}

// TestRingBeginsInTheMiddle drops the oldest rows, as a ring does, in the middle of a reading.
func TestRingBeginsInTheMiddle(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	a.CompleteEvery = 10
	var dropped int
	for i := range int64(25) {
		a.Alloc(1 << 20)
		a.Alloc(1 << 20)
		rows := a.Read(i * analyzetest.Second)
		if i == 3 {
			dropped = len(recording.Rows) - len(rows) + 1 // without the first row of the reading
		}
	}
	recording.Rows = recording.Rows[dropped:]
	var times []int64
	list := readAll(t, recording, everything, func(a *blockreadings.Allocator) {
		times = append(times, (a.AtNs-analyzetest.Epoch)/analyzetest.Second)
		if want := 2 * (times[len(times)-1] + 1); a.AllBlocks().Blocks != want {
			t.Errorf("%d blocks, want %d", a.AllBlocks().Blocks, want)
		}
	})
	if len(times) != 15 || times[0] != 10 {
		t.Errorf("usable readings at %v", times)
	}
	if want := (blockreadings.Counts{Used: 15, Skipped: 6}); list[0].Counts != want {
		t.Errorf("%+v, want %+v", list[0].Counts, want)
	}
}

// TestLostBeginOfAReading lacks the first row of a reading in the middle: its rows must not belong to the one before.
func TestLostBeginOfAReading(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	a.CompleteEvery = 4
	for i := range int64(10) {
		a.Alloc(1 << 20)
		if rows := a.Read(i * analyzetest.Second); i == 2 {
			recording.Rows = slices.DeleteFunc(recording.Rows, func(o *format.Row) bool { return o == rows[0] })
		}
	}
	list := readAll(t, recording, everything, func(*blockreadings.Allocator) {})
	if want := (blockreadings.Counts{Used: 8, Skipped: 1}); list[0].Counts != want {
		t.Errorf("%+v, want %+v", list[0].Counts, want)
	}
}

// TestWindowOfReadings reads a part of the time: earlier readings are applied, and not counted.
func TestWindowOfReadings(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	for i := range int64(30) {
		a.Alloc(1 << 20)
		if i%10 == 9 {
			a.Refuse(i*analyzetest.Second, "busy")
			continue
		}
		a.Read(i * analyzetest.Second)
	}
	selected := everything
	selected.Window = query.Window{
		FromNs: analyzetest.Epoch + 5*analyzetest.Second, ToNs: analyzetest.Epoch + 20*analyzetest.Second,
	}
	var blocks []int64
	list := readAll(t, recording, selected, func(a *blockreadings.Allocator) { blocks = append(blocks, a.Blocks) })
	if want := (blockreadings.Counts{Used: 14, Refused: 2}); list[0].Counts != want {
		t.Errorf("%+v, want %+v", list[0].Counts, want)
	}
	if blocks[0] != 6 || blocks[len(blocks)-1] != 21 || list[0].Readings != 14 {
		t.Errorf("blocks %v, %d readings", blocks, list[0].Readings)
	}
}

// TestTeardown leaves out the last readings of a process that ended, in which its blocks went.
func TestTeardown(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		name           string
		exits, ends    bool
		used, teardown int64
	}{
		{"exit", true, true, 20, 3},
		{"running", false, true, 23, 0},
		{"new block", true, false, 25, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			recording := analyzetest.NewTestRecording(t)
			a := analyzetest.NewTestAllocator(recording, 42, 0)
			at := int64(0)
			for range 20 {
				a.Alloc(1 << 20)
				a.Read(at)
				at += 100 * analyzetest.Ms
			}
			for _, b := range a.Blocks()[:3] {
				a.Free(b.Ptr)
				a.Read(at)
				at += 100 * analyzetest.Ms
			}
			if !c.ends {
				a.Alloc(1 << 20)
				a.Read(at)
				a.Read(at + analyzetest.Ms)
			}
			if c.exits {
				recording.AddExit(42, at+analyzetest.Second)
			}
			list := readAll(t, recording, everything, func(*blockreadings.Allocator) {})
			if want := (blockreadings.Counts{Used: c.used, Teardown: c.teardown}); list[0].Counts != want {
				t.Errorf("%+v, want %+v", list[0].Counts, want)
			}
			if n := int64(list[0].Readings); n != c.used {
				t.Errorf("a span of %d readings, want %d", n, c.used)
			}
		})
	}
}
