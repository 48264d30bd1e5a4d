package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/format"
)

// TorchScript adds events of PyTorch's allocator, one after another, with the allocator's totals.
type TorchScript struct {
	Tp                  *Tape // time of the next event, ns from the start of the recording
	Now                 int64
	Pool, Stream        int64 // private pool and stream of the next events
	Allocated, reserved int64 // the simulated allocator's totals in bytes
}

// Row adds an event with the current totals, 1 ms after the previous event.
func (s *TorchScript) Row(name string, ptr, bytes int64) *format.Row {
	s.Now += Ms
	return s.Tp.Add(format.Row{
		Kind:           format.KindAllocator,
		Name:           name,
		StartNs:        Epoch + s.Now,
		Pid:            42,
		Tid:            42,
		MemoryKind:     format.MemoryTorch,
		Ptr:            ptr,
		Bytes:          bytes,
		Stream:         s.Stream,
		SrcPtr:         s.Pool,
		StackStatus:    format.StackNone,
		AllocatedBytes: s.Allocated,
		ReservedBytes:  s.reserved,
	})
}

// Segment adds a driver allocation and the event of a new segment.
func (s *TorchScript) Segment(ptr, bytes int64) {
	s.Now += Ms
	s.Tp.Alloc(s.Now, Us, ptr, bytes)
	s.reserved += bytes
	At(s.Row(format.AllocatorSegmentAlloc, ptr, bytes), 2, "forward (model.py:12)")
}

// GiveBack adds the event that a segment ends, and the driver's free.
func (s *TorchScript) GiveBack(ptr, bytes int64) {
	s.Row(format.AllocatorSegmentFree, ptr, bytes)
	s.reserved -= bytes
	s.Now += Ms
	s.Tp.Free(s.Now, Us, ptr)
}

// Block adds the allocation of a block.
func (s *TorchScript) Block(ptr, bytes int64, site string) {
	At(s.Row(format.AllocatorAlloc, ptr, bytes), 1, site)
	s.Allocated += bytes
}

// Free adds the two events of a block's free.
func (s *TorchScript) Free(ptr, bytes int64) {
	s.Allocated -= bytes
	s.Row(format.AllocatorFreeRequested, ptr, bytes)
	s.Row(format.AllocatorFreeCompleted, ptr, bytes)
}

// FailedDriverAlloc adds a driver allocation that fails with out of memory.
func (s *TorchScript) FailedDriverAlloc(bytes int64) *format.Row {
	s.Now += Ms
	r := At(s.Tp.Alloc(s.Now, Us, 0, bytes), 2, "forward (model.py:12)")
	r.Result = calls.ResultOutOfMemory
	return r
}

// Oom adds an out-of-memory event. free is the free memory of the device in bytes.
func (s *TorchScript) Oom(bytes, free int64) {
	At(s.Row(format.AllocatorOOM, 0, bytes), 2, "forward (model.py:12)").Value = float64(free)
}

// Sparse adds n segments of a size. Each has one block at its start and is otherwise free.
func (s *TorchScript) Sparse(n, size, block int64) {
	for i := range n {
		ptr := 0x7f0000000000 + i*0x10000000
		s.Segment(ptr, size)
		s.Block(ptr, block, "keep (train.py:3)")
	}
}

// SparseElsewhere works like Sparse at other addresses and another call site.
func (s *TorchScript) SparseElsewhere(n, size, block int64) {
	for i := range n {
		ptr := 0x7d0000000000 + i*0x10000000
		s.Segment(ptr, size)
		s.Block(ptr, block, "other (train.py:5)")
	}
}

// NewTorchScript returns a TorchScript for a process on a GPU with 1000 MiB.
func NewTorchScript(t testing.TB) *TorchScript {
	tp := NewTape(t)
	tp.Add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 1000 * Mib, StartNs: Epoch})
	tp.Add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: Epoch, Device: -1})
	tp.LibraryStack(1, "/opt/torch/lib/libc10_cuda.so", "malloc")
	tp.LibraryStack(2, "/opt/torch/lib/libtorch_cuda.so", "empty_cuda")
	tp.LibraryStack(3, "/opt/nvidia/libnccl.so.2", "ncclCommInitRank")
	return &TorchScript{Tp: tp, Now: Second}
}

// AddProcessMemory adds an NVML sample of the memory that a process uses.
func (s *TorchScript) AddProcessMemory(pid int32, name string, bytes int64) {
	r := s.Tp.NVML(0, s.Now, catalog.MetricOfProcess, float64(bytes))
	r.Pid, r.Message = pid, name
}

// AddMemGetInfo adds a cuMemGetInfo that returns the free memory in bytes.
func (s *TorchScript) AddMemGetInfo(free int64) {
	r := s.Tp.API("cuMemGetInfo_v2", s.Now, 0, 0)
	r.Bytes, r.Value = free, float64(1000*Mib)
}

// Launch adds a kernel launch.
func (s *TorchScript) Launch() {
	s.Now += Ms
	s.Tp.Call(format.KindLaunch, "cuLaunchKernel", s.Now, Us).Kernel = "gemm"
}

// OomTape returns a recording with several kinds of failed allocations.
func OomTape(t testing.TB) *Tape {
	s := NewTorchScript(t)
	s.AddProcessMemory(42, "train", 300*Mib)
	s.Sparse(40, 20*Mib, 6*Mib)
	s.FailedDriverAlloc(300 * Mib)
	s.FailedDriverAlloc(300 * Mib)
	s.Oom(300*Mib, 200*Mib)
	for i := range int64(40) {
		s.Free(0x7f0000000000+i*0x10000000, 6*Mib)
	}
	s.Now += Second
	s.AddMemGetInfo(200 * Mib)
	s.FailedDriverAlloc(300 * Mib)
	for i := range int64(40) {
		s.GiveBack(0x7f0000000000+i*0x10000000, 20*Mib)
	}
	s.Segment(0x7e0000000000, 300*Mib)
	s.Block(0x7e0000000000, 300*Mib, "forward (model.py:12)")
	s.Now += Second
	host := s.FailedDriverAlloc(64 * Mib)
	host.Name, host.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	s.Launch()
	return s.Tp
}
