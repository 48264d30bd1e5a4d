//go:build linux

package rowwriter

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func newProgressWriter(t testing.TB) (*Writer, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.parquet")
	writer, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Writer{
		writer: writer, onFailure: func(error) {}, channelProgress: newProgressQueue(),
	}, path
}

// countProgress returns the number of rows of kind progress in a recording, and the sum of their
// counters.
func countProgress(t *testing.T, path string) (rows, sum int64) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	for _, g := range rec.Groups() {
		if g.Class() != format.ClassProgress {
			continue
		}
		for _, n := range g.Int64("counter", nil) {
			rows, sum = rows+1, sum+n
		}
		if err := g.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return rows, sum
}

// TestSentProgressIsRecordedOrLost checks that every row that several goroutines send is either
// recorded or counted as lost.
func TestSentProgressIsRecordedOrLost(t *testing.T) {
	testclass.Unit(t)
	s, path := newProgressWriter(t)
	const senders, batches = 4, 60 // more batches than can wait
	var sent sync.WaitGroup
	for range senders {
		sent.Go(func() {
			counter := int64(0)
			for range batches {
				batch := s.ProgressBatch()
				for range 500 {
					counter++
					batch = append(batch, format.ProgressRow{Counter: 1, SeenNs: counter, Pid: 7, Channel: 1})
				}
				s.SendProgress(batch)
			}
		})
	}
	sent.Wait()
	s.writeWaitingProgress()
	count := s.channelProgress.counts()
	if want := int64(maxWaitingProgressBatches * 500); count.Recorded != want {
		t.Errorf("recorded %d rows, want %d", count.Recorded, want)
	}
	if all := count.Recorded + count.Lost; all != senders*batches*500 {
		t.Errorf("%d rows recorded or lost, want %d", all, senders*batches*500)
	}
	if err := s.writer.Finish(format.Meta{Progress: count}); err != nil {
		t.Fatal(err)
	}
	if rows, sum := countProgress(t, path); rows != count.Recorded || sum != count.Recorded {
		t.Errorf("%d rows with a sum of %d in the file, want %d", rows, sum, count.Recorded)
	}
}

// TestProgressOfLostSegmentsIsCounted checks that rows of a segment that could not be written, and
// rows after a failure, count as lost.
func TestProgressOfLostSegmentsIsCounted(t *testing.T) {
	testclass.Unit(t)
	s, _ := newProgressWriter(t)
	defer s.writer.Abort()
	rows := []format.ProgressRow{{Counter: 1}, {Counter: 2}, {Counter: 3}}
	s.writeProgress(rows)
	rotation := s.writer.Rotation()
	s.pending = append(s.pending, rotationCallCounts{rotation: rotation, progress: s.channelProgress.sinceRotate})
	s.channelProgress.sinceRotate = 0
	if err := s.writer.Rotate(format.Meta{}); err != nil {
		t.Fatal(err)
	}
	s.writeProgress(rows[:2])
	s.stopWriting(
		&format.SegmentError{Segments: []format.LostSegment{{Rotation: rotation, Class: format.ClassProgress}}},
	)
	if got, want := *s.channelProgress.counts(), (format.RowCount{Recorded: 2, Lost: 3}); got != want {
		t.Errorf("after a finished segment: %+v, want %+v", got, want)
	}
	s.stopWriting(
		&format.SegmentError{Segments: []format.LostSegment{{Rotation: rotation + 1, Class: format.ClassProgress}}},
	)
	s.writeProgress(rows[:1])
	if got, want := *s.channelProgress.counts(), (format.RowCount{Lost: 6}); got != want {
		t.Errorf("after the open segment: %+v, want %+v", got, want)
	}
}

// TestProgressEndsAtTheSizeLimit checks that a recording that has reached its size limit gets no rows
// of a later time.
func TestProgressEndsAtTheSizeLimit(t *testing.T) {
	testclass.Unit(t)
	s, path := newProgressWriter(t)
	s.bounds.endNs = 20
	s.writeProgress([]format.ProgressRow{{SeenNs: 19, Counter: 5}, {SeenNs: 20, Counter: 7}})
	count := s.channelProgress.counts()
	if err := s.writer.Finish(format.Meta{Progress: count}); err != nil {
		t.Fatal(err)
	}
	if rows, sum := countProgress(t, path); rows != 1 || sum != 5 || count.Recorded != 1 {
		t.Errorf("%d rows, sum %d, count %+v", rows, sum, count)
	}
}

// BenchmarkSendProgress sends batches and writes them in the same goroutine.
func BenchmarkSendProgress(b *testing.B) {
	s, _ := newProgressWriter(b)
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		batch := s.ProgressBatch()
		for range progressRowsPerBatch {
			n++
			batch = append(batch, format.ProgressRow{
				SeenNs: n * 15_000, GPUTimeNs: n * 15_000 &^ 31, Counter: n, Pid: 7, Channel: int32(n & 3),
			})
		}
		s.SendProgress(batch)
		s.writeWaitingProgress()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
	if err := s.writer.Abort(); err != nil {
		b.Fatal(err)
	}
}
