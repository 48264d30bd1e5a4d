package format

import (
	"path/filepath"
	"testing"
)

// BenchmarkWrite writes events of PyTorch's allocator. It is the row class with the highest rate in
// a recorder: 100,000 rows a second.
func BenchmarkWrite(b *testing.B) {
	w, err := Create(filepath.Join(b.TempDir(), "r.parquet"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	names := []string{AllocatorAlloc, AllocatorFreeRequested, AllocatorFreeCompleted}
	rows := make([]Row, 4096)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		row := &rows[n%len(rows)]
		*row = Row{
			Kind:       KindAllocator,
			Name:       names[n%3],
			MemoryKind: MemoryTorch,
			StartNs:    1_790_000_000_000_000_000 + int64(n)*9_731,
			Pid:        42,
			Tid:        42,
			CPU:        int32(n >> 16 & 3),
			Ptr: 0x7f0000000000 + int64(
				n/3%2000,
			)*512,
			Bytes:          int64(n/3%200) * 700,
			AllocatedBytes: 1<<30 + int64(n/3%500)*512,
			ReservedBytes:  2 << 30,
			StackStatus:    StackNone,
		}
		if n%3 == 0 {
			row.StackID, row.StackStatus, row.Site = int32(n/3%150), StackInferred, "forward (train.py:12)"
		}
		if n++; n%len(rows) == 0 {
			if err := w.Write(ClassAllocator, rows); err != nil {
				b.Fatal(err)
			}
		}
		if n%300_000 == 0 { // three seconds at 100,000 rows a second
			if err := w.Rotate(Meta{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(w.Bytes())/float64(n), "B/row")
	if err := w.Abort(); err != nil {
		b.Fatal(err)
	}
}
