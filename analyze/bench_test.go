package analyze_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
)

// peakRSS returns the largest resident set of this process so far, in MiB, or 0 if it is unknown.
func peakRSS() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(status, []byte("VmHWM:"))
	text, _, _ := bytes.Cut(bytes.TrimSpace(after), []byte(" "))
	kib, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0
	}
	return kib / 1024
}

// benchSize returns the number of events of a benchmark. With -short, which only checks that
// benchmarks run, it is a small part of it.
func benchSize(n int) int {
	if testing.Short() {
		return n / 25
	}
	return n
}

func benchReport(b *testing.B, run func(*timeline.Timeline) error) {
	sizes := []int{1_000_000, 10_000_000}
	if testing.Short() {
		sizes = []int{benchSize(1_000_000)}
	}
	for _, n := range sizes {
		b.Run(fmt.Sprintf("%gM", float64(n)/1e6), func(b *testing.B) {
			path := analyzetest.BenchRecordingPath(b, n)
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
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
			b.ReportMetric(peakRSS(), "peak-MiB")
		})
	}
}

func BenchmarkReplay(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error {
		_, err := tl.ReplayMemory(func(*livemem.Set, *livemem.Change) {})
		return err
	})
}

// BenchmarkReplayPhysical replays a program that maps and unmaps memory in steps of 2 MiB: 1
// million calls, at most 70,000 mappings.
func BenchmarkReplayPhysical(b *testing.B) {
	allocs := benchSize(250_000)
	path := filepath.Join("..", "build", "bench", fmt.Sprintf("physical-%d.parquet", allocs))
	if _, err := os.Stat(path); err != nil {
		writePhysical(b, path, allocs)
	}
	for b.Loop() {
		rec, err := format.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		tl, err := timeline.Open(rec)
		if err != nil {
			b.Fatal(err)
		}
		l, err := tl.ReplayMemory(func(*livemem.Set, *livemem.Change) {})
		rec.Close()
		if err != nil || l.Counts.Allocs != int64(allocs) || l.Counts.UnmatchedFrees+l.Counts.LostFrees > 0 {
			b.Fatalf("%v, %+v", err, l.Counts)
		}
	}
	b.ReportMetric(4*float64(allocs)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

func writePhysical(b *testing.B, path string, allocs int) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	w, err := format.Create(path, format.Options{Force: true})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(2, 2))
	const step, most = int64(2) << 20, 70_000
	var mapped, free []int64
	for i := range int64(most) {
		free = append(free, i)
	}
	at := analyzetest.Epoch
	var rows []format.Row
	call := func(kind, memory string, ptr, bytes, src int64) {
		at += 2000
		rows = append(
			rows,
			format.Row{
				Kind:       kind,
				Name:       "cuMem",
				StartNs:    at,
				DurNs:      1000,
				Pid:        42,
				Tid:        42,
				MemoryKind: memory,
				Ptr:        ptr,
				Bytes:      bytes,
				SrcPtr:     src,
			},
		)
	}
	for made := 0; made < allocs || len(mapped) > 0; {
		if made < allocs && (len(mapped) == 0 || len(mapped) < most && r.IntN(100) < 60) {
			k := r.IntN(len(free))
			slot := free[k]
			free[k] = free[len(free)-1]
			free, mapped = free[:len(free)-1], append(mapped, slot)
			call(format.KindAlloc, format.MemoryPhysical, 0x1000+slot, step, 0)
			call(format.KindMap, "", slot*step+1<<40, step, 0x1000+slot)
			call(format.KindFree, format.MemoryPhysical, 0x1000+slot, 0, 0)
			made++
			continue
		}
		k := r.IntN(len(mapped))
		slot := mapped[k]
		mapped[k] = mapped[len(mapped)-1]
		mapped, free = mapped[:len(mapped)-1], append(free, slot)
		call(format.KindUnmap, "", slot*step+1<<40, step, 0)
	}
	if err := w.Write(format.ClassMemory, rows); err != nil {
		b.Fatal(err)
	}
	if err := w.Finish(format.Meta{StartNs: analyzetest.Epoch, EndNs: at}); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkLeaks(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := leaks.Run(tl, query.Options{Top: 20}); return err })
}

func BenchmarkSummary(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := summary.Run(tl, query.Options{Top: 20}); return err })
}

func BenchmarkPprof(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error {
		p, _, _, err := pprof.BuildHeapProfile(tl, query.Options{})
		if err != nil {
			return err
		}
		return p.Write(io.Discard)
	})
}

func BenchmarkPerfetto(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error {
		_, err := perfetto.WriteTrace(tl, io.Discard, perfetto.Options{})
		return err
	})
}

func BenchmarkStacks(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := stacks.Run(tl, query.Options{Top: 20}); return err })
}

func BenchmarkHTML(b *testing.B) {
	benchReport(
		b,
		func(tl *timeline.Timeline) error {
			_, err := html.WritePage(tl, io.Discard, html.Options{})
			return err
		},
	)
}
