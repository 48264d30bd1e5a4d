package blocks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/blocks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
)

// run returns the report of a recording.
func run(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) *report.Report {
	t.Helper()
	r, err := blocks.Run(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// factText returns a fact as text.
func factText(r *report.Report, key string) string {
	for _, f := range r.Facts {
		if f.Key == key && f.Value != nil {
			return fmt.Sprint(f.Value)
		}
	}
	return ""
}

// cellsOf returns the row of a size in the table sizes, by key.
func cellsOf(t *testing.T, r *report.Report, size string) report.Values {
	t.Helper()
	for i := range r.Tables {
		table := &r.Tables[i]
		for k := range table.Rows {
			if table.Name == "sizes" && table.Cell(&table.Rows[k], "size") == size {
				v := make(report.Values)
				for c, column := range table.Columns {
					v[column.Key] = table.Rows[k].Cells[c]
				}
				return v
			}
		}
	}
	t.Fatalf("no size %s", size)
	return nil
}

func TestBlocksBySize(t *testing.T) {
	testclass.Unit(t)
	r := run(t, analyzetest.BlocksRecording(t), query.Options{})
	analyzetest.CompareGoldenReports(t, r, "blocks", 200)
	narrow := run(t, analyzetest.BlocksRecording(t), query.Options{Top: 2})
	analyzetest.CompareGolden(t, "blocks.narrow.table", analyzetest.RenderReport(t, narrow, render.Options{Width: 100}))
}

// TestFiltersOfBlocks selects a device, a process and a part of the time.
func TestFiltersOfBlocks(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.BlocksRecording(t)
	r := run(t, recording, query.Options{Filter: query.Filter{Devices: []int32{1}}})
	analyzetest.CheckNumbers(t, r, map[string]float64{
		"readings": 58, "unused": 2, "refused": 0, "growing": 0, "live_count": 24, "live_bytes": float64(96 * mib),
	})
	r = run(t, recording, query.Options{Filter: query.Filter{Pids: []int32{7}}})
	if r.NoMatch == nil || !strings.Contains(factText(r, "result"), "no reading passes") {
		t.Errorf("no match: %v, result %q", r.NoMatch, factText(r, "result"))
	}
	w := query.Filter{
		FromNs: analyzetest.Epoch + 20*analyzetest.Second, ToNs: analyzetest.Epoch + 50*analyzetest.Second,
		Devices: []int32{0},
	}
	r = run(t, recording, query.Options{Filter: w})
	analyzetest.CheckNumbers(t, r, map[string]float64{"readings": 29, "refused": 1, "growing": 1})
	leak := cellsOf(t, r, "131072 B")
	// The first reading in the window is number 20, the last one is number 49.
	if leak["first_count"] != int64(210) || leak["live_count"] != int64(500) || leak["grown_bytes"] != 290*128*kib {
		t.Errorf("%v", leak)
	}
}

// TestTrendOfOneSize compares the numbers of a size that grows by a block of 256 KiB each second.
func TestTrendOfOneSize(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	for i := range int64(60) {
		a.Alloc(256 * kib)
		a.Read(i * analyzetest.Second)
	}
	r := run(t, recording, query.Options{})
	v := cellsOf(t, r, "262144 B")
	for key, want := range map[string]any{
		"verdict": "growing", "live_count": int64(60), "first_count": int64(1), "grown_bytes": 59 * 256 * kib,
		"peak_bytes": 60 * 256 * kib, "seen_count": int64(60), "gone_count": int64(0), "confidence": "high",
		"age_median_ns": 59 * analyzetest.Second / 2,
	} {
		if v[key] != want {
			t.Errorf("%s is %v, want %v", key, v[key], want)
		}
	}
	if got := v["growth_bytes_per_min"].(int64); math.Abs(float64(got)/float64(15*mib)-1) > 0.03 {
		t.Errorf("grows by %d bytes a minute, want %d", got, 15*mib)
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{
		"growing": 1, "growing_allocators": 1, "grown_bytes": float64(59 * 256 * kib), "explained_growth_pct": 100,
	})
	if text := factText(r, "next"); !strings.HasPrefix(text, "sudo gpurec record -p 42 --allocator=auto -d 60s") {
		t.Errorf("next: %q", text)
	}
}

// TestVerdictsOfSizes reads programs of a minute whose verdicts are known.
func TestVerdictsOfSizes(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		step func(r *rand.Rand, a *analyzetest.TestAllocator, i int64)
		want []string // verdicts that are right
	}{
		"leak in pieces": {func(_ *rand.Rand, a *analyzetest.TestAllocator, i int64) {
			if i%5 == 0 {
				a.Alloc(4 * mib)
			}
		}, []string{"growing"}},
		"leak from half of the time on": {func(_ *rand.Rand, a *analyzetest.TestAllocator, i int64) {
			if i == 0 || i > 30 {
				a.Alloc(mib)
			}
		}, []string{"growing"}},
		"cache that is full": {func(_ *rand.Rand, a *analyzetest.TestAllocator, i int64) {
			if i < 30 {
				a.Alloc(mib)
			}
		}, []string{"steady"}},
		"cache of random keys": {func(r *rand.Rand, a *analyzetest.TestAllocator, _ int64) {
			for range 8 {
				if n := len(a.Blocks()); r.IntN(100) >= n {
					a.Alloc(mib)
				}
			}
		}, []string{"steady"}},
		// Blocks that take the address of a freed one may look as if they stayed.
		"random lifetimes": {func(r *rand.Rand, a *analyzetest.TestAllocator, _ int64) {
			for _, b := range a.Blocks() {
				if r.IntN(3) == 0 {
					a.Free(b.Ptr)
				}
			}
			for range r.IntN(40) {
				a.Alloc(mib)
			}
		}, []string{"churn", "steady"}},
		"smaller than noise": {func(_ *rand.Rand, a *analyzetest.TestAllocator, _ int64) { a.Alloc(8 * kib) }, []string{"steady"}},
		"ends with nothing": {func(_ *rand.Rand, a *analyzetest.TestAllocator, i int64) {
			if i < 40 {
				a.Alloc(mib)
			} else if i == 50 {
				for _, b := range a.Blocks() {
					a.Free(b.Ptr)
				}
			}
		}, []string{"churn"}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				recording := analyzetest.NewTestRecording(t)
				a := analyzetest.NewTestAllocator(recording, 42, 0)
				random := rand.New(rand.NewPCG(seed, 3))
				for i := range int64(60) {
					c.step(random, a, i)
					a.Read(i * analyzetest.Second)
				}
				r := run(t, recording, query.Options{})
				got := analyzetest.ColumnTexts(t, r, "sizes", "verdict")
				if len(got) != 1 || !slices.Contains(c.want, got[0]) {
					t.Errorf("seed %d: verdicts %v, want %v", seed, got, c.want)
				}
			}
		})
	}
}

