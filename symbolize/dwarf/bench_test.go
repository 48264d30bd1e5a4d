package dwarf

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
)

// BenchmarkFramesLargeSource looks up addresses in the whole file in GPUREC_BENCH_SOURCE.
func BenchmarkFramesLargeSource(b *testing.B) {
	path := os.Getenv("GPUREC_BENCH_SOURCE")
	if path == "" {
		b.Skip("GPUREC_BENCH_SOURCE names no file with debug information")
	}
	d := open(b, path)
	before, start := heapInUse(), time.Now()
	if _, err := d.Frames(0); err != nil { // reads the ranges of all units
		b.Fatal(err)
	}
	first := time.Since(start)
	random := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		r := d.index[random.IntN(len(d.index))]
		if _, err := d.Frames(r.low + random.Uint64N(r.high-r.low)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(first.Milliseconds()), "ms-first")
	b.ReportMetric(float64(heapInUse()-before)/1e6, "MB-kept")
	runtime.KeepAlive(d)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
