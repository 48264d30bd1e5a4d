package format

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// sampledChannels simulates the progress rows of a training: channels of a process with random
// durations of operations, read at irregular times.
type sampledChannels struct {
	rng      *rand.Rand
	channels []sampledChannel
	nowNs    int64
	waitNs   int64   // shortest time between two reads
	jitterNs float64 // mean of the random time on top
}

// sampledChannel is a channel of a GPU that completes operations of random durations.
type sampledChannel struct {
	counter, endNs int64 // the last completed operation
	seen           int64 // counter of the last row
	operationNs    float64
}

const sampledOriginNs = 1_790_000_000_000_000_000

func newSampledChannels(seed uint64, waitNs int64, jitterNs float64, operationNs ...float64) *sampledChannels {
	s := &sampledChannels{
		rng: rand.New(rand.NewPCG(seed, 1)), nowNs: sampledOriginNs, waitNs: waitNs, jitterNs: jitterNs,
	}
	for _, ns := range operationNs {
		s.channels = append(s.channels, sampledChannel{endNs: s.nowNs, operationNs: ns})
	}
	return s
}

// appendReads appends the rows of reads until dst has at least n rows.
func (s *sampledChannels) appendReads(dst []ProgressRow, n int) []ProgressRow {
	for len(dst) < n {
		s.nowNs += s.waitNs + int64(s.rng.ExpFloat64()*s.jitterNs)
		if s.rng.IntN(2000) == 0 { // the reader was not scheduled
			s.nowNs += int64(s.rng.ExpFloat64() * 3e6)
		}
		for i := range s.channels {
			c := &s.channels[i]
			c.completeOperations(s.rng, s.nowNs)
			if c.counter == c.seen {
				continue
			}
			c.seen = c.counter
			drift := (c.endNs - sampledOriginNs) / 100_000 // 10 ppm
			dst = append(dst, ProgressRow{
				SeenNs: s.nowNs + int64(i)*310 + s.rng.Int64N(60), Pid: 4242, Channel: int32(i + 1),
				Counter: c.counter, GPUTimeNs: (c.endNs - 300_000 - drift) &^ 31, // steps of 32 ns
			})
		}
	}
	return dst
}

// completeOperations completes the operations that end until nowNs.
func (c *sampledChannel) completeOperations(rng *rand.Rand, nowNs int64) {
	for {
		end := c.endNs + 1200 + int64(rng.ExpFloat64()*c.operationNs)
		if rng.IntN(500) == 0 { // the queue was empty
			end += int64(rng.ExpFloat64() * 200_000)
		}
		if end > nowNs {
			return
		}
		c.counter, c.endNs = c.counter+1, end
	}
}