// TestBlocksOfManySizesGrow leaks blocks of different sizes: no size grows, but the allocator does.
func TestBlocksOfManySizesGrow(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	for i := range int64(60) {
		a.Alloc(mib + i*kib)
		a.Read(i * analyzetest.Second)
	}
	r := run(t, recording, query.Options{})
	analyzetest.CheckNumbers(t, r, map[string]float64{"growing": 0, "growing_allocators": 1, "explained_growth_pct": 0})
	if got := analyzetest.ColumnTexts(t, r, "allocators", "verdict"); got[0] != "growing" {
		t.Errorf("verdict of the allocator: %v", got)
	}
	if text := factText(r, "result"); !strings.Contains(text, "but no single size does") {
		t.Errorf("result: %q", text)
	}
	if factText(r, "next") == "" {
		t.Error("no next command")
	}
}

// TestPoolsAndStreams has blocks of one size in two pools and on two streams. Only those of one pool grow.
func TestPoolsAndStreams(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	for range 4 {
		a.AllocIn(mib, 0, 0)
		a.AllocIn(mib, 0, 0x7f00)
	}
	for i := range int64(60) {
		a.AllocIn(mib, 5, 0)
		a.Read(i * analyzetest.Second)
	}
	r := run(t, recording, query.Options{})
	for key, want := range map[string][]string{
		"verdict": {"growing", "steady", "steady"}, "live_count": {"60", "4", "4"},
		"pool": {"private 5", "default", "default"}, "stream": {"0", "0", "0x7f00"},
	} {
		if got := analyzetest.ColumnTexts(t, r, "sizes", key); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}

// TestTooFewReadings has no verdict, and says how many readings it needs.
func TestTooFewReadings(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	for i := range int64(15) {
		for range 4 {
			a.Alloc(mib)
		}
		a.Read(i * analyzetest.Second)
	}
	r := run(t, recording, query.Options{})
	analyzetest.CheckNumbers(t, r, map[string]float64{"growing": 0, "without_verdict": 1, "growing_allocators": 0})
	if v := cellsOf(t, r, "1048576 B"); v["verdict"] != nil || v["grown_bytes"] != 56*mib {
		t.Errorf("%v", v)
	}
	if text := factText(
		r,
		"result",
	); !strings.Contains(
		text,
		"no verdict for process 42, device 0: it needs 20 readings",
	) {
		t.Errorf("result: %q", text)
	}
}

// TestSurvivors counts the blocks of every reading: those whose address has another block do not survive.
func TestSurvivors(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	a.CompleteEvery = 2
	kept, replaced := a.Alloc(mib), a.Alloc(2*mib)
	freed := a.Alloc(3 * mib)
	a.Read(0)
	a.Free(freed)
	a.Read(analyzetest.Second)
	a.Alloc(3 * mib) // at the address of the freed block
	a.Free(replaced)
	a.Alloc(2 * mib) // as if it was never freed
	a.AwaitStream(kept)
	a.Read(2 * analyzetest.Second)
	r := run(t, recording, query.Options{})
	for key, want := range map[string]string{"survivors": "2", "surviving_bytes": fmt.Sprint(3 * mib)} {
		if got := analyzetest.ColumnTexts(t, r, "allocators", key); got[0] != want {
			t.Errorf("%s: %s, want %s", key, got[0], want)
		}
	}
	if v := cellsOf(t, r, "3145728 B"); v["age_median_ns"] != int64(0) || v["gone_count"] != int64(1) {
		t.Errorf("%v", v)
	}
}

// TestRefusedReadings has a process whose allocator was never found, and one with refused readings.
func TestRefusedReadings(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	analyzetest.NewTestAllocator(recording, 41, -1).Refuse(0, "no allocator is where it should be")
	r := run(t, recording, query.Options{})
	if text := factText(r, "result"); text != "no reading is usable: 1 refused, 0 unused" {
		t.Errorf("result: %q", text)
	}
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	a.Alloc(mib)
	for i := range int64(30) {
		if i%3 == 1 {
			a.Refuse(i*analyzetest.Second, "the allocator is busy")
			continue
		}
		a.Read(i * analyzetest.Second)
	}
	r = run(t, recording, query.Options{})
	analyzetest.CheckNumbers(t, r, map[string]float64{"readings": 20, "refused": 11})
	table := r.Tables[0]
	if text := table.Rows[1].Evidence; text != "10 readings refused: the allocator is busy" {
		t.Errorf("evidence %q", text)
	}
	if table.Cell(&table.Rows[0], "device") != nil || table.Cell(&table.Rows[0], "allocated_bytes") != nil {
		t.Errorf("%v", table.Rows[0].Cells)
	}
}

// TestNoReadings says how to record readings.
func TestNoReadings(t *testing.T) {
	testclass.Unit(t)
	r := run(t, analyzetest.TrainingRecording(t), query.Options{})
	if text := factText(
		r,
		"result",
	); !strings.HasSuffix(
		text,
		"sudo gpurec record -p PID --allocator=off --blocks-every 1s",
	) {
		t.Errorf("result: %q", text)
	}
	if r.NoMatch != nil {
		t.Error(r.NoMatch)
	}
}

// TestNextCommandOfAnEndedProcess does not name the process.
func TestNextCommandOfAnEndedProcess(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	for i := range int64(60) {
		a.Alloc(mib)
		a.Read(i * analyzetest.Second)
	}
	recording.AddExit(42, 60*analyzetest.Second)
	r := run(t, recording, query.Options{})
	if text := factText(r, "next"); !strings.HasPrefix(text, "sudo gpurec record -p PID ") {
		t.Errorf("next: %q", text)
	}
}

// TestMemoryIsBounded reads a million rows: blocks of ever new sizes come and go while others grow. What the report
// keeps depends on the blocks that live at a time.
func TestMemoryIsBounded(t *testing.T) {
	testclass.Unit(t)
	const readings, temporaries = 10_000, 50 // temporary blocks in each reading, which are gone in the next one
	recording := analyzetest.NewTestRecording(t)
	recording.Meta.EndNs = analyzetest.Epoch + readings*100*analyzetest.Ms
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	var temporary []int64
	size, stayed := int64(0), int64(0)
	tl := writeReadings(t, recording, readings, func(i int64) {
		a.FreeAll(temporary)
		temporary = temporary[:0]
		for range temporaries {
			size++
			temporary = append(temporary, a.Alloc(size))
		}
		switch {
		case i%100 == 0:
			a.Alloc(100 * mib)
		case i == readings/5+1:
			stayed = a.Alloc(7 * mib)
		case i == readings*4/5+1:
			a.Free(stayed)
		}
		a.Read(i * 100 * analyzetest.Ms)
	})
	if n := tl.Rec.NumRows(); n < 1_000_000 {
		t.Fatalf("only %d rows", n)
	}
	before := heapBytes()
	r, err := blocks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := heapBytes() - before
	if v := cellsOf(t, r, "104857600 B"); v["verdict"] != "growing" || v["live_count"] != int64(100) {
		t.Errorf("%v", v)
	}
	if v := cellsOf(t, r, "7340032 B"); v["peak_bytes"] != 7*mib || v["gone_count"] != int64(1) {
		t.Errorf("a block that stayed for a while: %v", v)
	}
	rows := 0
	for _, table := range r.Tables {
		rows = max(rows, len(table.Rows))
	}
	t.Logf("%d rows in the largest table, %d KiB", rows, kept>>10)
	if rows > 20_000 || kept > 64<<20 {
		t.Errorf("%d rows in the largest table, %d bytes kept", rows, kept)
	}
	if !slices.ContainsFunc(
		r.Notes,
		func(n string) bool { return strings.Contains(n, "left out whose blocks came and went") },
	) {
		t.Errorf("notes: %q", r.Notes)
	}
}

// writeReadings writes the rows that each of n calls of step adds to a recording, without keeping them.
func writeReadings(
	t *testing.T,
	recording *analyzetest.TestRecording,
	n int64,
	step func(i int64),
) *timeline.Timeline {
	t.Helper()
	w, err := format.Create(recording.Path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []format.Row
	for i := range n {
		step(i)
		for _, r := range recording.Rows {
			rows = append(rows, *r)
		}
		if err := w.Write(format.ClassBlock, rows); err != nil {
			t.Fatal(err)
		}
		rows, recording.Rows = rows[:0], recording.Rows[:0]
	}
	if err := w.Finish(recording.Meta); err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Open(analyzetest.OpenRecording(t, recording.Path))
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHostileReadings prints no control characters, and has no overflow that stops the program.
func TestHostileReadings(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.NewTestAllocator(recording, 42, 0)
	a.Refuse(0, "x\x1b[31m\u202e\n")
	for i := range int64(30) {
		a.Alloc(1 << 20)
		for _, row := range a.Read(i * analyzetest.Second) {
			if row.Name == format.BlockAllocated && i%2 == 0 {
				row.Bytes, row.Value = math.MaxInt64, math.NaN()
			}
		}
	}
	analyzetest.CheckSafeToPrint(t, run(t, recording, query.Options{}))
}
