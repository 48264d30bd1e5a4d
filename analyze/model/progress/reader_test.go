package progress_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/progress"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// writeSegments writes each slice of rows into a segment of its own and returns the folder.
func writeSegments(t testing.TB, segments ...[]format.ProgressRow) string {
	t.Helper()
	w, err := format.Create(filepath.Join(t.TempDir(), "run.parquet"), format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range segments {
		if err := errors.Join(w.WriteProgress(rows), w.Rotate(format.Meta{}), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.Dir()
}

func openTimeline(t testing.TB, path string) *timeline.Timeline {
	t.Helper()
	tl, err := timeline.Open(analyzetest.OpenRecording(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// randomSegments returns segments of samples of several processes and channels. Samples arrive
// roughly in order of time: each is up to lateNs late.
func randomSegments(rng *rand.Rand, lateNs int64) (segments [][]format.ProgressRow) {
	now := analyzetest.Epoch
	channels := 1 + rng.IntN(20)
	counters := make(map[[2]int32]int64)
	for range 1 + rng.IntN(6) {
		var rows []format.ProgressRow
		for range 1 + rng.IntN(3000) {
			now += rng.Int64N(5000)
			of := [2]int32{int32(40 + rng.IntN(3)), int32(1 + rng.IntN(channels))}
			counters[of] += rng.Int64N(40)
			rows = append(rows, format.ProgressRow{
				SeenNs: now - rng.Int64N(lateNs+1), GPUTimeNs: now - 300_000, Counter: counters[of],
				Pid: of[0], Channel: of[1],
			})
		}
		segments = append(segments, rows)
	}
	return segments
}

// sortedSamples returns the samples of all segments in the order that a Reader promises.
func sortedSamples(segments [][]format.ProgressRow) (samples []progress.Sample) {
	for _, r := range slices.Concat(segments...) {
		samples = append(samples, progress.Sample{
			SeenNs: r.SeenNs, GPUTimeNs: r.GPUTimeNs, Counter: r.Counter, Pid: r.Pid, Channel: r.Channel,
		})
	}
	slices.SortStableFunc(samples, func(a, b progress.Sample) int {
		return cmp.Or(cmp.Compare(a.SeenNs, b.SeenNs), cmp.Compare(a.Pid, b.Pid),
			cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Counter, b.Counter))
	})
	return samples
}

func TestSamplesComeInOrderOfTime(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		segments := randomSegments(rng, [...]int64{0, 2000, 20_000_000}[seed%3])
		tl := openTimeline(t, writeSegments(t, segments...))
		var got []progress.Sample
		if err := progress.NewReader(tl).EachSample(func(s *progress.Sample) error {
			got = append(got, *s)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := sortedSamples(segments); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d samples, want %d, or another order", seed, len(got), len(want))
		}
	}
}

// TestEachSampleContinues checks that EachSample continues after the samples of NextSamples, and stops
// at an error.
func TestEachSampleContinues(t *testing.T) {
	testclass.Unit(t)
	rng := rand.New(rand.NewPCG(1, 1))
	segments := append(randomSegments(rng, 0), []format.ProgressRow{{SeenNs: analyzetest.Epoch + analyzetest.Second}})
	r := progress.NewReader(openTimeline(t, writeSegments(t, segments...)))
	first, err := r.NextSamples()
	if err != nil || len(first) == 0 {
		t.Fatal(len(first), err)
	}
	got, stop := slices.Clone(first), errors.New("stop")
	if err := r.EachSample(func(s *progress.Sample) error {
		got = append(got, *s)
		return stop
	}); err != stop {
		t.Errorf("error %v", err)
	}
	if want := sortedSamples(segments); !slices.Equal(got, want[:len(got)]) {
		t.Error("first samples differ")
	}
}

func TestRecordingsWithoutProgress(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddAlloc(0, 10, 0x1000, 512)
	tl := openTimeline(t, recording.WriteAndOpen().Path)
	if progress.HasSamples(tl) || len(tl.Facts.Channels) > 0 {
		t.Error("a recording without progress rows has samples or channels")
	}
	if samples, err := progress.NewReader(tl).NextSamples(); len(samples) != 0 || err != nil {
		t.Errorf("%d samples, %v", len(samples), err)
	}
	old := openTimeline(t, filepath.Join("..", "..", "..", "format", "testdata", "v1.0.parquet"))
	if progress.HasSamples(old) {
		t.Error("a recording of version 1.0 has samples")
	}
}

// TestChannels checks that a channel has a row when it is found, and another one when it is gone.
func TestChannels(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	found := format.Row{
		Kind: format.KindChannel, StartNs: analyzetest.Epoch + 5, Pid: 42, Channel: 2, Counter: 17,
		Ptr: 0x204600010, Device: -1,
	}
	gone := found
	gone.DurNs, gone.Device = 1000, 1
	other := found
	other.Channel, other.Counter = 1, 0
	recording.AddRow(found)
	recording.AddRow(other)
	recording.AddRow(gone)
	recording.AddRow(
		format.Row{Kind: format.KindProgress, StartNs: analyzetest.Epoch + 9, Pid: 42, Channel: 2, Counter: 18},
	)
	tl := openTimeline(t, recording.WriteAndOpen().Path)
	want := []facts.Channel{
		{Number: 1, Pid: 42, Device: -1, Address: 0x204600010, StartNs: analyzetest.Epoch + 5},
		{
			Number: 2, Pid: 42, Device: 1, Address: 0x204600010, FirstCounter: 17,
			StartNs: analyzetest.Epoch + 5, EndNs: analyzetest.Epoch + 1005,
		},
	}
	if got := tl.Facts.Channels; !reflect.DeepEqual(got, want) {
		t.Errorf("channels %+v, want %+v", got, want)
	}
	if !progress.HasSamples(tl) {
		t.Error("no samples")
	}
}

// BenchmarkReader reads samples of four channels of a training.
func BenchmarkReader(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var rows []format.ProgressRow
	for i := range 1_000_000 {
		now := analyzetest.Epoch + int64(i)*15_000 + rng.Int64N(8000)
		rows = append(rows, format.ProgressRow{
			SeenNs: now, GPUTimeNs: now - 300_000 - rng.Int64N(30_000)&^31, Counter: int64(i),
			Pid: 42, Channel: int32(1 + i%4),
		})
	}
	tl := openTimeline(b, writeSegments(b, rows))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := progress.NewReader(tl).EachSample(func(*progress.Sample) error { n++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
}
