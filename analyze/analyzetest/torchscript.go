package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/format"
)

// TorchScript writes the events of an allocator as they are told, with its books.
type TorchScript struct {
	Tp                  *Tape
	Now                 int64
	Pool, Stream        int64
	Allocated, reserved int64
}

// Row writes an event with the books as they are now, a millisecond after the last.
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

// Segment gets memory from the driver, and tells so.
func (s *TorchScript) Segment(ptr, bytes int64) {
	s.Now += Ms
	s.Tp.Alloc(s.Now, Us, ptr, bytes)
	s.reserved += bytes
	At(s.Row(format.AllocatorSegmentAlloc, ptr, bytes), 2, "forward (model.py:12)")
}

func (s *TorchScript) GiveBack(ptr, bytes int64) {
	s.Row(format.AllocatorSegmentFree, ptr, bytes)
	s.reserved -= bytes
	s.Now += Ms
	s.Tp.Free(s.Now, Us, ptr)
}

func (s *TorchScript) Block(ptr, bytes int64, site string) {
	At(s.Row(format.AllocatorAlloc, ptr, bytes), 1, site)
	s.Allocated += bytes
}

func (s *TorchScript) Free(ptr, bytes int64) {
	s.Allocated -= bytes
	s.Row(format.AllocatorFreeRequested, ptr, bytes)
	s.Row(format.AllocatorFreeCompleted, ptr, bytes)
}

// Refused is a call of the driver that fails.
func (s *TorchScript) Refused(bytes int64) *format.Row {
	s.Now += Ms
	r := At(s.Tp.Alloc(s.Now, Us, 0, bytes), 2, "forward (model.py:12)")
	r.Result = calls.ResultOutOfMemory
	return r
}

func (s *TorchScript) Oom(bytes, free int64) {
	At(s.Row(format.AllocatorOOM, 0, bytes), 2, "forward (model.py:12)").Value = float64(free)
}

// Sparse makes n segments of a size with a block at the beginning of each and nothing
// behind.
func (s *TorchScript) Sparse(n, size, block int64) {
	for i := range n {
		ptr := 0x7f0000000000 + i*0x10000000
		s.Segment(ptr, size)
		s.Block(ptr, block, "keep (train.py:3)")
	}
}

// Sparse2 does the same at other addresses.
func (s *TorchScript) Sparse2(n, size, block int64) {
	for i := range n {
		ptr := 0x7d0000000000 + i*0x10000000
		s.Segment(ptr, size)
		s.Block(ptr, block, "other (train.py:5)")
	}
}

func NewTorchScript(t testing.TB) *TorchScript {
	tp := NewTape(t)
	tp.Add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 1000 * Mib, StartNs: Epoch})
	tp.Add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: Epoch, Device: -1})
	tp.LibraryStack(1, "/opt/torch/lib/libc10_cuda.so", "malloc")
	tp.LibraryStack(2, "/opt/torch/lib/libtorch_cuda.so", "empty_cuda")
	tp.LibraryStack(3, "/opt/nvidia/libnccl.so.2", "ncclCommInitRank")
	return &TorchScript{Tp: tp, Now: Second}
}

func (s *TorchScript) Used(pid int32, name string, bytes int64) {
	r := s.Tp.NVML(0, s.Now, catalog.MetricOfProcess, float64(bytes))
	r.Pid, r.Message = pid, name
}

func (s *TorchScript) Asked(free int64) {
	r := s.Tp.API("cuMemGetInfo_v2", s.Now, 0, 0)
	r.Bytes, r.Value = free, float64(1000*Mib)
}

func (s *TorchScript) Launch() {
	s.Now += Ms
	s.Tp.Call(format.KindLaunch, "cuLaunchKernel", s.Now, Us).Kernel = "gemm"
}

// OomTape has failures of all sorts.
func OomTape(t testing.TB) *Tape {
	s := NewTorchScript(t)
	s.Used(42, "train", 300*Mib)
	s.Sparse(40, 20*Mib, 6*Mib)
	s.Refused(300 * Mib)
	s.Refused(300 * Mib)
	s.Oom(300*Mib, 200*Mib)
	for i := range int64(40) {
		s.Free(0x7f0000000000+i*0x10000000, 6*Mib)
	}
	s.Now += Second
	s.Asked(200 * Mib)
	s.Refused(300 * Mib)
	for i := range int64(40) {
		s.GiveBack(0x7f0000000000+i*0x10000000, 20*Mib)
	}
	s.Segment(0x7e0000000000, 300*Mib)
	s.Block(0x7e0000000000, 300*Mib, "forward (model.py:12)")
	s.Now += Second
	host := s.Refused(64 * Mib)
	host.Name, host.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	s.Launch()
	return s.Tp
}
