package analyzetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// BenchRecordingPath returns the path of a recording of n calls. Half of them are allocs and frees
// of eight threads at 500 call sites, half are launches. The file is kept in build/bench, so that
// only the first run writes it.
func BenchRecordingPath(b testing.TB, n int) string {
	b.Helper()
	if n > 1_000_000 && os.Getenv("GPUREC_BENCH_LARGE") == "" {
		b.Skip("set GPUREC_BENCH_LARGE=1 to run; it writes a file of 100 MB first")
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
	meta := format.Meta{StartNs: Epoch, EndNs: Epoch + int64(n)*Us}
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
			frames[k] = format.Frame{
				Func:   fmt.Sprintf("function_%d_%d", i%50, k),
				Module: "/app/train",
				Addr:   int64(k),
				Type:   "native",
			}
		}
		stacks = append(stacks, format.Row{Kind: format.KindStack, StackID: i + 1, Frames: frames})
	}
	if err := w.Write(format.ClassStack, stacks); err != nil {
		b.Fatal(err)
	}
	next := int64(0x7f0000000000)
	for i := range n {
		site := r.Int32N(500)
		row := format.Row{
			StartNs: Epoch + int64(
				i,
			)*Us + r.Int64N(
				2000,
			),
			DurNs:       1000 + r.Int64N(20000),
			Pid:         42,
			Tid:         42 + r.Int32N(8),
			CPU:         r.Int32N(16),
			StackID:     site + 1,
			StackStatus: format.StackComplete,
			Site:        fmt.Sprintf("function_%d (train.py:%d)", site%50, site),
		}
		switch {
		case i%2 == 0:
			row.Kind, row.Name, row.Kernel, row.GridX, row.BlockX = format.KindLaunch, "cuLaunchKernel", fmt.Sprint(
				"kernel",
				site%100,
			), 128, 256
			calls = append(calls, row)
		case len(live) > 100_000 || len(live) > 0 && r.IntN(100) < 49:
			k := r.IntN(len(live))
			row.Kind, row.Name, row.MemoryKind, row.Ptr = format.KindFree, "cuMemFree_v2", format.MemoryDevice, live[k]
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
			memory = append(memory, row)
		default:
			next += 512
			row.Kind, row.Name, row.MemoryKind, row.Ptr, row.Bytes = format.KindAlloc, "cuMemAlloc_v2", format.MemoryDevice, next, 512<<r.IntN(
				15,
			)
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
