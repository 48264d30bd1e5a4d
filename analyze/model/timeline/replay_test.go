package timeline_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestReplay(t *testing.T) {
	testclass.Unit(t)
	const p, q = 0x7f0000000000, 0x7f0000100000
	for name, c := range map[string]replayCase{
		"alloc and free": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 10, p, 100)
				recording.AddFree(20, 5, p)
			},
			analyzetest.ReplayResult{Peak: 100, Allocs: 1, Frees: 1},
		},
		"another thread gets the pointer while the free is still returning": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 10, p, 100)
				recording.AddAlloc(25, 10, p, 300).Tid = 43 // the allocation returns at 35
				recording.AddFree(20, 50, p)                // the free lasts from 20 to 70
			},
			analyzetest.ReplayResult{Live: map[string]int64{"42 device 7f0000000000": 300}, Peak: 300, Allocs: 2, Frees: 1},
		},
		"a free of the same moment comes before the alloc": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 1, p, 100)
				recording.AddAlloc(10, 10, p, 300).Tid = 43
				recording.AddFree(20, 5, p)
			},
			analyzetest.ReplayResult{Live: map[string]int64{"42 device 7f0000000000": 300}, Peak: 300, Allocs: 2, Frees: 1},
		},
		"failed, open and abandoned calls change nothing": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 1, p, 100).Result = 2
				recording.AddAlloc(2, 1, p, 100).Flags = format.FlagOpen
				recording.AddAlloc(3, 1, p, 100).Flags = format.FlagAbandoned
				recording.AddAlloc(4, 1, p, 100)
				recording.AddFree(6, 1, p).Result = 1
				recording.AddFree(7, 1, p).Flags = format.FlagOpen
			},
			analyzetest.ReplayResult{Live: map[string]int64{"42 device 7f0000000000": 100}, Peak: 100, Failed: 1, Unknown: 2, Allocs: 1},
		},
		"null pointers": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 1, 0, 0)
				recording.AddFree(3, 1, 0)
				recording.AddAlloc(5, 1, 0, 64).Flags = format.FlagUnreadable
			},
			analyzetest.ReplayResult{Unknown: 1},
		},
		"a free of an unknown pointer is memory from before": {
			func(recording *analyzetest.TestRecording) {
				recording.AddFree(1, 1, p)
				recording.AddAlloc(5, 1, p, 100)
			},
			analyzetest.ReplayResult{Live: map[string]int64{"42 device 7f0000000000": 100}, Peak: 100, Unmatched: 1, Allocs: 1},
		},
		"an alloc of a live pointer proves a lost free": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 1, p, 100)
				recording.AddAlloc(50, 1, p, 60)
			},
			analyzetest.ReplayResult{Live: map[string]int64{"42 device 7f0000000000": 60}, Peak: 100, LostFrees: 1, Allocs: 2},
		},
		"processes do not share pointers": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 1, p, 100)
				recording.AddAlloc(5, 1, p, 60).Pid = 77
				recording.AddFree(9, 1, p)
			},
			analyzetest.ReplayResult{Live: map[string]int64{"77 device 7f0000000000": 60}, Peak: 160, Allocs: 2, Frees: 1},
		},
		"the end of a process frees what it holds": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 1, p, 100)
				recording.AddAlloc(5, 1, p, 60).Pid = 77
				recording.AddExit(42, 50)
				recording.AddAlloc(60, 1, q, 10) // the kernel gives pid 42 to another process
			},
			analyzetest.ReplayResult{Live: map[string]int64{"77 device 7f0000000000": 60, "42 device 7f0000100000": 10}, Left: 1, Peak: 160, Allocs: 3},
		},
		"nested calls are the same memory": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(2, 6, p, 100).ParentStartNs = analyzetest.Epoch + 1
				recording.AddAlloc(1, 10, p, 100).Name = "cudaMalloc"
				recording.AddFree(20, 10, p).Name = "cudaFree"
				recording.AddFree(22, 5, p).ParentStartNs = analyzetest.Epoch + 20
			},
			analyzetest.ReplayResult{Peak: 100, Allocs: 1, Frees: 1, Nested: 2},
		},
		"a nested free does not end what another thread got meanwhile": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAlloc(1, 1, p, 100)
				recording.AddFree(20, 20, p)
				recording.AddFree(22, 15, p).ParentStartNs = analyzetest.Epoch + 20
				recording.AddAlloc(24, 4, p, 30).Tid = 43
			},
			analyzetest.ReplayResult{Live: map[string]int64{"42 device 7f0000000000": 30}, Peak: 100, Allocs: 2, Frees: 1, Nested: 1},
		},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func TestReplayEqualsTheOracleOnRandomPrograms(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(64) {
		r := rand.New(rand.NewPCG(seed, 1))
		recording := analyzetest.NewTestRecording(t)
		w := newWorld(recording, r, 1+int(seed%3), 1+int(seed/3%4))
		for range 600 {
			w.step()
		}
		for i := range seed % 3 {
			recording.AddRow(format.Row{Kind: format.KindDevice, Device: int32(i)})
		}
		// The outcome of a simulated driver is unique. The outcome of an incomplete recording is
		// defined by the oracle.
		whole := oracleOutcome(recording.Rows)
		if truth := w.live(); fmt.Sprint(whole.Live) != fmt.Sprint(truth) || whole.LostFrees != 0 {
			t.Fatalf("seed %d: the oracle differs from the driver: %d lost frees, live\n%v\nin "+
				"truth\n%v", seed, whole.LostFrees, whole.Live, truth)
		}
		if seed%4 == 1 { // replay the rows with lost calls
			recording.Rows = slices.DeleteFunc(recording.Rows, func(*format.Row) bool { return r.IntN(10) == 0 })
		}
		if seed%4 == 3 { // also with a late start, or with lost retains and releases
			from := analyzetest.Epoch + r.Int64N(30000)
			recording.Rows = slices.DeleteFunc(recording.Rows, func(row *format.Row) bool {
				return row.StartNs < from && row.Kind != format.KindProcess ||
					row.Name == "cuDevicePrimaryCtxRetain" && seed%8 == 3
			})
		}
		if seed%4 >= 2 { // replay the rows with unknown contexts
			for _, row := range recording.Rows {
				if row.Kind != format.KindAPI && row.Kind != format.KindDevice && r.IntN(2) == 0 {
					row.Device = -1
					if r.IntN(2) == 0 {
						row.Context = 0
					}
				}
			}
		}
		shuffle(recording, r)
		want := oracleOutcome(recording.Rows)
		tl := recording.Timeline()
		got := analyzetest.CheckReplay(t, tl)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seed %d:\ngot  %+v\nwant %+v", seed, got, want)
		}
		checkMemoryState(t, tl, recording.Rows, &want)
	}
}

