package analyze

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
)

// torchTape runs allocators of several processes and devices and writes what they do
// to one recording, in an order that is only nearly that of time.
func torchTape(t testing.TB, seed uint64, steps int, change func(*torchWorld)) (*tape, []*torchWorld) {
	r := rand.New(rand.NewPCG(seed, seed))
	tp := newTape(t)
	var worlds []*torchWorld
	for _, key := range []caching.Key{{Pid: 42, Device: 0}, {Pid: 42, Device: 1}, {Pid: 77, Device: 0}} {
		conf := torchConf{expandable: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			conf.divisions = 4
		}
		if r.IntN(3) == 0 && !conf.expandable {
			conf.maxSplit = 30 * mib
		}
		w := newTorchWorld(tp, r, key.Pid, key.Device, conf)
		change(w)
		for i := 0; i < steps || w.last.Name == format.AllocatorAlloc; i++ {
			w.step()
		}
		worlds = append(worlds, w)
	}
	worlds[1].conf = worlds[0].conf
	slices.SortStableFunc(tp.rows, func(a, b *format.Row) int { return int(a.StartNs - b.StartNs) })
	for i := range tp.rows {
		k := i + r.IntN(min(6, len(tp.rows)-i))
		tp.rows[i], tp.rows[k] = tp.rows[k], tp.rows[i]
	}
	return tp, worlds
}

func TestAllocatorModelIsExact(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			told := seed%4 != 3 // else the configuration must be learnt
			same := torchConf{expandable: seed%2 == 0, divisions: int64(seed % 3 * 4)}
			tp, worlds := torchTape(t, seed, 500, func(w *torchWorld) {
				if w.pid == 42 {
					w.conf = same // it is the process's
				}
				w.silent = seed%8 == 6
				w.patient = !told || seed%4 == 1
			})
			if told {
				for _, w := range []*torchWorld{worlds[0], worlds[2]} {
					tp.add(format.Row{Kind: format.KindNote, Name: format.NoteAllocator, Pid: w.pid, Message: fmt.Sprintf(`{"conf":%q}`, w.conf)})
				}
			}
			tl := tp.timeline()
			for _, w := range worlds {
				compareTotals(t, tl, w)
				for i := range w.samples {
					if s := &w.samples[i]; s.blocks != nil {
						compareBlocks(t, tl, w, s)
					}
				}
			}
		})
	}
}

func stateOf(list []state.Allocator, w *torchWorld) state.Allocator {
	i := slices.IndexFunc(list, func(s state.Allocator) bool { return s.Pid == w.pid && s.Device == w.device })
	if i < 0 {
		return state.Allocator{}
	}
	return list[i]
}

func compareTotals(t *testing.T, tl *timeline.Timeline, w *torchWorld) {
	t.Helper()
	var times []int64
	for _, s := range w.samples {
		times = append(times, epoch+s.atNs)
	}
	moments, err := state.AllocatorsAt(tl, times)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.samples {
		s := &w.samples[i]
		if got := stateOf(moments[i], w); got.Totals != s.totals {
			t.Fatalf("pid %d device %d (%s), sample %d after %s:\ngot  %+v\nwant %+v", w.pid, w.device, w.conf, i, s.after, got.Totals, s.totals)
		}
	}
	end := stateOf(moments[len(moments)-1], w)
	if end.Disagreed != 0 || end.UnmatchedFrees != 0 || end.LostFrees != 0 || end.FromStart == w.silent || w.silent != (end.Compared == 0) {
		t.Errorf("pid %d device %d: %+v", w.pid, w.device, end)
	}
}

func compareBlocks(t *testing.T, tl *timeline.Timeline, w *torchWorld, s *torchSample) {
	t.Helper()
	list, err := state.ReadAllocators(tl, epoch+s.atNs)
	if err != nil {
		t.Fatal(err)
	}
	got := stateOf(list, w)
	blocks := make(map[int64]state.Block)
	for _, b := range got.Blocks {
		blocks[b.Ptr] = b
	}
	if !reflect.DeepEqual(blocks, s.blocks) {
		for _, ptr := range slices.Sorted(maps.Keys(s.blocks)) {
			if blocks[ptr] != s.blocks[ptr] {
				t.Errorf("%x: got %+v, want %+v", ptr, blocks[ptr], s.blocks[ptr])
			}
		}
		t.Fatalf("%d blocks, want %d", len(blocks), len(s.blocks))
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
	if reserved != s.totals.Reserved || segments != s.totals.Segments {
		t.Fatalf("ranges of %d bytes, %d segments; want %+v", reserved, segments, s.totals)
	}
}

// TestAllocatorModelOfARunningProgram cuts the beginning off: what the allocator counts
// itself is exact at once, differences of the rest are.
func TestAllocatorModelOfARunningProgram(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			tp, worlds := torchTape(t, 100+seed, 600, func(w *torchWorld) {
				w.conf = torchConf{expandable: seed%2 == 0}
				w.patient = true
			})
			for _, w := range worlds[:2] {
				tp.add(format.Row{Kind: format.KindNote, Name: format.NoteAllocator, Pid: w.pid, Message: fmt.Sprintf(`{"conf":%q}`, w.conf)})
			}
			cut := epoch + worlds[0].samples[150].atNs
			tp.rows = slices.DeleteFunc(tp.rows, func(r *format.Row) bool { return r.Kind == format.KindAllocator && r.StartNs < cut })
			tl := tp.timeline()
			for _, w := range worlds {
				w.samples = slices.DeleteFunc(w.samples, func(s torchSample) bool { return epoch+s.atNs <= cut })
				compareDifferences(t, tl, w)
			}
		})
	}
}

