package analyzetest

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// AllMemoryKindsRecording returns a recording of a program that uses all kinds of memory except
// cuMemAlloc.
func AllMemoryKindsRecording(t *testing.T) *TestRecording {
	const va, page = int64(0x300000000), int64(2) << 20
	recording := NewTestRecording(t)
	recording.AddRow(
		format.Row{
			Kind:    format.KindProcess,
			Name:    "server",
			Pid:     42,
			StartNs: Epoch,
			Device:  -1,
			Message: `{"exe":"/app/server"}`,
		},
	)
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: Epoch})
	recording.AddStack(1, "Segment::map", "Arena::grow", "main", "_start")
	recording.AddStack(2, "Staging::Staging", "main", "_start")
	recording.AddAPICall("cuDevicePrimaryCtxRetain", 1*Ms, 0xd0, 0)
	recording.AddAPICall("cuDeviceGetDefaultMemPool", 2*Ms, 0xf00, 0)
	for i := range int64(100) {
		begin := Second + i*500*Ms
		SetContext(
			SetStackAndSite(recording.AddMemCreate(begin, 0x1010+i, page), 1, "Arena::grow (arena.cc:20)"),
			0xd0,
			0,
		)
		recording.AddMemMap(begin+Ms, va+i*page, page, 0x1010+i)
		recording.AddMemRelease(begin+2*Ms, 0x1010+i)
		a := SetContext(
			recording.AddMemoryCall(format.KindAlloc, format.MemoryAsync, begin+3*Ms, 0x7f0000000000, 3*page),
			0xd0,
			0,
		)
		a.Name, a.Stream = "cuMemAllocAsync", 7
		recording.AddMemoryCall(format.KindFree, format.MemoryAsync, begin+4*Ms, 0x7f0000000000, 0).Stream = 7
		for k := range int64(4) {
			l := SetContext(recording.AddCall(format.KindLaunch, "cuLaunchKernel", begin+5*Ms+k*Us, 500), 0xd0, 0)
			l.Kernel = fmt.Sprintf("at::native::vectorized_elementwise_kernel<4, "+
				"at::native::AddFunctor<c10::complex<%s> >, std::array<char*, 3ul> >", []string{"float", "double"}[k%2])
			if i == 0 {
				l.Flags = format.FlagCaptured
			}
		}
		g := SetContext(recording.AddCall(format.KindLaunch, "cuGraphLaunch_ptsz", begin+6*Ms, 900), 0xd0, 0)
		g.Ptr, g.Value = 0x6000, 4
		info := SetContext(recording.AddAPICall("cuMemGetInfo_v2", begin+7*Ms, 0, 0), 0xd0, 0)
		info.Bytes, info.Value = 100<<30-i*page, float64(140<<30)
		pool := SetContext(recording.AddAPICall("cuMemPoolGetAttribute", begin+8*Ms, 0xf00, 0), 0xd0, 0)
		pool.Bytes, pool.Value = 64*Mib, timeline.PoolAttributeReserved
	}
	SetContext(
		SetStackAndSite(
			recording.AddMemoryCall(format.KindAlloc, format.MemoryRegistered, 30*Second, 0x550000000000, 32*Mib),
			2,
			"Staging::Staging (staging.cc:5)",
		),
		0xd0,
		0,
	)
	SetContext(
		SetStackAndSite(
			recording.AddMemoryCall(format.KindAlloc, format.MemoryArray, 31*Second, 0x551000000000, 4*Mib),
			2,
			"Staging::Staging "+
				"(staging.cc:5)",
		),
		0xd0,
		0,
	)
	recording.AddMemoryCall(format.KindBorrow, format.MemoryIPC, 32*Second, 0x7e0000000000, 0)
	recording.AddMemoryCall(format.KindBorrow, format.MemoryExternal, 33*Second, 0x8000, 16*Mib)
	recording.AddMemoryCall(format.KindReturn, format.MemoryExternal, 34*Second, 0x8000, 0)
	node := recording.AddAPICall("cuGraphAddMemAllocNode", 35*Second, 0x7d0000000000, 0)
	node.MemoryKind, node.Bytes = format.MemoryGraph, 8*Mib
	return recording
}