// TestProgressRowsAreSmall checks that a row of kind progress takes at most 6 bytes in a segment, with
// the footer, at all rates at which recorders read channels.
func TestProgressRowsAreSmall(t *testing.T) {
	testclass.Unit(t)
	training := []float64{32_000, 60_000, 400_000} // 30,000 operations a second and two slower channels
	for _, c := range []struct {
		name        string
		waitNs      int64
		jitterNs    float64
		operationNs []float64
	}{
		{"a poller that never waits", 1400, 100, training},
		{"a poller at 20 kHz", 50_000, 3000, training},
		{"launch probes, at most every 50 µs", 50_000, 20_000, training},
		{"launch probes with long pauses", 50_000, 100_000, training},
		{"a poller at 1 kHz", 1_000_000, 20_000, training},
		{"short operations", 50_000, 20_000, []float64{14_000}},
		{"eight channels", 50_000, 20_000, slices.Repeat([]float64{60_000}, 8)},
	} {
		path := filepath.Join(t.TempDir(), "r.parquet")
		w, err := Create(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		rows := newSampledChannels(1, c.waitNs, c.jitterNs, c.operationNs...).appendReads(nil, 100_000)
		if err := errors.Join(w.WriteProgress(rows), w.Rotate(Meta{}), w.Flush()); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(w.Dir(), "000001-progress.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		perRow := float64(info.Size()) / float64(len(rows))
		t.Logf("%s: %.2f bytes a row", c.name, perRow)
		if perRow > 6 {
			t.Errorf("%s: %.2f bytes a row, want at most 6", c.name, perRow)
		}
		if err := w.Abort(); err != nil {
			t.Fatal(err)
		}
	}
}

// randomProgress returns rows of random processes, channels and values, extreme ones included.
func randomProgress(rng *rand.Rand, n int) []ProgressRow {
	rows := make([]ProgressRow, n)
	channels := 1 + rng.IntN(40)
	value := func() int64 {
		switch rng.IntN(6) {
		case 0:
			return [...]int64{0, -1, math.MinInt64, math.MaxInt64}[rng.IntN(4)]
		case 1:
			return rng.Int64()
		}
		return sampledOriginNs + rng.Int64N(1e9)
	}
	for i := range rows {
		rows[i] = ProgressRow{
			SeenNs: value(), GPUTimeNs: value(), Counter: value(),
			Pid: int32(rng.IntN(3)), Channel: int32(rng.IntN(channels)),
		}
	}
	return rows
}

// progressOfChannels returns the rows by process and channel.
func progressOfChannels(rows []ProgressRow) map[channelKey][]ProgressRow {
	of := make(map[channelKey][]ProgressRow)
	for _, r := range rows {
		key := channelKey{r.Pid, r.Channel}
		of[key] = append(of[key], r)
	}
	return of
}

// progressAsRow returns the row that a reader gets for a row of kind progress.
func progressAsRow(r *ProgressRow) Row {
	return Row{
		Kind: KindProgress, Class: "progress", Device: -1, StartNs: r.SeenNs, GPUTimeNs: r.GPUTimeNs,
		Counter: r.Counter, Pid: r.Pid, Channel: r.Channel,
	}
}

// readProgress reads the rows of kind progress of a recording. It checks their order in each row
// group, and all columns of every fiftieth row.
func readProgress(t *testing.T, path string) (rows []ProgressRow) {
	t.Helper()
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	for _, g := range rec.Groups() {
		if g.Class() != ClassProgress {
			continue
		}
		first := len(rows)
		err := g.eachRow(func(r *Row) error {
			p := ProgressRow{r.StartNs, r.GPUTimeNs, r.Counter, r.Pid, r.Channel}
			want := progressAsRow(&p)
			if len(rows)%50 == 0 && !reflect.DeepEqual(*r, want) {
				return fmt.Errorf("row %+v, want %+v", *r, want)
			}
			rows = append(rows, p)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if g.NumRows() > maxRowsPerRowGroup {
			t.Errorf("row group of %d rows", g.NumRows())
		}
		if !slices.IsSortedFunc(rows[first:], func(a, b ProgressRow) int {
			return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Channel, b.Channel))
		}) {
			t.Error("a row group is not ordered by process and channel")
		}
	}
	return rows
}

// TestProgressRowsAreReadAsWritten checks that every row is read as written, in the order of its
// channel: from segments and from the file, for any values and any division into writes and segments.
func TestProgressRowsAreReadAsWritten(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 7))
		path := filepath.Join(t.TempDir(), "r.parquet")
		w, err := Create(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var all []ProgressRow
		for range 1 + rng.IntN(4) {
			n := rng.IntN(2000)
			if rng.IntN(4) == 0 {
				n = maxRowsPerRowGroup - 1 + rng.IntN(3) // around a full row group
			}
			rows := randomProgress(rng, n)
			all = append(all, rows...)
			for len(rows) > 0 {
				part := rows[:1+rng.IntN(len(rows))]
				if rng.IntN(2) == 0 && len(part) < 500 {
					err = w.Write(ClassProgress, asRows(part))
				} else {
					err = w.WriteProgress(part)
				}
				if err != nil {
					t.Fatal(err)
				}
				rows = rows[len(part):]
			}
			if err := errors.Join(w.Rotate(Meta{}), w.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		want := progressOfChannels(all)
		for _, p := range []string{w.Dir(), path} {
			if p == path {
				if err := w.Finish(Meta{}); err != nil {
					t.Fatal(err)
				}
			} else if len(all) == 0 {
				continue
			}
			if got := progressOfChannels(readProgress(t, p)); !equalProgress(got, want) {
				t.Fatalf("seed %d: rows of %s differ", seed, p)
			}
		}
	}
}

func asRows(progress []ProgressRow) []Row {
	rows := make([]Row, len(progress))
	for i := range rows {
		rows[i] = progressAsRow(&progress[i])
	}
	return rows
}

func equalProgress(a, b map[channelKey][]ProgressRow) bool {
	for key, rows := range a {
		if !slices.Equal(rows, b[key]) {
			return false
		}
	}
	return len(a) == len(b)
}

// TestRingDropsProgress checks that a ring drops rows of kind progress with the calls of their
// rotation. Every row since the time that the ring states is present.
func TestRingDropsProgress(t *testing.T) {
	testclass.Unit(t)
	w := newRing(t, Limits{Ring: true, KeepNs: 3e9}, 0, 0)
	for i := range 10 {
		rows := make([]ProgressRow, 40)
		for k := range rows {
			rows[k] = ProgressRow{SeenNs: int64(i)*1e9 + int64(k)*1e7, Pid: 42, Channel: 1, Counter: int64(i*40 + k)}
		}
		if err := w.WriteProgress(rows); err != nil {
			t.Fatal(err)
		}
		writeRotation(t, w, i, 100)
	}
	dropped := w.DropOldRotations(9_900_000_000)
	if len(dropped) == 0 {
		t.Fatal("nothing is dropped")
	}
	last := dropped[len(dropped)-1]
	if last.Rows["progress"] != 40 || last.LastNs != int64(last.Number)*1e9+39e7 {
		t.Errorf("%+v", last)
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	rows := readProgress(t, w.path)
	if want := 40 * (10 - len(dropped)); len(rows) != want || rows[0].SeenNs <= last.LastNs {
		t.Errorf("%d rows from %d, want %d", len(rows), rows[0].SeenNs, want)
	}
}

// TestRecordingsWithoutProgressKeepTheirRows checks that without rows of kind progress, a recording
// has the rows and the metadata of version 1.1.
func TestRecordingsWithoutProgressKeepTheirRows(t *testing.T) {
	testclass.Unit(t)
	old := filepath.Join("..", "docs", "recordings", "torch.parquet") // version 1.1
	rec, want := readAll(t, old)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for class := range numRowClasses {
		if err := w.Write(class, slices.Clone(want[class])); err != nil {
			t.Fatal(err)
		}
	}
	meta := rec.Meta
	if err := w.Finish(meta); err != nil {
		t.Fatal(err)
	}
	again, got := readAll(t, path)
	for class, rows := range got {
		for i := range rows {
			if rows[i].Class != class.String() {
				t.Fatalf("row %d of class %s has the class %q", i, class, rows[i].Class)
			}
			rows[i].Class = ""
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("rows differ")
	}
	meta.Cost.FileBytes = again.Meta.Cost.FileBytes
	if !reflect.DeepEqual(again.Meta, meta) {
		t.Errorf("metadata %+v, want %+v", again.Meta, meta)
	}
	if pairs, err := again.Meta.keyValuePairs(); err != nil || strings.Contains(pairs[1][1], "progress") {
		t.Errorf("metadata with progress, or %v", err)
	}
}

func TestTextOfProgress(t *testing.T) {
	testclass.Unit(t)
	w, err := Create(filepath.Join(t.TempDir(), "r.parquet"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	channel := []Row{{Kind: KindChannel, StartNs: 3, Pid: 42, Device: -1, Channel: 1, Counter: 7, Ptr: 0x204600010}}
	if err := errors.Join(
		w.Write(ClassFact, channel),
		w.WriteProgress([]ProgressRow{{SeenNs: 5, GPUTimeNs: 32, Counter: 9, Pid: 42, Channel: 1}}),
		w.Finish(Meta{}),
	); err != nil {
		t.Fatal(err)
	}
	rec, _ := readAll(t, w.path)
	var b strings.Builder
	if err := rec.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := "# row group: fact, 1 rows\nchannel start_ns=3 pid=42 device=-1 ptr=0x204600010 channel=1 counter=7\n" +
		"# row group: progress, 1 rows\nprogress start_ns=5 pid=42 device=-1 channel=1 counter=9 gpu_time_ns=32\n"
	if !strings.HasSuffix(b.String(), want) {
		t.Errorf("%s\nwant at its end\n%s", b.String(), want)
	}
}

// TestWriteProgressAllocatesNothing checks that writing takes no memory for a row once the buffers of
// a segment exist.
func TestWriteProgressAllocatesNothing(t *testing.T) {
	testclass.Unit(t)
	w, err := Create(filepath.Join(t.TempDir(), "r.parquet"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	s := newSampledChannels(1, 50_000, 20_000, 32_000, 60_000)
	rows := s.appendReads(nil, 4096)
	fill := func() { // one full row group, so that all buffers have their size
		for range maxRowsPerRowGroup/4096 + 1 {
			if err := w.WriteProgress(rows); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	rest := maxRowsPerRowGroup/4096 - 4 // writes before the next row group is full
	if n := testing.AllocsPerRun(rest, func() {
		if err := w.WriteProgress(rows); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for %d rows", n, len(rows))
	}
}

// BenchmarkWriteProgress writes rows of three channels of kind progress.
func BenchmarkWriteProgress(b *testing.B) {
	w, err := Create(filepath.Join(b.TempDir(), "r.parquet"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	rows := newSampledChannels(1, 50_000, 20_000, 32_000, 60_000, 400_000).appendReads(nil, 300_000)[:300_000]
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for part := range slices.Chunk(rows, 1000) {
			if err := w.WriteProgress(part); err != nil {
				b.Fatal(err)
			}
		}
		n += len(rows)
		if err := w.Rotate(Meta{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
	b.ReportMetric(float64(w.Bytes())/float64(n), "B/row")
	if err := w.Abort(); err != nil {
		b.Fatal(err)
	}
}
