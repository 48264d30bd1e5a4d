package analyze

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pprofpkg "github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// torchTraining is 60 s of a training loop on PyTorch's allocator: weights, activations
// that come and go, a cache that fills in the first seconds, and, if asked for, a list
// that keeps 3 MB of every step of 100 ms. The driver's calls are recorded, too, one
// of which is not the allocator's.
func torchTraining(t testing.TB, conf torchConf, leak int64) (*tape, *torchWorld) {
	tp := newTape(t)
	tp.add(format.Row{Kind: format.KindProcess, Name: "python3", Pid: 42, StartNs: epoch, Device: -1, Message: `{"exe":"/usr/bin/python3"}`})
	tp.add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: epoch})
	tp.add(format.Row{Kind: format.KindNote, Name: format.NoteAllocator, Pid: 42, Message: `{"allocator":"torch","conf":"` + conf.String() + `"` + conf.source() + `}`})
	for i, f := range []string{"load", "forward", "cache", "keep"} {
		tp.stack(int32(i+1), f, "main", "_start")
	}
	w := newTorchWorld(tp, rand.New(rand.NewPCG(1, 1)), 42, 0, conf)
	w.driver, w.capacity = true, 4000*mib
	get := func(bytes int64, stack int32, site string) *torchBlock {
		b := w.alloc(bytes, torchSegment{stream: 7})
		at(b.row, stack, site)
		w.peak = max(w.peak, w.requested)
		return b
	}
	for range 20 {
		get(50*mib, 1, "load (train.py:10)")
	}
	w.now += 3 * us
	own := at(tp.alloc(w.now, us, 0x6f0000000000, 64*mib), 1, "load (train.py:12)")
	own.Stream = 7
	for step := range int64(590) {
		w.now = second + step*100*ms
		a := []*torchBlock{get(40*mib+step%7*mib, 2, "forward (model.py:20)"), get(300_000, 2, "forward (model.py:20)")}
		if step < 100 {
			get(2*mib, 3, "cache (cache.py:5)")
		}
		if leak > 0 {
			get(leak, 4, "keep (train.py:42)")
		}
		w.now += 50 * ms
		for _, b := range a {
			w.free(b)
		}
		if step == 300 {
			w.emptyCache()
		}
	}
	return tp, w
}

// cell returns a value of a report's first table.
func cell(t testing.TB, r *report.Report, row int, key string) any {
	t.Helper()
	i := slices.IndexFunc(r.Tables[0].Columns, func(c report.Column) bool { return c.Key == key })
	if i < 0 || row >= len(r.Tables[0].Rows) {
		t.Fatalf("no %s of row %d", key, row)
	}
	return r.Tables[0].Rows[row].Cells[i]
}