// shuffle puts the rows roughly in the order in which calls return, as a recorder writes them.
func shuffle(recording *analyzetest.TestRecording, r *rand.Rand) {
	slices.SortStableFunc(recording.Rows, func(a, b *format.Row) int {
		return int(a.StartNs + a.DurNs - b.StartNs - b.DurNs)
	})
	for range min(50, len(recording.Rows)-1) {
		i := r.IntN(len(recording.Rows) - 1)
		recording.Rows[i], recording.Rows[i+1] = recording.Rows[i+1], recording.Rows[i]
	}
}

// checkMemoryState compares state.ReadMemory with the oracle, at the end and at earlier times.
func checkMemoryState(t *testing.T, tl *timeline.Timeline, rows []*format.Row, want *analyzetest.ReplayResult) {
	t.Helper()
	for _, until := range []int64{0, analyzetest.Epoch + 5000, analyzetest.Epoch + 20000} {
		s, err := state.ReadMemory(tl, until)
		if err != nil {
			t.Fatal(err)
		}
		live := make(map[string]int64)
		sums := make(map[state.MemoryTotalKey]state.MemoryTotal)
		for _, a := range s.Live {
			live[analyzetest.LiveBlockKey(a.Pid, a.Kind, a.Ptr)] = a.Bytes
			for _, key := range []state.MemoryTotalKey{{Pid: a.Pid, Kind: a.Kind}, {Pid: 0, Kind: a.Kind}} {
				sum := sums[key]
				sum.LiveBytes += a.Bytes
				sum.LiveBlocks++
				sums[key] = sum
			}
		}
		if until == 0 &&
			(fmt.Sprint(live) != fmt.Sprint(want.Live) || int64(len(s.Left)) != want.Left || s.UnmatchedFrees != want.Unmatched || s.LostFrees != want.LostFrees ||
				s.BorrowedOpened != want.Borrowed || s.BorrowedReturned != want.Returned) {
			t.Errorf("got %+v\nwant %+v", s, want)
		}
		var device state.MemoryTotal
		for _, total := range s.Totals {
			if total.Kind == state.AllDeviceMemory {
				continue
			}
			sum := sums[state.MemoryTotalKey{Pid: total.Pid, Kind: total.Kind}]
			if total.LiveBytes != sum.LiveBytes || total.LiveBlocks != sum.LiveBlocks ||
				total.PeakBytes < total.LiveBytes ||
				total.Allocs-total.Frees != total.LiveBlocks ||
				total.AllocBytes-total.FreedBytes != total.LiveBytes {
				t.Errorf("until %d: total %+v, but the sum of all allocations is %+v", until, total, sum)
			}
			if total.Pid == 0 && !livemem.IsHostKind(total.Kind) {
				device.LiveBytes += total.LiveBytes
				device.Allocs += total.Allocs
			}
		}
		if all := s.TotalOf(
			0,
			state.AllDeviceMemory,
		); all.LiveBytes != device.LiveBytes ||
			all.Allocs != device.Allocs {
			t.Errorf("until %d: device total %+v, but the sum of all kinds is %+v", until, all, device)
		}
	}
}

