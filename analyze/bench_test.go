package analyze

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	pprofpkg "github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	stackspkg "github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
)

// benchRecording returns a recording of n calls: half of them allocs and frees of
// eight threads at 500 places, half launches. It is kept in build/bench, so that only
// the first run has the cost and the memory of writing it.
func benchRecording(b testing.TB, n int) string {
	b.Helper()
	if n > 1_000_000 && os.Getenv("GPUREC_BENCH_LARGE") == "" {
		b.Skip("set GPUREC_BENCH_LARGE=1; it writes a file of 100 MB first")
	}
	path := filepath.Join("..", "build", "bench", fmt.Sprintf("calls-%d.parquet", n))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	w, err := format.Create(path, format.Options{Force: true})
	if err != nil {
		b.Fatal(err)
	}
	meta := format.Meta{StartNs: epoch, EndNs: epoch + int64(n)*us}
	r := rand.New(rand.NewPCG(1, 1))
	var memory, calls []format.Row
	var live []int64
	flush := func(least int) {
		for c, rows := range map[format.Class]*[]format.Row{format.ClassMemory: &memory, format.ClassCall: &calls} {
			if len(*rows) >= least {
				if err := w.Write(c, *rows); err != nil {
					b.Fatal(err)
				}
				*rows = (*rows)[:0]
			}
		}
	}
	var stacks []format.Row
	for i := range int32(500) {
		frames := make([]format.Frame, 30)
		for k := range frames {
			frames[k] = format.Frame{Func: fmt.Sprintf("function_%d_%d", i%50, k), Module: "/app/train", Addr: int64(k), Type: "native"}
		}
		stacks = append(stacks, format.Row{Kind: format.KindStack, StackID: i + 1, Frames: frames})
	}
	if err := w.Write(format.ClassStack, stacks); err != nil {
		b.Fatal(err)
	}
	next := int64(0x7f0000000000)
	for i := range n {
		place := r.Int32N(500)
		row := format.Row{StartNs: epoch + int64(i)*us + r.Int64N(2000), DurNs: 1000 + r.Int64N(20000), Pid: 42, Tid: 42 + r.Int32N(8), CPU: r.Int32N(16),
			StackID: place + 1, StackStatus: format.StackComplete, Site: fmt.Sprintf("function_%d (train.py:%d)", place%50, place)}
		switch {
		case i%2 == 0:
			row.Kind, row.Name, row.Kernel, row.GridX, row.BlockX = format.KindLaunch, "cuLaunchKernel", fmt.Sprint("kernel", place%100), 128, 256
			calls = append(calls, row)
		case len(live) > 100_000 || len(live) > 0 && r.IntN(100) < 49:
			k := r.IntN(len(live))
			row.Kind, row.Name, row.MemoryKind, row.Ptr = format.KindFree, "cuMemFree_v2", format.MemoryDevice, live[k]
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
			memory = append(memory, row)
		default:
			next += 512
			row.Kind, row.Name, row.MemoryKind, row.Ptr, row.Bytes = format.KindAlloc, "cuMemAlloc_v2", format.MemoryDevice, next, 512<<r.IntN(15)
			live = append(live, next)
			memory = append(memory, row)
		}
		flush(1000)
		if i%500_000 == 499_999 {
			if err := w.Rotate(meta); err != nil {
				b.Fatal(err)
			}
		}
	}
	flush(1)
	if err := w.Finish(meta); err != nil {
		b.Fatal(err)
	}
	return path
}

// peakRSS returns the largest resident set of this process so far, in MiB; 0 where
// that is not known.
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

// benchSize is the number of events of a benchmark; with -short, which only asks whether
// benchmarks run, a small part of it.
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
			path := benchRecording(b, n)
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
		_, err := tl.Replay(func(*ledger.Ledger, *ledger.Change) {})
		return err
	})
}

// BenchmarkReplayPhysical is a program that maps and unmaps 2 MiB steps: 1 M calls,
// 70,000 mappings at most.
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
		l, err := tl.Replay(func(*ledger.Ledger, *ledger.Change) {})
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
	at := epoch
	var rows []format.Row
	call := func(kind, memory string, ptr, bytes, src int64) {
		at += 2000
		rows = append(rows, format.Row{Kind: kind, Name: "cuMem", StartNs: at, DurNs: 1000, Pid: 42, Tid: 42, MemoryKind: memory, Ptr: ptr, Bytes: bytes, SrcPtr: src})
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
	if err := w.Finish(format.Meta{StartNs: epoch, EndNs: at}); err != nil {
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
		p, _, _, err := pprofpkg.BuildHeap(tl, query.Options{})
		if err != nil {
			return err
		}
		return p.Write(io.Discard)
	})
}

func BenchmarkPerfetto(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error {
		_, err := perfetto.Write(tl, io.Discard, perfetto.Options{})
		return err
	})
}

func BenchmarkStacks(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := stackspkg.Run(tl, query.Options{Top: 20}); return err })
}

func BenchmarkHTML(b *testing.B) {
	benchReport(b, func(tl *timeline.Timeline) error { _, err := html.Write(tl, io.Discard, html.Options{}); return err })
}
