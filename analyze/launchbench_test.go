package analyze_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// launchRecording returns the path of a recording of a million launches. They are launches of 300
// kernels in several shapes, at 500 call sites, on eight streams of two threads. The file is kept
// in build/bench.
func launchRecording(b *testing.B) string {
	b.Helper()
	launches := benchSize(1_000_000)
	path := filepath.Join("..", "build", "bench", fmt.Sprintf("launches-%d.parquet", launches))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	writeLaunches(b, path, launches)
	return path
}

// writeLaunches writes a recording with a number of launches.
func writeLaunches(b testing.TB, path string, launches int) {
	b.Helper()
	w, err := format.Create(path, format.Options{Force: true})
	if err != nil {
		b.Fatal(err)
	}
	var stacks []format.Row
	for i := range int32(500) {
		frames := make([]format.Frame, 30)
		for k := range frames {
			frames[k] = format.Frame{
				Func:   fmt.Sprintf("function_%d_%d", i%50, k),
				Module: "/app/train",
				Addr:   int64(k),
				Type:   "native",
			}
		}
		stacks = append(
			stacks,
			format.Row{Kind: format.KindStack, StackID: i + 1, StackStatus: format.StackComplete, Frames: frames},
		)
	}
	if err := w.Write(format.ClassStack, stacks); err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	at := analyzetest.Epoch
	rows := make([]format.Row, 0, 1000)
	for range launches {
		site := r.Int32N(500)
		at += 4000 + r.Int64N(4000)
		rows = append(rows, format.Row{
			Kind:        format.KindLaunch,
			Name:        "cuLaunchKernel",
			StartNs:     at,
			DurNs:       2500 + r.Int64N(1500),
			Pid:         4242,
			Tid:         4242 + site%2,
			StackID:     site + 1,
			StackStatus: []string{format.StackInferred, format.StackComplete}[min(1, site%20/19)],
			Site:        fmt.Sprintf("function_%d (train.py:%d)", site%50, site),
			Stream: 0x55d0c0de0000 + int64(
				site%8,
			)*0x130,
			Kernel: fmt.Sprintf("void at::native::kernel_%d<float>(int, float*)", site%300),
			GridX: 1 + r.Int32N(
				4,
			)*int32(
				1+site%64,
			),
			GridY:       1,
			GridZ:       1,
			BlockX:      128 << (site % 3),
			BlockY:      1,
			BlockZ:      1,
			SharedBytes: site % 2 * 4096,
		})
		if len(rows) == cap(rows) {
			if err := w.Write(format.ClassCall, rows); err != nil {
				b.Fatal(err)
			}
			rows = rows[:0]
		}
	}
	if err := w.Finish(format.Meta{StartNs: analyzetest.Epoch, EndNs: at + analyzetest.Ms}); err != nil {
		b.Fatal(err)
	}
}

// TestTraceOfManyLaunchesIsSmall checks that a launch takes at most 120 bytes of a trace.
// Perfetto's trace processor must find each launch with its flow and stack.
func TestTraceOfManyLaunchesIsSmall(t *testing.T) {
	testclass.Browser(t)
	const launches = 100_000
	path := filepath.Join(t.TempDir(), "launches.parquet")
	writeLaunches(t, path, launches)
	tl, err := timeline.Open(analyzetest.OpenRecording(t, path))
	if err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "launches.pftrace")
	file, err := os.Create(trace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := perfetto.WriteTrace(tl, file, perfetto.Options{}); err != nil {
		t.Fatal(err)
	}
	size, err := file.Seek(0, io.SeekCurrent)
	if err != nil || file.Close() != nil {
		t.Fatal(err)
	}
	if size > 120*launches {
		t.Errorf("%.1f bytes a launch", float64(size)/launches)
	}
	results := viewers.QueryPerfetto(
		t,
		trace,
		viewers.PerfettoErrorsQuery,
		`select count(*) n from flow`,
		`select count(*) n from slice where name = 'cuLaunchKernel'`,
		`select count(*) n from __intrinsic_track_event_callstacks`,
		`select count(*) n from slice where dur < 0`,
	)
	if got, want := viewers.EncodeJSON(
		t,
		results,
	), fmt.Sprintf(
		`[[],[{"n":%d}],[{"n":%[1]d}],[{"n":%[1]d}],[{"n":0}]]`,
		launches,
	); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// countingWriter counts the bytes written to it.
type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

func benchManyLaunches(b *testing.B, run func(*timeline.Timeline) error) {
	path := launchRecording(b)
	for b.Loop() {
		rec, err := format.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		tl, err := timeline.Open(rec)
		if err == nil {
			err = run(tl)
		}
		rec.Close()
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPerfettoLaunches measures writing the trace of a million launches, including reading the
// recording. Each launch is a slice and an instant.
func BenchmarkPerfettoLaunches(b *testing.B) {
	var written countingWriter
	var slices int64
	benchManyLaunches(b, func(tl *timeline.Timeline) error {
		written = 0
		stats, err := perfetto.WriteTrace(tl, &written, perfetto.Options{})
		if err == nil {
			slices = 2 * stats.Calls
		}
		return err
	})
	b.ReportMetric(float64(written)/float64(slices/2), "B/launch")
	b.ReportMetric(float64(slices)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mslices/s")
}

// BenchmarkProfileLaunches measures writing the profile of a million launches.
func BenchmarkProfileLaunches(b *testing.B) {
	benchManyLaunches(b, func(tl *timeline.Timeline) error {
		p, _, _, err := pprof.BuildProfile(tl, pprof.Options{Type: "launches"})
		if err != nil {
			return err
		}
		return p.Write(io.Discard)
	})
}