func TestInOrderSorts(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(7, 7))
	for round := range 50 {
		var spans []timeline.Span
		groups := make(map[int][]int64)
		var want []int64
		for g := range 1 + r.IntN(8) {
			base := r.Int64N(1000)
			s := timeline.Span{Index: g, FirstNs: base}
			for range r.IntN(100) {
				v := base + r.Int64N(int64(1+round*20))
				groups[g] = append(groups[g], v)
				want = append(want, v)
			}
			spans = append(spans, s)
		}
		less := func(a, b *int64) bool { return *a < *b }
		var got []int64
		released := 0
		err := timeline.EachRowInOrder(spans, timeline.RowStream[int64]{
			Load: func(s timeline.Span) ([]int64, error) {
				rows := slices.Clone(groups[s.Index])
				timeline.SortNearlySorted(rows, less)
				return rows, nil
			},
			Release: func(timeline.Span, []int64) { released++ },
			At:      func(v *int64) int64 { return *v },
			Less:    less,
		}, func(v *int64) error { got = append(got, *v); return nil })
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: not in order: %d rows, want %d", round, len(got), len(want))
		}
		if released != len(groups) {
			t.Errorf("round %d: %d of %d groups released", round, released, len(groups))
		}
	}
}

// numberedRow is a row for OrderedRows. Rows of equal time are in the order of their numbers.
type numberedRow struct{ atNs, number int64 }

func TestOrderedRowsGoOnAfterMoreRowsAndAHigherLimit(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(8, 8))
	for round := range 50 {
		groups := make([][]numberedRow, 20)
		spans := make([]timeline.Span, len(groups))
		var want []numberedRow
		for i := range groups {
			base := int64(i) * int64(round)
			spans[i] = timeline.Span{Index: i, FirstNs: base}
			for range r.IntN(20) {
				row := numberedRow{base + r.Int64N(100), int64(len(want))}
				groups[i], want = append(groups[i], row), append(want, row)
			}
			slices.SortStableFunc(groups[i], func(a, b numberedRow) int { return int(a.atNs - b.atNs) })
		}
		slices.SortStableFunc(want, func(a, b numberedRow) int { return int(a.atNs - b.atNs) })
		rows := timeline.NewOrderedRows(nil, timeline.RowStream[numberedRow]{
			Load:      func(s timeline.Span) ([]numberedRow, error) { return groups[s.Index], nil },
			LoadAhead: round%2 == 0,
			At:        func(row *numberedRow) int64 { return row.atNs },
			Less:      func(a, b *numberedRow) bool { return a.atNs < b.atNs },
		})
		var got []numberedRow
		limitNs := int64(0)
		for n := range groups {
			limitNs = max(limitNs, spans[n].FirstNs-r.Int64N(10))
			if n == len(groups)-1 {
				limitNs = math.MaxInt64
			}
			rows.Grow(spans[:n+1], limitNs)
			if err := rows.EachRow(func(row *numberedRow) error { got = append(got, *row); return nil }); err != nil {
				t.Fatal(err)
			}
			before := func(row numberedRow) bool { return row.atNs < limitNs }
			if i := slices.IndexFunc(
				want,
				func(row numberedRow) bool { return !before(row) },
			); i >= 0 &&
				len(got) != i {
				t.Fatalf("round %d: %d rows before the limit %d, want %d", round, len(got), limitNs, i)
			}
		}
		rows.Close()
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: got %v\nwant %v", round, got, want)
		}
	}
}

func TestOrderedRowsTakeMoreRowsWithoutALimit(t *testing.T) {
	testclass.Unit(t)
	rows := timeline.NewOrderedRows([]timeline.Span{{FirstNs: 1}, {FirstNs: 7}}, timeline.RowStream[int64]{
		Load:      func(s timeline.Span) ([]int64, error) { return []int64{s.FirstNs, s.FirstNs + 1}, nil },
		LoadAhead: true,
		At:        func(v *int64) int64 { return *v },
		Less:      func(a, b *int64) bool { return *a < *b },
	})
	defer rows.Close()
	got, err := rows.NextRows()
	if err != nil {
		t.Fatal(err)
	}
	got = slices.Clone(got)
	rows.Append(timeline.Span{FirstNs: 4}) // the row group at 7 is being loaded
	if err := rows.EachRow(func(v *int64) error { got = append(got, *v); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []int64{1, 2, 4, 5, 7, 8}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCallsOfUnknownDeviceBelongToTheOnlyDevice(t *testing.T) {
	testclass.Unit(t)
	for devices, want := range map[int]int32{0: -1, 1: 3, 2: -1} {
		recording := analyzetest.NewTestRecording(t)
		for i := range devices {
			recording.AddRow(format.Row{Kind: format.KindDevice, Device: int32(3 + i)})
		}
		recording.AddAlloc(1, 1, 0x1000, 64).Device = -1
		tl := recording.Timeline()
		analyzetest.CheckReplay(t, tl)
		if got := tl.Origins.List[0].Device; got != want {
			t.Errorf("%d devices: %d, want %d", devices, got, want)
		}
	}
}