func TestLeaksOfTensors(t *testing.T) {
	const leak = 3_000_000
	for name, conf := range map[string]torchConf{"segments": {}, "expandable segments": {expandable: true}} {
		t.Run(name, func(t *testing.T) {
			tp, w := torchTraining(t, conf, leak)
			tl := tp.timeline()
			r, err := leaks.Run(tl, query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]any{
				"verdict": "growing", "site": "keep (train.py:42)", "memory_kind": format.MemoryTorch, "live_bytes": int64(590 * leak), "confidence": "high",
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
			wantLive := sum.Requested + 64*mib // of the program's own call
			if got := r.Totals[0].Value; got != wantLive {
				t.Errorf("%d bytes live, want %d", got, wantLive)
			}
			if got, _, _ := r.Number("peak_bytes"); got != float64(w.peak+64*mib) {
				t.Errorf("peak of %.0f bytes, want %d", got, w.peak+64*mib)
			}
			want := "reserved " + units.Bytes(sum.Reserved) + ", of which " + units.Bytes(sum.Allocated) + " allocated"
			if got := r.Facts[0].Value; got != want {
				t.Errorf("allocator: %q, want %q", got, want)
			}
			for i := range r.Tables[0].Rows {
				if site := cell(t, r, i, "site"); site == "segment" {
					t.Error("memory of segments is counted twice")
				}
			}
			if v, _, _ := r.Number("growing"); v != 1 {
				t.Errorf("%v rows grow", v)
			}
		})
	}
}

// TestSegmentsFromBeforeTheAllocatorsEvents: they are known by their stacks, or because
// they are as many bytes as the allocator had already.
func TestSegmentsFromBeforeTheAllocatorsEvents(t *testing.T) {
	for _, conf := range []torchConf{{}, {expandable: true}} {
		tp, _ := torchTraining(t, conf, 3_000_000)
		r := tp.add(format.Row{Kind: format.KindStack, StackID: 5, StackStatus: format.StackComplete, Device: -1})
		for _, module := range []string{"/lib/libcudart.so.13", "/venv/torch/lib/libc10_cuda.so", "/venv/torch/lib/libtorch_cuda.so"} {
			r.Frames = append(r.Frames, format.Frame{Func: "f", Module: module, Type: "native"})
		}
		at(tp.alloc(0, 5, 0x6e0000000000, 2*mib), 5, "at::empty")
		tp.alloc(20, 5, 0x6e0000400000, 20*mib)
		for _, r := range tp.rows {
			if r.Kind == format.KindAllocator {
				r.ReservedBytes += 22 * mib
			}
		}
		got, err := leaks.Run(tp.timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Tables[0].Rows {
			if site := cell(t, got, i, "site"); site == "at::empty" || site == timeline.NoStack || site == "segment" {
				t.Errorf("%v: segments count as the program's memory", site)
			}
		}
	}
}

func TestAGrowingCacheIsNoLeak(t *testing.T) {
	for _, conf := range []torchConf{{}, {expandable: true}} {
		tp, _ := torchTraining(t, conf, 0)
		r, err := leaks.Run(tp.timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v, _, _ := r.Number("growing"); v != 0 {
			t.Errorf("%s: %v rows grow: %v", conf, v, r.Tables[0].Rows[0].Cells)
		}
	}
}

func TestReportsOfTensorsLookAsBefore(t *testing.T) {
	tp, _ := torchTraining(t, torchConf{}, 3_000_000)
	tl := tp.timeline()
	for command, make := range map[string]func(query.Options) (*report.Report, error){"leaks": func(p0 query.Options) (*report.Report, error) { return leaks.Run(tl, p0) }, "summary": func(p0 query.Options) (*report.Report, error) { return summary.Run(tl, p0) }} {
		r, err := make(query.Options{Top: 20, MaxFrames: 12})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"table", "json"} {
			golden(t, "torch."+command+"."+f, rendered(t, r, render.Options{Format: f, Width: 120}))
		}
	}
}

func TestFiltersOfTensors(t *testing.T) {
	tp := newTape(t)
	r := rand.New(rand.NewPCG(1, 1))
	for i, key := range []caching.Key{{Pid: 42, Device: 0}, {Pid: 42, Device: 1}, {Pid: 77, Device: 0}} {
		w := newTorchWorld(tp, r, key.Pid, key.Device, torchConf{})
		for k := range int64(2) {
			w.now = int64(i+1)*10*second + k*second
			b := w.alloc(mib<<k, torchSegment{stream: int64(7 + k)})
			at(b.row, 0, string(rune('a'+2*i+int(k)))).Tid = key.Pid
		}
	}
	tl := tp.timeline()
	for name, c := range map[string]struct {
		f    query.Filter
		want string
	}{
		"none":      {query.Filter{}, "abcdef"},
		"pid":       {query.Filter{Pids: []int32{77}}, "ef"},
		"tid":       {query.Filter{Tids: []int32{42}}, "abcd"},
		"device":    {query.Filter{Devices: []int32{1}}, "cd"},
		"stream":    {query.Filter{Streams: []int64{8}}, "bdf"},
		"min bytes": {query.Filter{MinBytes: 2 * mib}, "bdf"},
		"from":      {query.Filter{FromNs: epoch + 20500*ms}, "def"},
		"to":        {query.Filter{ToNs: epoch + 15*second}, "ab"},
	} {
		r, err := leaks.Run(tl, query.Options{Filter: c.f})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range r.Tables[0].Rows {
			got = append(got, cell(t, r, i, "site").(string))
		}
		slices.Sort(got)
		if strings.Join(got, "") != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
	for _, by := range group.Names() {
		r, err := leaks.Run(tl, query.Options{GroupBy: by})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Totals[0].Value; got != 9*mib {
			t.Errorf("by %s: %d bytes live", by, got)
		}
	}
}

func TestConfidenceInTensors(t *testing.T) {
	lost := func(n float64) func(*tape) {
		return func(tp *tape) {
			tp.add(format.Row{Kind: format.KindLost, Name: "allocator", StartNs: epoch, Value: n})
		}
	}
	skip := func(every int) func(*tape) {
		return func(tp *tape) {
			n := 0
			tp.rows = slices.DeleteFunc(tp.rows, func(r *format.Row) bool {
				if r.Kind != format.KindAllocator {
					return false
				}
				n++
				return n%every == every-1
			})
		}
	}
	for name, c := range map[string]struct {
		change func(*tape)
		want   string
	}{
		"whole":                {func(*tape) {}, "high"},
		"few lost":             {lost(1), "medium"},
		"many lost":            {lost(100), "low"},
		"lost in the metadata": {func(tp *tape) { tp.meta.Calls = map[string]format.CallCount{"allocator": {Lost: 100}} }, "low"},
		"one is missing":       {skip(3000), "medium"},
		"many are missing":     {skip(50), "low"},
	} {
		tp, _ := torchTraining(t, torchConf{}, 3_000_000)
		c.change(tp)
		r, err := leaks.Run(tp.timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := cell(t, r, 0, "confidence"); got != c.want {
			t.Errorf("%s: confidence %v, want %s: %s", name, got, c.want, r.Tables[0].Rows[0].Evidence)
		}
		if got := cell(t, r, 0, "site"); got != "keep (train.py:42)" {
			t.Errorf("%s: the first row is %v", name, got)
		}
		if disagrees := r.Quality.AllocatorDisagreed > 0; disagrees != (len(r.Notes) > 0) || name == "many are missing" && !disagrees {
			t.Errorf("%s: disagrees %v, notes %v", name, disagrees, r.Notes)
		}
	}
}

func TestAnAllocatorEndsWithItsProcess(t *testing.T) {
	tp, w := torchTraining(t, torchConf{}, 3_000_000)
	want := w.totals()
	tp.exit(42, 60*second)
	tl := tp.timeline()
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := cell(t, r, 0, "verdict"); got != "growing" {
		t.Errorf("verdict %v: %s", got, r.Tables[0].Rows[0].Evidence)
	}
	if got := r.Facts[1].Value; got != want.Reserved {
		t.Errorf("reserved %v at the end, want %d", got, want.Reserved)
	}
	list, err := state.ReadAllocators(tl, 0)
	if err != nil || len(list) != 1 || !list[0].Ended || list[0].Totals != want {
		t.Errorf("%v, %+v", err, list)
	}
	if len(list[0].Blocks) != int(want.Allocations) {
		t.Errorf("%d blocks, want %d", len(list[0].Blocks), want.Allocations)
	}
}

// TestAnInterpretersEndIsNoFree has a program whose interpreter frees everything when it
// ends.
func TestAnInterpretersEndIsNoFree(t *testing.T) {
	tp, w := torchTraining(t, torchConf{}, 3_000_000)
	want := w.totals()
	w.now += 100 * ms
	for len(w.held) > 0 {
		w.free(w.held[0])
	}
	tp.exit(42, w.now+500*ms)
	r, err := leaks.Run(tp.timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if cell(t, r, 0, "verdict") != "growing" || cell(t, r, 0, "live_bytes") != int64(590*3_000_000) {
		t.Error(r.Tables[0].Rows[0])
	}
	// What the last step gave back cannot be told from the end.
	if got := r.Facts[2].Value.(int64); got < want.Allocated || got > want.Allocated+50*mib {
		t.Errorf("%d bytes allocated at the end, want %d", got, want.Allocated)
	}
}

func TestTensorsInProfiles(t *testing.T) {
	tp, w := torchTraining(t, torchConf{expandable: true}, 3_000_000)
	p, _, none, err := pprofpkg.BuildHeap(tp.timeline(), query.Options{})
	if err != nil || none != nil {
		t.Fatal(err, none)
	}
	var live int64
	for _, s := range p.Sample {
		live += s.Value[3]
	}
	if want := w.totals().Requested + 64*mib; live != want {
		t.Errorf("%d bytes in use, want %d", live, want)
	}
}
