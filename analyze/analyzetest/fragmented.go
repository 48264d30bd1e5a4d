package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// FragTape returns a recording in which an allocator fragments step by step and then fails to
// allocate. It also has a memory pool, reserved addresses, and plain allocations with holes between
// them.
func FragTape(t testing.TB) *Tape {
	s := NewTorchScript(t)
	for i := range int64(30) {
		s.Now = (2 + i) * Second
		ptr := 0x7f0000000000 + i*20*Mib
		s.Segment(ptr, 20*Mib)
		s.Block(ptr, 6*Mib, "activations (train.py:7)")
		s.Block(ptr+6*Mib, 6*Mib, "metrics (train.py:9)")
		s.Free(ptr, 6*Mib)
	}
	s.Segment(0x7d0000000000, 100*Mib)
	s.Block(0x7d0000000000, 60*Mib, "weights (model.py:2)")
	s.Now = 40 * Second
	s.FailedDriverAlloc(500 * Mib)
	s.Oom(500*Mib, 300*Mib)
	s.Now = 42 * Second
	for i := range int64(4) {
		s.Tp.Alloc(s.Now+i*Ms, Us, 0x6f0000000000+i*32*Mib, Mib)
	}
	reserve := s.Tp.Memory(format.KindReserve, "", 3*Second, 0x600000000000, 64*Mib)
	reserve.Name = "cuMemAddressReserve"
	for i := range int64(5) {
		s.Tp.Create(4*Second+i*Ms, 0x100+i, 4*Mib)
		s.Tp.MapAt(4*Second+i*Ms+Us, 0x600000000000+i*8*Mib, 4*Mib, 0x100+i)
	}
	s.Tp.Unmap(20*Second, 0x600000000000+16*Mib, 4*Mib)
	pool := s.Tp.API("cuMemPoolGetAttribute", 30*Second, 0xf00, 0)
	pool.Bytes, pool.Value = 200*Mib, timeline.PoolReservedCurrent
	pool = s.Tp.API("cuMemPoolGetAttribute", 30*Second+Ms, 0xf00, 0)
	pool.Bytes, pool.Value = 20*Mib, timeline.PoolUsedCurrent
	return s.Tp
}
