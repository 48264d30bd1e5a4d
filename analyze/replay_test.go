package analyze

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// outcome is what a replay leaves behind.
type outcome struct {
	Live      map[string]int64 // "pid kind ptr" → bytes
	Left      int64            // ended with the process or its last context
	Peak      int64            // of all memory
	Unmatched int64
	LostFrees int64
	Unknown   int64
	Failed    int64
	Nested    int64
	Allocs    int64
	Frees     int64
	Borrowed  int64
	Returned  int64
}

func replayed(t *testing.T, tl *timeline.Timeline) outcome {
	t.Helper()
	o := outcome{Live: make(map[string]int64)}
	var live int64
	last := int64(math.MinInt64)
	l, err := tl.Replay(func(l *ledger.Ledger, c *ledger.Change) {
		if c.AtNs < last {
			t.Fatalf("change at %d after one at %d", c.AtNs, last)
		}
		last = c.AtNs
		switch c.Kind {
		case ledger.Allocated:
			live += c.Block.Bytes
		case ledger.Freed, ledger.FreeLost, ledger.FreedWithCtx, ledger.FreedByExit:
			live -= c.Block.Bytes
		}
		if c.Kind == ledger.FreedByExit {
			o.Left++
		}
		if live < 0 {
			t.Fatal("negative live bytes")
		}
		o.Peak = max(o.Peak, live)
	})
	if err != nil {
		t.Fatal(err)
	}
	for pid, i := range tl.Origins.Pids {
		if int(i) < len(l.Processes) {
			l.Processes[i].Each(func(ptr int64, b ledger.Block) {
				o.Live[liveKey(pid, tl.Origins.Memory(b.Origin), ptr)] = b.Bytes
			})
		}
	}
	c := l.Counts
	o.Unmatched, o.LostFrees, o.Unknown, o.Failed = c.UnmatchedFrees, c.LostFrees, c.UnknownAllocs, c.Failed
	o.Nested, o.Allocs, o.Frees = c.Nested, c.Allocs, c.Frees
	borrowed := l.BorrowTotals()
	o.Borrowed, o.Returned = borrowed.Opened, borrowed.Returned
	return o
}

