package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// FragmentingRecording returns a recording in which an allocator fragments step by step and then
// fails to allocate. It also has a memory pool, reserved addresses, and plain allocations with
// holes between them.
func FragmentingRecording(t testing.TB) *TestRecording {
	s := NewTorchScript(t)
	for i := range int64(30) {
		s.Now = (2 + i) * Second
		ptr := 0x7f0000000000 + i*20*Mib
		s.AddSegment(ptr, 20*Mib)
		s.AddBlock(ptr, 6*Mib, "activations (train.py:7)")
		s.AddBlock(ptr+6*Mib, 6*Mib, "metrics (train.py:9)")
		s.AddBlockFree(ptr, 6*Mib)
	}
	s.AddSegment(0x7d0000000000, 100*Mib)
	s.AddBlock(0x7d0000000000, 60*Mib, "weights (model.py:2)")
	s.Now = 40 * Second
	s.AddFailedDriverAlloc(500 * Mib)
	s.AddOutOfMemory(500*Mib, 300*Mib)
	s.Now = 42 * Second
	for i := range int64(4) {
		s.Tp.AddAlloc(s.Now+i*Ms, Us, 0x6f0000000000+i*32*Mib, Mib)
	}
	reserve := s.Tp.AddMemoryCall(format.KindReserve, "", 3*Second, 0x600000000000, 64*Mib)
	reserve.Name = "cuMemAddressReserve"
	for i := range int64(5) {
		s.Tp.AddMemCreate(4*Second+i*Ms, 0x100+i, 4*Mib)
		s.Tp.AddMemMap(4*Second+i*Ms+Us, 0x600000000000+i*8*Mib, 4*Mib, 0x100+i)
	}
	s.Tp.AddMemUnmap(20*Second, 0x600000000000+16*Mib, 4*Mib)
	pool := s.Tp.AddAPICall("cuMemPoolGetAttribute", 30*Second, 0xf00, 0)
	pool.Bytes, pool.Value = 200*Mib, timeline.PoolAttributeReserved
	pool = s.Tp.AddAPICall("cuMemPoolGetAttribute", 30*Second+Ms, 0xf00, 0)
	pool.Bytes, pool.Value = 20*Mib, timeline.PoolAttributeUsed
	return s.Tp
}
