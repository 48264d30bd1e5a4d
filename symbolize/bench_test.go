package symbolize

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// functionCount is one million, or less with -short, which only checks that benchmarks run.
func functionCount() int {
	if testing.Short() {
		return 50_000
	}
	return 1_000_000
}

// millionFunctions returns a file with functionCount functions of 16 bytes in random order. Names
// have 60 bytes, as in C++.
func millionFunctions() []byte {
	count := functionCount()
	s := elftest.Image{TextBytes: uint64(count) * 16}
	for i := range count {
		s.Add(
			fmt.Sprintf("_ZN2at6native12_GLOBAL__N_120some_function_number_%09dEv", i),
			0x1000+uint64(i)*16,
			16,
			elf.STB_LOCAL,
		)
	}
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(count, func(i, j int) { s.Symbols[i], s.Symbols[j] = s.Symbols[j], s.Symbols[i] })
	return s.Bytes()
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkOpenMillionFunctions reports the memory of an open object per function, and the
// allocations of opening it.
func BenchmarkOpenMillionFunctions(b *testing.B) {
	raw := millionFunctions()
	var o *Object
	var total uint64
	before := heapInUse()
	for b.Loop() {
		total = elftest.AllocatedBytes(func() { o, _ = NewObject(bytes.NewReader(raw), int64(len(raw))) })
	}
	b.ReportMetric(float64(heapInUse()-before)/float64(o.Len()), "B-kept/function")
	b.ReportMetric(float64(total)/float64(o.Len()), "B-allocated/function")
	runtime.KeepAlive(o)
	runtime.KeepAlive(raw)
}

func BenchmarkLookupMillionFunctions(b *testing.B) {
	raw := millionFunctions()
	o := open(b, raw)
	random := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := o.Lookup(0x1000 + uint64(random.IntN(16*functionCount()))); !ok {
			b.Fatal("not found")
		}
	}
}

func BenchmarkFindMillionFunctions(b *testing.B) {
	o := open(b, millionFunctions())
	before, start := heapInUse(), time.Now()
	o.Find("") // builds the index
	took, kept := time.Since(start), heapInUse()-before
	b.ReportAllocs()
	name := fmt.Sprintf("_ZN2at6native12_GLOBAL__N_120some_function_number_%09dEv", functionCount()/2)
	for b.Loop() {
		o.Find(name)
	}
	b.ReportMetric(float64(took.Milliseconds()), "ms-index")
	b.ReportMetric(float64(kept)/float64(o.Len()), "B-index/function")
}

// largeLibrary returns the largest shared library in the usual folders, or the file in
// GPUREC_BENCH_LIBRARY.
func largeLibrary(b *testing.B) string {
	if path := os.Getenv("GPUREC_BENCH_LIBRARY"); path != "" {
		return path
	}
	home, _ := os.UserHomeDir()
	best, size := "", int64(0)
	for _, pattern := range []string{"/usr/lib/*/*.so*", home + "/.rustup/toolchains/*/lib/*.so*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > size {
				best, size = path, info.Size()
			}
		}
	}
	if best == "" {
		testclass.Missing(b, "no shared library found")
	}
	return best
}

func BenchmarkOpenLargeLibrary(b *testing.B) {
	path := largeLibrary(b)
	b.Log(path)
	b.ReportAllocs()
	var o *Object
	var err error
	before := heapInUse()
	for b.Loop() {
		if o, err = OpenObject(path); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heapInUse()-before)/1e6, "MB-kept")
	b.ReportMetric(float64(o.Len()), "functions")
	runtime.KeepAlive(o)
}

func BenchmarkLookupLargeLibrary(b *testing.B) {
	o, err := OpenObject(largeLibrary(b))
	if err != nil {
		b.Fatal(err)
	}
	var starts []uint64
	for s := range o.Symbols() {
		starts = append(starts, s.Start)
	}
	if len(starts) == 0 {
		testclass.Missing(b, "the library has no functions")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		o.Lookup(starts[random.IntN(len(starts))] + 3)
	}
}