func TestReplay(t *testing.T) {
	const p, q = 0x7f0000000000, 0x7f0000100000
	for name, c := range map[string]struct {
		tape func(*tape)
		want outcome
	}{
		"alloc and free": {
			func(tp *tape) { tp.alloc(1, 10, p, 100); tp.free(20, 5, p) },
			outcome{Peak: 100, Allocs: 1, Frees: 1},
		},
		"another thread gets the pointer while the free is still returning": {
			func(tp *tape) {
				tp.alloc(1, 10, p, 100)
				tp.alloc(25, 10, p, 300).Tid = 43 // ends at 35
				tp.free(20, 50, p)                // 20 to 70
			},
			outcome{Live: map[string]int64{"42 device 7f0000000000": 300}, Peak: 300, Allocs: 2, Frees: 1},
		},
		"a free of the same moment comes before the alloc": {
			func(tp *tape) { tp.alloc(1, 1, p, 100); tp.alloc(10, 10, p, 300).Tid = 43; tp.free(20, 5, p) },
			outcome{Live: map[string]int64{"42 device 7f0000000000": 300}, Peak: 300, Allocs: 2, Frees: 1},
		},
		"failed, open and abandoned calls change nothing": {
			func(tp *tape) {
				tp.alloc(1, 1, p, 100).Result = 2
				tp.alloc(2, 1, p, 100).Flags = format.FlagOpen
				tp.alloc(3, 1, p, 100).Flags = format.FlagAbandoned
				tp.alloc(4, 1, p, 100)
				tp.free(6, 1, p).Result = 1
				tp.free(7, 1, p).Flags = format.FlagOpen
			},
			outcome{Live: map[string]int64{"42 device 7f0000000000": 100}, Peak: 100, Failed: 1, Unknown: 2, Allocs: 1},
		},
		"null pointers": {
			func(tp *tape) {
				tp.alloc(1, 1, 0, 0)
				tp.free(3, 1, 0)
				tp.alloc(5, 1, 0, 64).Flags = format.FlagUnreadable
			},
			outcome{Unknown: 1},
		},
		"a free of an unknown pointer is memory from before": {
			func(tp *tape) { tp.free(1, 1, p); tp.alloc(5, 1, p, 100) },
			outcome{Live: map[string]int64{"42 device 7f0000000000": 100}, Peak: 100, Unmatched: 1, Allocs: 1},
		},
		"an alloc of a live pointer proves a lost free": {
			func(tp *tape) { tp.alloc(1, 1, p, 100); tp.alloc(50, 1, p, 60) },
			outcome{Live: map[string]int64{"42 device 7f0000000000": 60}, Peak: 100, LostFrees: 1, Allocs: 2},
		},
		"processes do not share pointers": {
			func(tp *tape) { tp.alloc(1, 1, p, 100); tp.alloc(5, 1, p, 60).Pid = 77; tp.free(9, 1, p) },
			outcome{Live: map[string]int64{"77 device 7f0000000000": 60}, Peak: 160, Allocs: 2, Frees: 1},
		},
		"the end of a process frees what it holds": {
			func(tp *tape) {
				tp.alloc(1, 1, p, 100)
				tp.alloc(5, 1, p, 60).Pid = 77
				tp.exit(42, 50)
				tp.alloc(60, 1, q, 10) // the number is used again
			},
			outcome{Live: map[string]int64{"77 device 7f0000000000": 60, "42 device 7f0000100000": 10}, Left: 1, Peak: 160, Allocs: 3},
		},
		"nested calls are the same memory": {
			func(tp *tape) {
				tp.alloc(2, 6, p, 100).ParentStartNs = epoch + 1
				tp.alloc(1, 10, p, 100).Name = "cudaMalloc"
				tp.free(20, 10, p).Name = "cudaFree"
				tp.free(22, 5, p).ParentStartNs = epoch + 20
			},
			outcome{Peak: 100, Allocs: 1, Frees: 1, Nested: 2},
		},
		"a nested free does not end what another thread got meanwhile": {
			func(tp *tape) {
				tp.alloc(1, 1, p, 100)
				tp.free(20, 20, p)
				tp.free(22, 15, p).ParentStartNs = epoch + 20
				tp.alloc(24, 4, p, 30).Tid = 43
			},
			outcome{Live: map[string]int64{"42 device 7f0000000000": 30}, Peak: 100, Allocs: 2, Frees: 1, Nested: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tp := newTape(t)
			c.tape(tp)
			if c.want.Live == nil {
				c.want.Live = map[string]int64{}
			}
			if got := replayed(t, tp.timeline()); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// randomProgram simulates threads of several processes on one allocator that hands
// pointers out again as soon as they are free inside the driver: during the call
// that frees them. It returns the rows in the order a recorder writes them.
func randomProgram(tp *tape, r *rand.Rand, calls int) {
	type pointer struct{ pid, ptr int64 }
	returned := make(map[pointer]int64) // live pointer → when its alloc has returned
	released := make(map[pointer]int64) // freed pointer → when the driver had it back
	threads := []origin.Thread{{Pid: 42, Tid: 42}, {Pid: 42, Tid: 43}, {Pid: 42, Tid: 44}, {Pid: 77, Tid: 77}}
	clocks := make(map[origin.Thread]int64)
	for _, th := range threads {
		clocks[th] = r.Int64N(1000)
	}
	for range calls {
		th := threads[0] // the thread that is behind the others goes on
		for _, o := range threads {
			if clocks[o] < clocks[th] {
				th = o
			}
		}
		start, dur := clocks[th]+1+r.Int64N(50), 2+r.Int64N(200)
		clocks[th] = start + dur
		var mine []pointer
		for p, ns := range returned {
			if p.pid == int64(th.Pid) && ns < start {
				mine = append(mine, p)
			}
		}
		slices.SortFunc(mine, func(a, b pointer) int { return int(a.ptr - b.ptr) })
		var row *format.Row
		switch k := r.IntN(20); {
		case k == 0:
			row = tp.alloc(start, dur, 0, 1<<40)
			row.Result = 2
		case k == 1:
			row = tp.free(start, dur, 0x1000+r.Int64N(1<<20)*16) // from before the recording
		case k < 11 || len(mine) == 0:
			p := pointer{int64(th.Pid), 0x7f0000000000}
			for ; ; p.ptr += 512 {
				if _, live := returned[p]; !live && released[p] < start+dur {
					break
				}
			}
			returned[p] = start + dur
			row = tp.alloc(start, dur, p.ptr, 1+r.Int64N(1<<20))
		default:
			p := mine[r.IntN(len(mine))]
			delete(returned, p)
			released[p] = start + 1 + r.Int64N(dur-1)
			row = tp.free(start, dur, p.ptr)
		}
		row.Pid, row.Tid, row.Device = th.Pid, th.Tid, r.Int32N(2)
	}
}

func TestReplayEqualsTheOracleOnRandomPrograms(t *testing.T) {
	for seed := range uint64(64) {
		r := rand.New(rand.NewPCG(seed, 1))
		tp := newTape(t)
		w := newWorld(tp, r, 1+int(seed%3), 1+int(seed/3%4))
		for range 600 {
			w.step()
		}
		for i := range seed % 3 {
			tp.add(format.Row{Kind: format.KindDevice, Device: int32(i)})
		}
		// What a driver does has one right answer; what is recorded of it has the
		// oracle's.
		whole := oracleOutcome(tp.rows)
		if truth := w.live(); fmt.Sprint(whole.Live) != fmt.Sprint(truth) || whole.LostFrees != 0 {
			t.Fatalf("seed %d: the oracle is wrong: %d lost frees, live\n%v\nin truth\n%v", seed, whole.LostFrees, whole.Live, truth)
		}
		if seed%4 == 1 { // and with calls lost
			tp.rows = slices.DeleteFunc(tp.rows, func(*format.Row) bool { return r.IntN(10) == 0 })
		}
		if seed%4 == 3 { // and with the recorder started late, or at times deaf for references
			from := epoch + r.Int64N(30000)
			tp.rows = slices.DeleteFunc(tp.rows, func(row *format.Row) bool {
				return row.StartNs < from && row.Kind != format.KindProcess || row.Name == "cuDevicePrimaryCtxRetain" && seed%8 == 3
			})
		}
		if seed%4 >= 2 { // and with contexts that are not known
			for _, row := range tp.rows {
				if row.Kind != format.KindAPI && row.Kind != format.KindDevice && r.IntN(2) == 0 {
					row.Device = -1
					if r.IntN(2) == 0 {
						row.Context = 0
					}
				}
			}
		}
		shuffle(tp, r)
		want := oracleOutcome(tp.rows)
		tl := tp.timeline()
		got := replayed(t, tl)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("seed %d:\ngot  %+v\nwant %+v", seed, got, want)
		}
		checkMemoryState(t, tl, tp.rows, &want)
	}
}

// shuffle puts rows in the order in which calls return, roughly, as they are written.
func shuffle(tp *tape, r *rand.Rand) {
	slices.SortStableFunc(tp.rows, func(a, b *format.Row) int {
		return int(a.StartNs + a.DurNs - b.StartNs - b.DurNs)
	})
	for range min(50, len(tp.rows)-1) {
		i := r.IntN(len(tp.rows) - 1)
		tp.rows[i], tp.rows[i+1] = tp.rows[i+1], tp.rows[i]
	}
}

// checkMemoryState compares the exported state with the oracle, at the end and on the
// way there.
func checkMemoryState(t *testing.T, tl *timeline.Timeline, rows []*format.Row, want *outcome) {
	t.Helper()
	for _, until := range []int64{0, epoch + 5000, epoch + 20000} {
		s, err := state.ReadMemory(tl, until)
		if err != nil {
			t.Fatal(err)
		}
		live := make(map[string]int64)
		sums := make(map[state.TotalKey]state.MemoryTotal)
		for _, a := range s.Live {
			live[liveKey(a.Pid, a.Kind, a.Ptr)] = a.Bytes
			for _, key := range []state.TotalKey{{Pid: a.Pid, Kind: a.Kind}, {Pid: 0, Kind: a.Kind}} {
				sum := sums[key]
				sum.LiveBytes += a.Bytes
				sum.LiveBlocks++
				sums[key] = sum
			}
		}
		if until == 0 && (fmt.Sprint(live) != fmt.Sprint(want.Live) || int64(len(s.Left)) != want.Left || s.UnmatchedFrees != want.Unmatched || s.LostFrees != want.LostFrees ||
			s.BorrowedOpened != want.Borrowed || s.BorrowedReturned != want.Returned) {
			t.Errorf("got %+v\nwant %+v", s, want)
		}
		var device state.MemoryTotal
		for _, total := range s.Totals {
			if total.Kind == state.MemoryAll {
				continue
			}
			sum := sums[state.TotalKey{Pid: total.Pid, Kind: total.Kind}]
			if total.LiveBytes != sum.LiveBytes || total.LiveBlocks != sum.LiveBlocks || total.PeakBytes < total.LiveBytes ||
				total.Allocs-total.Frees != total.LiveBlocks || total.AllocBytes-total.FreedBytes != total.LiveBytes {
				t.Errorf("until %d: total %+v, the allocations sum up to %+v", until, total, sum)
			}
			if total.Pid == 0 && !ledger.IsHost(total.Kind) {
				device.LiveBytes += total.LiveBytes
				device.Allocs += total.Allocs
			}
		}
		if all := s.Total(0, state.MemoryAll); all.LiveBytes != device.LiveBytes || all.Allocs != device.Allocs {
			t.Errorf("until %d: on devices %+v, the kinds sum up to %+v", until, all, device)
		}
	}
}

func TestInOrderIsASort(t *testing.T) {
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
		err := timeline.InOrder(spans, timeline.Stream[int64]{
			Load: func(s timeline.Span) ([]int64, error) {
				rows := slices.Clone(groups[s.Index])
				timeline.SortNearly(rows, less)
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

func TestCallsOfUnknownDeviceBelongToTheOnlyOne(t *testing.T) {
	for devices, want := range map[int]int32{0: -1, 1: 3, 2: -1} {
		tp := newTape(t)
		for i := range devices {
			tp.add(format.Row{Kind: format.KindDevice, Device: int32(3 + i)})
		}
		tp.alloc(1, 1, 0x1000, 64).Device = -1
		tl := tp.timeline()
		replayed(t, tl)
		if got := tl.Origins.List[0].Device; got != want {
			t.Errorf("of %d devices: %d, want %d", devices, got, want)
		}
	}
}
