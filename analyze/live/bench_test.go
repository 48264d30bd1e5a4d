package live_test

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/format"
)

// BenchmarkTake takes the numbers of 60 processes with 200 call sites and 2,000 live tensors each.
func BenchmarkTake(b *testing.B) {
	m := live.NewMonitor()
	for pid := range int32(60) {
		var calls, memory, tensors []format.Row
		for i := range int64(2000) {
			row := format.Row{
				Pid:     pid + 1,
				Site:    fmt.Sprintf("f%d (train.py:%d)", i%200, i%200),
				StartNs: analyzetest.Epoch + i,
				DurNs:   1,
				Ptr:     (i + 1) << 12,
				Bytes:   1 << 12,
			}
			launch, alloc, tensor := row, row, row
			launch.Kind, alloc.Kind, alloc.Name = format.KindLaunch, format.KindAlloc, "cuMemAlloc_v2"
			tensor.Kind, tensor.Name = format.KindAllocator, "alloc"
			calls, memory, tensors = append(calls, launch), append(memory, alloc), append(tensors, tensor)
		}
		m.Add(format.ClassCall, calls)
		m.Add(format.ClassMemory, memory)
		m.Add(format.ClassAllocator, tensors)
	}
	now := int64(analyzetest.Epoch) + 2e9
	if s := m.Take(
		now,
		1,
	); len(s.Processes) != 60 || s.Processes[0].LiveBytes == 0 ||
		len(s.Processes[0].Lines) != 200 ||
		s.Processes[0].Lines[0].TensorBytes == 0 {
		b.Fatalf("%d processes; %+v", len(s.Processes), s.Processes[0])
	}
	for b.Loop() {
		m.Take(now, 1)
	}
}