func compareDifferences(t *testing.T, tl *timeline.Timeline, w *torchWorld) {
	t.Helper()
	var times []int64
	for _, s := range w.samples {
		times = append(times, epoch+s.atNs)
	}
	moments, err := state.AllocatorsAt(tl, times)
	if err != nil {
		t.Fatal(err)
	}
	// Of blocks that were awaiting at the cut only the requested size is known, and which
	// gaps there were then nobody tells.
	since := func(now, then caching.Totals) caching.Totals {
		return caching.Totals{Allocated: now.Allocated, Requested: now.Requested - then.Requested, Reserved: now.Reserved, Active: 0, InactiveSplit: 0, Segments: now.Segments - then.Segments, Allocations: now.Allocations - then.Allocations}
	}
	first := stateOf(moments[5], w).Totals
	unsure := 0
	for i, s := range w.samples[5:] {
		got := stateOf(moments[i+5], w)
		if since(got.Totals, first) != since(s.totals, w.samples[5].totals) {
			// A block comes and next one of unknown size goes: of their sizes only the
			// difference is known, and the moment between them is a guess.
			if unsure++; s.after != format.AllocatorAlloc || unsure > len(w.samples)/50 {
				t.Fatalf("pid %d device %d (%s), sample %d after %s:\ngot  %+v\nwant %+v", w.pid, w.device, w.conf, i+5, s.after,
					since(got.Totals, first), since(s.totals, w.samples[5].totals))
			}
		}
		if n := got.Totals; min(n.Allocated, n.Requested, n.Reserved, n.Active, n.InactiveSplit, n.Segments, n.Allocations) < 0 {
			t.Fatalf("negative: %+v", n)
		}
	}
	end := stateOf(moments[len(moments)-1], w)
	if end.Disagreed != 0 || end.LostFrees != 0 || end.FromStart {
		t.Errorf("pid %d device %d: %+v", w.pid, w.device, end)
	}
}

// TestAllocatorModelTakesAnything feeds it events that no allocator sends: it does not
// panic, does not run for ever and forgets what has ended.
func TestAllocatorModelTakesAnything(t *testing.T) {
	names := slices.Sorted(maps.Keys(caching.OpsByName))
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		tp := newTape(t)
		unit := []int64{512, mib, 2 * mib}[r.IntN(3)]
		for i := range int64(3000) {
			row := tp.add(format.Row{Kind: format.KindAllocator, Name: names[r.IntN(len(names))], StartNs: epoch + i, Pid: 42, Device: r.Int32N(2),
				Ptr: r.Int64N(40) * unit, Bytes: r.Int64N(6) * unit, Stream: r.Int64N(2), SrcPtr: r.Int64N(2), AllocatedBytes: -1, ReservedBytes: -1})
			if r.IntN(2) == 0 {
				row.AllocatedBytes, row.ReservedBytes = r.Int64N(40)*unit, r.Int64N(40)*unit
			}
		}
		tl := tp.timeline()
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
	list := caching.ParseRules("garbage_collection_threshold:0.8, roundup_power2_divisions:[256:1,512:2,1024:4,>:8],max_split_size_mb:128")
	four := caching.ParseRules("roundup_power2_divisions:4")
	for _, c := range []struct {
		rules       caching.Rules
		bytes, want int64
	}{
		{caching.Rules{}, 1, 512}, {caching.Rules{}, 513, 1024}, {caching.Rules{}, mib + 1, mib + 512},
		{four, 1200, 1536}, {four, 4 * 512, 4 * 512}, {four, 2049, 2560}, {four, 5 * mib, 5 * mib}, {four, 5*mib + 1, 6 * mib},
		{list, 255*mib + 1, 255*mib + 512}, {list, 513 * mib, 768 * mib}, {list, 1025 * mib, 1280 * mib}, {list, 4097 * mib, 4608 * mib},
	} {
		if got := c.rules.Round(c.bytes); got != c.want {
			t.Errorf("%d bytes: %d, want %d (%+v)", c.bytes, got, c.want, c.rules)
		}
	}
	if list.MaxSplit != 128*mib || list.Expandable || !caching.ParseRules("expandable_segments:True").Expandable {
		t.Errorf("%+v", list)
	}
	for _, odd := range []string{"", ":", "a", "a:", ":b", "roundup_power2_divisions:[", "roundup_power2_divisions:[:,>:,>:x,0:2,99999999999:2", ",,,", "max_split_size_mb:-1"} {
		rules := caching.ParseRules(odd)
		if rules.Round(5000) < 5000 {
			t.Errorf("%q: %+v", odd, rules)
		}
	}
}
