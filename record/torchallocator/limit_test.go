//go:build linux

package torchallocator

import (
	"encoding/binary"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// objectOfH200 returns the memory of a DeviceCachingAllocator from the table of active blocks on, as PyTorch 2.11 has it
// with an H200: bytes reserved, a cudaDeviceProp of CUDA 13, and the limit. Many members of cudaDeviceProp are pairs of
// numbers that look like a limit.
func objectOfH200(reserved, limit uint64, isSet byte) (data []byte, l *layout) {
	const active, reservedAt, propAt, limitAt = 1264, 0x5e8, 0x5f0, 0x9e0
	data = make([]byte, 3072)
	set := func(at int, value uint64) { binary.LittleEndian.PutUint64(data[at:], value) }
	copy(data[propAt:], "NVIDIA H200")
	for at, value := range map[int]uint64{
		0x6f0: 0x22c961853412e885, 0x6f8: 0x1284de9a12f345d6, 0x710: 0x22f33f0000, 0x718: 0xc000, 0x720: 0x2000010000,
		0x728: 0x7fffffff, 0x730: 0x40000000400, 0x738: 0x4000000400, 0x740: 0xffff7fffffff, 0x748: 0xffff, 0x750: 0x10000,
		0x820: 0x100000001, 0x828: 0x600000000, 0x838: 0x100000003, 0x850: 0x100000001, 0x858: 1, 0x860: 0x39000,
		0x880: 0x100000001, 0x888: 0x100000001, 0x890: 0x38c00, 0x8b0: 0x100000001, 0x8b8: 0x100000001, 0x8c0: 0x100000001,
		0x8c8: 0x6400000001, 0x8d0: 0x100000009, 0x8d8: 0x100000001, 0x8e0: 1, 0x8e8: 0xffffffff, 0x8f0: 0x233510de00000000,
	} {
		set(at, value)
	}
	set(reservedAt, reserved)
	set(limitAt, limit)
	set(limitAt+8, 0xd11d700|uint64(isSet)) // padding has any value
	l = &layout{deviceLayout{stats: mutexBytes, active: active}, blockLayouts[0]}
	set(l.stats+reservedBytesStat*arrayBytes, reserved)
	return data, l
}

func TestLimitBehindDeviceProperties(t *testing.T) {
	testclass.Unit(t)
	const reserved, half = 2 << 20, 75_054_940_160
	for _, c := range []struct {
		limit uint64
		isSet byte
		want  uint64
	}{{half, 1, half}, {half, 0, 0}, {0, 0, 0}, {1 << 40, 1, 0}} {
		data, l := objectOfH200(reserved, c.limit, c.isSet)
		if got := findLimit(data, l); got != c.want {
			t.Errorf("limit %d, set %d: found %d, want %d", c.limit, c.isSet, got, c.want)
		}
	}
}
