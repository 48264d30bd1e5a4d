package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/format"
)

// TorchScript adds events of PyTorch's allocator, one after another, with the allocator's totals.
type TorchScript struct {
	Tp                  *TestRecording // time of the next event, ns from the start of the recording
	Now                 int64
	Pool, Stream        int64 // private pool and stream of the next events
	Allocated, reserved int64 // the simulated allocator's totals in bytes
}

// AddEvent adds an event with the current totals, 1 ms after the previous event.
func (s *TorchScript) AddEvent(name string, ptr, bytes int64) *format.Row {
	s.Now += Ms
	return s.Tp.AddRow(format.Row{
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

// AddSegment adds a driver allocation and the event of a new segment.
func (s *TorchScript) AddSegment(ptr, bytes int64) {
	s.Now += Ms
	s.Tp.AddAlloc(s.Now, Us, ptr, bytes)
	s.reserved += bytes
	SetStackAndSite(s.AddEvent(format.AllocatorSegmentAlloc, ptr, bytes), 2, "forward (model.py:12)")
}

// RemoveSegment adds the event that a segment ends, and the driver's free.
func (s *TorchScript) RemoveSegment(ptr, bytes int64) {
	s.AddEvent(format.AllocatorSegmentFree, ptr, bytes)
	s.reserved -= bytes
	s.Now += Ms
	s.Tp.AddFree(s.Now, Us, ptr)
}

// AddBlock adds the allocation of a block.
func (s *TorchScript) AddBlock(ptr, bytes int64, site string) {
	SetStackAndSite(s.AddEvent(format.AllocatorAlloc, ptr, bytes), 1, site)
	s.Allocated += bytes
}

// AddBlockFree adds the two events of a block's free.
func (s *TorchScript) AddBlockFree(ptr, bytes int64) {
	s.Allocated -= bytes
	s.AddEvent(format.AllocatorFreeRequested, ptr, bytes)
	s.AddEvent(format.AllocatorFreeCompleted, ptr, bytes)
}

// AddFailedDriverAlloc adds a driver allocation that fails with out of memory.
func (s *TorchScript) AddFailedDriverAlloc(bytes int64) *format.Row {
	s.Now += Ms
	r := SetStackAndSite(s.Tp.AddAlloc(s.Now, Us, 0, bytes), 2, "forward (model.py:12)")
	r.Result = calls.ResultOutOfMemory
	return r
}

// AddOutOfMemory adds an out-of-memory event. free is the free memory of the device in bytes.
func (s *TorchScript) AddOutOfMemory(bytes, free int64) {
	SetStackAndSite(s.AddEvent(format.AllocatorOOM, 0, bytes), 2, "forward (model.py:12)").Value = float64(free)
}

// AddSparseSegments adds n segments of size bytes. Each has one live block of block bytes at its start. The
// rest of it is free.
func (s *TorchScript) AddSparseSegments(n, size, block int64) {
	for i := range n {
		ptr := 0x7f0000000000 + i*0x10000000
		s.AddSegment(ptr, size)
		s.AddBlock(ptr, block, "keep (train.py:3)")
	}
}

// AddOtherSparseSegments works like AddSparseSegments at other addresses and another call site.
func (s *TorchScript) AddOtherSparseSegments(n, size, block int64) {
	for i := range n {
		ptr := 0x7d0000000000 + i*0x10000000
		s.AddSegment(ptr, size)
		s.AddBlock(ptr, block, "other (train.py:5)")
	}
}

// NewTorchScript returns a TorchScript for a process on a GPU with 1000 MiB.
func NewTorchScript(t testing.TB) *TorchScript {
	recording := NewTestRecording(t)
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 1000 * Mib, StartNs: Epoch})
	recording.AddRow(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: Epoch, Device: -1})
	recording.AddLibraryStack(1, "/opt/torch/lib/libc10_cuda.so", "malloc")
	recording.AddLibraryStack(2, "/opt/torch/lib/libtorch_cuda.so", "empty_cuda")
	recording.AddLibraryStack(3, "/opt/nvidia/libnccl.so.2", "ncclCommInitRank")
	return &TorchScript{Tp: recording, Now: Second}
}

// AddProcessMemory adds an NVML sample of the memory that a process uses.
func (s *TorchScript) AddProcessMemory(pid int32, name string, bytes int64) {
	r := s.Tp.AddNVMLSample(0, s.Now, catalog.MetricProcessMemory, float64(bytes))
	r.Pid, r.Message = pid, name
}

// AddMemGetInfo adds a cuMemGetInfo that returns the free memory in bytes.
func (s *TorchScript) AddMemGetInfo(free int64) {
	r := s.Tp.AddAPICall("cuMemGetInfo_v2", s.Now, 0, 0)
	r.Bytes, r.Value = free, float64(1000*Mib)
}

// AddLaunch adds a kernel launch.
func (s *TorchScript) AddLaunch() {
	s.Now += Ms
	s.Tp.AddCall(format.KindLaunch, "cuLaunchKernel", s.Now, Us).Kernel = "gemm"
}

// OOMRecording returns a recording with several kinds of failed allocations.
func OOMRecording(t testing.TB) *TestRecording {
	s := NewTorchScript(t)
	s.AddProcessMemory(42, "train", 300*Mib)
	s.AddSparseSegments(40, 20*Mib, 6*Mib)
	s.AddFailedDriverAlloc(300 * Mib)
	s.AddFailedDriverAlloc(300 * Mib)
	s.AddOutOfMemory(300*Mib, 200*Mib)
	for i := range int64(40) {
		s.AddBlockFree(0x7f0000000000+i*0x10000000, 6*Mib)
	}
	s.Now += Second
	s.AddMemGetInfo(200 * Mib)
	s.AddFailedDriverAlloc(300 * Mib)
	for i := range int64(40) {
		s.RemoveSegment(0x7f0000000000+i*0x10000000, 20*Mib)
	}
	s.AddSegment(0x7e0000000000, 300*Mib)
	s.AddBlock(0x7e0000000000, 300*Mib, "forward (model.py:12)")
	s.Now += Second
	host := s.AddFailedDriverAlloc(64 * Mib)
	host.Name, host.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	s.AddLaunch()
	return s.Tp
}
