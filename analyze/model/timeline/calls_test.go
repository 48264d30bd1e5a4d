package timeline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// replayCase is a recording with the result of its replay.
type replayCase struct {
	tape func(*analyzetest.TestRecording)
	want analyzetest.ReplayResult
}

// check compares the replay with the wanted result. It returns the rows of the recording.
func (c *replayCase) check(t *testing.T) []*format.Row {
	t.Helper()
	recording := analyzetest.NewTestRecording(t)
	c.tape(recording)
	if c.want.Live == nil {
		c.want.Live = map[string]int64{}
	}
	if got := analyzetest.CheckReplay(t, recording.Timeline()); fmt.Sprint(got) != fmt.Sprint(c.want) {
		t.Errorf("got  %+v\nwant %+v", got, c.want)
	}
	return recording.Rows
}

// live returns the live blocks of process 42 by their kind and address.
func live(keysAndBytes ...any) map[string]int64 {
	m := make(map[string]int64)
	for i := 0; i < len(keysAndBytes); i += 2 {
		m["42 "+keysAndBytes[i].(string)] = int64(keysAndBytes[i+1].(int))
	}
	return m
}

func TestReplayOfAllMemoryCalls(t *testing.T) {
	testclass.Unit(t)
	const h, va, page = 0x1010, 0x300000000, 2 << 20
	for name, c := range map[string]replayCase{
		"physical memory is live from its creation on": {
			func(recording *analyzetest.TestRecording) { recording.AddMemCreate(1, h, page) },
			analyzetest.ReplayResult{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"memory released while mapped is live until it is unmapped": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemRelease(9, h)
			},
			analyzetest.ReplayResult{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"after the release, the last unmap ends physical memory": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemRelease(9, h)
				recording.AddMemUnmap(15, va, page)
			},
			analyzetest.ReplayResult{Peak: page, Allocs: 1, Frees: 1},
		},
		"memory unmapped before its release is live until the release": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemUnmap(9, va, page)
				recording.AddMemCreate(20, h+1, page)
				recording.AddMemRelease(30, h)
			},
			analyzetest.ReplayResult{Live: live("physical 1011", page), Peak: 2 * page, Allocs: 2, Frees: 1},
		},
		"a handle mapped twice and unmapped once is still mapped": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemMap(9, va+page, page, h)
				recording.AddMemRelease(15, h)
				recording.AddMemUnmap(20, va, page)
			},
			analyzetest.ReplayResult{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"one unmap ends several mappings": {
			func(recording *analyzetest.TestRecording) {
				for i := range int64(3) {
					recording.AddMemCreate(1+10*i, h+i, page)
					recording.AddMemMap(5+10*i, va+i*page, page, h+i)
					recording.AddMemRelease(8+10*i, h+i)
				}
				recording.AddMemUnmap(50, va, 2*page)
			},
			analyzetest.ReplayResult{Live: live("physical 1012", page), Peak: 3 * page, Allocs: 3, Frees: 2},
		},
		"a retained handle needs two releases": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemoryCall(format.KindRetain, format.MemoryPhysical, 5, h, 0).SrcPtr = va
				recording.AddMemRelease(9, h)
			},
			analyzetest.ReplayResult{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"memory retained by its address after its release": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemRelease(9, h)
				recording.AddMemoryCall(format.KindRetain, format.MemoryPhysical, 12, h, 0).SrcPtr = va
				recording.AddMemUnmap(15, va, page)
				recording.AddMemCreate(20, h+1, page)
				recording.AddMemRelease(30, h)
			},
			analyzetest.ReplayResult{Live: live("physical 1011", page), Peak: 2 * page, Allocs: 2, Frees: 1},
		},
		"the driver reuses the number of a handle": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemRelease(5, h)
				recording.AddMemCreate(9, h, 3*page)
			},
			analyzetest.ReplayResult{Live: live("physical 1010", 3*page), Peak: 3 * page, Allocs: 2, Frees: 1},
		},
		"the driver reuses a handle's number before the release returns": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemRelease(5, h).DurNs = 50
				recording.AddMemCreate(9, h, 3*page).Tid = 43
			},
			analyzetest.ReplayResult{Live: live("physical 1010", 3*page), Peak: 3 * page, Allocs: 2, Frees: 1},
		},
		"a new handle with the number of a live mapping proves a lost release": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemCreate(9, h, 3*page)
				recording.AddMemUnmap(15, va, page) // of the old memory, whose release was lost
			},
			analyzetest.ReplayResult{Live: live("physical 1010", 3*page), Peak: page * 3, LostFrees: 1, Allocs: 2},
		},
		"a map over a mapping proves a lost unmap": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemRelease(8, h)
				recording.AddMemCreate(9, h+1, page)
				recording.AddMemMap(15, va-page, 3*page, h+1)
			},
			analyzetest.ReplayResult{Live: live("physical 1011", page), Peak: 2 * page, LostFrees: 1, Allocs: 2},
		},
		"unknown handles and mappings are from before the recording": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemRelease(1, h)
				recording.AddMemUnmap(5, va, page)
				recording.AddMemoryCall(format.KindRetain, format.MemoryPhysical, 9, h, 0)
				recording.AddMemMap(15, va, page, h)
				recording.AddMemUnmap(20, va, page) // the mapping at va was recorded, so this unmap matches
			},
			analyzetest.ReplayResult{Unmatched: 2},
		},
		"reserved addresses are not memory": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemoryCall(format.KindReserve, "", 1, va, 1<<30)
				recording.AddMemoryCall(format.KindUnreserve, "", 5, va, 1<<30)
			},
			analyzetest.ReplayResult{},
		},
		"borrowed memory is not live": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemoryCall(format.KindBorrow, format.MemoryPhysical, 1, h, 0)
				recording.AddMemMap(5, va, page, h)
				recording.AddMemRelease(9, h)
				recording.AddMemUnmap(15, va, page)
				recording.AddMemoryCall(format.KindBorrow, format.MemoryIPC, 20, va, 0)
				recording.AddMemoryCall(format.KindBorrow, format.MemoryExternal, 25, va, page)
				recording.AddMemoryCall(format.KindReturn, format.MemoryExternal, 30, va, 0)
				recording.AddMemoryCall(format.KindReturn, format.MemoryExternal, 35, va+1, 0)
			},
			analyzetest.ReplayResult{Borrowed: 3, Returned: 2},
		},
		"importing the process's own memory adds a reference": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemoryCall(format.KindBorrow, format.MemoryPhysical, 5, h, 0)
				recording.AddMemRelease(9, h)
			},
			analyzetest.ReplayResult{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"equal numbers of different objects": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, 1)
				recording.AddMemoryCall(format.KindAlloc, format.MemoryArray, 5, h, 2)
				recording.AddAlloc(9, 1, h, 4)
				recording.AddMemoryCall(format.KindFree, format.MemoryArray, 15, h, 0)
			},
			analyzetest.ReplayResult{Live: live("physical 1010", 1, "device 1010", 4), Peak: 7, Allocs: 3, Frees: 1},
		},
		"the end of a context frees its memory, but not physical memory": {
			func(recording *analyzetest.TestRecording) {
				for i, kind := range []string{
					format.MemoryDevice,
					format.MemoryAsync,
					format.MemoryManaged,
					format.MemoryHost,
					format.MemoryRegistered,
					format.MemoryArray,
					format.MemoryPhysical,
				} {
					analyzetest.SetContext(recording.AddMemoryCall(format.KindAlloc, kind, int64(10*i), int64(0x9000+i), 1), 0xc1, 0)
				}
				analyzetest.SetContext(recording.AddAlloc(80, 1, 0xa000, 1), 0xc2, 0)
				// memory allocated in an unknown context
				analyzetest.SetContext(recording.AddAlloc(84, 1, 0xa001, 1), 0, 0)
				recording.AddAPICall("cuCtxDestroy_v2", 90, 0xc1, -1)
			},
			analyzetest.ReplayResult{Live: live("physical 9006", 1, "device a000", 1, "device a001", 1), Left: 6, Peak: 9, Allocs: 9},
		},
		"a failed cuCtxDestroy frees nothing": {
			func(recording *analyzetest.TestRecording) {
				analyzetest.SetContext(recording.AddAlloc(1, 1, h, 1), 0xc1, 0)
				recording.AddAPICall("cuCtxDestroy_v2", 9, 0xc1, -1).Result = 201
			},
			analyzetest.ReplayResult{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"memory counts as freed if the process allocates after destroying the context": {
			func(recording *analyzetest.TestRecording) {
				analyzetest.SetContext(recording.AddAlloc(1, 1, h, 1), 0xc1, 0)
				recording.AddAPICall("cuCtxDestroy_v2", 9, 0xc1, -1)
				analyzetest.SetContext(recording.AddAlloc(20, 1, h, 5), 0xc1, 0)
			},
			analyzetest.ReplayResult{Live: live("device 1010", 5), Peak: 5, Allocs: 2},
		},
		"a reset frees what is in the primary context": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAPICall("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRetain", 5, 0xd1, 1)
				analyzetest.SetContext(recording.AddAlloc(10, 1, 0x9000, 1), 0xd0, 0)
				analyzetest.SetContext(recording.AddAlloc(15, 1, 0x9001, 1), 0xd1, 1)
				analyzetest.SetContext(recording.AddAlloc(20, 1, 0x9002, 1), 0xc1, 1)
				recording.AddAPICall("cuDevicePrimaryCtxReset_v2", 25, 0, 1)
			},
			analyzetest.ReplayResult{Live: live("device 9000", 1, "device 9002", 1), Left: 1, Peak: 3, Allocs: 3},
		},
		"a reset of a context that was retained before the recording": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAPICall("cuCtxCreate_v4", 1, 0xc1, 1)
				analyzetest.SetContext(recording.AddAlloc(10, 1, 0x9000, 1), 0xd0, 0)
				analyzetest.SetContext(recording.AddAlloc(15, 1, 0x9001, 1), 0xd1, 1)
				analyzetest.SetContext(recording.AddAlloc(20, 1, 0x9002, 1), 0xc1, 1)
				analyzetest.SetContext(recording.AddAlloc(22, 1, 0x9003, 1), 0, 1)
				recording.AddAPICall("cuDevicePrimaryCtxReset_v2", 25, 0, 1)
			},
			analyzetest.ReplayResult{Live: live("device 9000", 1, "device 9002", 1, "device 9003", 1), Left: 1, Peak: 4, Allocs: 4},
		},
		"the last release ends a primary context": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAPICall("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRetain", 5, 0xd0, 0)
				analyzetest.SetContext(recording.AddAlloc(10, 1, h, 1), 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
				analyzetest.SetContext(recording.AddAlloc(20, 1, h+1, 1), 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRelease_v2", 25, 0, 0)
			},
			analyzetest.ReplayResult{Left: 2, Peak: 2, Allocs: 2},
		},
		"a release is not the last if the context was in use before": {
			func(recording *analyzetest.TestRecording) {
				analyzetest.SetContext(recording.AddAlloc(1, 1, h, 1), 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRetain", 5, 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
			},
			analyzetest.ReplayResult{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"a release is not the last if the context is used afterwards": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAPICall("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
				analyzetest.SetContext(recording.AddAlloc(5, 1, h, 1), 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
				analyzetest.SetContext(recording.AddCall(format.KindMemset, "cuMemsetD8_v2", 20, 1), 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRelease_v2", 25, 0, 0)
			},
			analyzetest.ReplayResult{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"a release without retain is one of those before the recording": {
			func(recording *analyzetest.TestRecording) {
				analyzetest.SetContext(recording.AddAlloc(5, 1, h, 1), 0xd0, 0)
				recording.AddAPICall("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
			},
			analyzetest.ReplayResult{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"captured calls have no effect": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemoryCall(format.KindAlloc, format.MemoryAsync, 1, h, 1).Flags = format.FlagCaptured
				recording.AddMemoryCall(format.KindAlloc, format.MemoryAsync, 5, h+1, 1)
				recording.AddMemoryCall(format.KindFree, format.MemoryAsync, 9, h+1, 0).Flags = format.FlagCaptured
			},
			analyzetest.ReplayResult{Live: live("async 1011", 1), Peak: 1, Allocs: 1},
		},
		"the end of a process frees physical memory, too": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemCreate(1, h, page)
				recording.AddMemMap(5, va, page, h)
				recording.AddExit(42, 50)
				recording.AddMemCreate(60, h, page)
				recording.AddMemUnmap(70, va, page)
			},
			analyzetest.ReplayResult{Live: live("physical 1010", page), Left: 1, Peak: page, Allocs: 2, Unmatched: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows := c.check(t)
			if got := oracleOutcome(rows); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("the oracle returns %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// TestReplayOfCallsThatTheOracleLacks has calls that free what memory calls did not allocate: the oracle does
// not know them.
func TestReplayOfCallsThatTheOracleLacks(t *testing.T) {
	testclass.Unit(t)
	const h = 0x1010
	for name, c := range map[string]replayCase{
		"memory of graphs and of other APIs may be freed": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAPICall("cuGraphAddMemAllocNode", 10, h, 0).MemoryKind = format.MemoryGraph
				recording.AddAPICall("cuExternalMemoryGetMappedBuffer", 15, h+1, 0)
				for i := range int64(2) {
					recording.AddFree(20+10*i, 1, h) // once for each launch of the graph
					recording.AddFree(25+10*i, 1, h+1)
				}
			},
			analyzetest.ReplayResult{Unmatched: 1},
		},
		"arrays of other APIs may be freed, as arrays and once": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAPICall("cuExternalMemoryGetMappedMipmappedArray", 10, h, 0)
				recording.AddFree(20, 1, h)
				recording.AddMemoryCall(format.KindFree, format.MemoryArray, 30, h, 0)
				recording.AddMemoryCall(format.KindFree, format.MemoryArray, 40, h, 0)
			},
			analyzetest.ReplayResult{Unmatched: 2},
		},
		"nodes of any type: one of them allocates": {
			func(recording *analyzetest.TestRecording) {
				node := recording.AddAPICall("cuGraphAddNode_v2", 10, h, 0)
				node.MemoryKind, node.Message, node.Bytes = format.MemoryGraph, "mem_alloc", 64
				recording.AddAPICall("cuGraphAddNode", 15, h+1, 0).Message = "kernel"
				// a node that frees memory
				recording.AddAPICall("cuGraphAddNode", 18, h+2, 0).MemoryKind = format.MemoryGraph
				for i := range int64(3) {
					recording.AddFree(20+10*i, 1, h+i)
				}
			},
			analyzetest.ReplayResult{Unmatched: 2},
		},
		"memory imported from a pool ends with one free": {
			func(recording *analyzetest.TestRecording) {
				recording.AddMemoryCall(format.KindBorrow, format.MemoryAsync, 1, h, 0)
				recording.AddMemoryCall(format.KindBorrow, format.MemoryAsync, 5, h, 0)
				recording.AddFree(10, 1, h)
				recording.AddFree(20, 1, h)
			},
			analyzetest.ReplayResult{Unmatched: 1, Borrowed: 2, Returned: 2},
		},
		"the last detach ends a context that was attached to": {
			func(recording *analyzetest.TestRecording) {
				recording.AddAPICall("cuCtxCreate", 1, 0xc1, 0)
				analyzetest.SetContext(recording.AddAlloc(5, 1, h, 1), 0xc1, 0)
				recording.AddAPICall("cuCtxAttach", 8, 0xc1, 0)
				recording.AddAPICall("cuCtxDetach", 10, 0xc1, 0)
				recording.AddFree(15, 1, h)
				analyzetest.SetContext(recording.AddAlloc(20, 1, h, 1), 0xc1, 0)
				recording.AddAPICall("cuCtxDetach", 30, 0xc1, 0)
				analyzetest.SetContext(recording.AddAlloc(40, 1, h+1, 1), 0xc2, 0)
			},
			analyzetest.ReplayResult{Live: live("device 1011", 1), Peak: 1, Allocs: 3, Frees: 1},
		},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func TestMappingsEqualAReference(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(3, 3))
	var m livemem.Mappings
	var naive []livemem.Mapping
	for round := range 20_000 {
		from := r.Int64N(5000)
		to := from + 1 + r.Int64N(20)
		var want, got []livemem.Mapping
		naive = slices.DeleteFunc(naive, func(o livemem.Mapping) bool {
			if o.Start < to && o.End > from {
				want = append(want, o)
				return true
			}
			return false
		})
		m.RemoveOverlapping(from, to, func(o livemem.Mapping) { got = append(got, o) })
		slices.SortFunc(want, func(a, b livemem.Mapping) int { return int(a.Start - b.Start) })
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: cut %d to %d: %v, want %v", round, from, to, got, want)
		}
		if r.IntN(8) > 0 || round < 10_000 {
			mapping := livemem.Mapping{Start: from, End: to, Number: int64(round)}
			naive = append(naive, mapping)
			m.InsertMapping(mapping)
		}
	}
	for _, p := range m.Pieces {
		if len(p) == 0 || len(p) > livemem.MaxMappingsPerPiece {
			t.Errorf("a piece of %d mappings", len(p))
		}
	}
}

// TestReplayHasAnOpForEveryMemoryCall checks that every memory call that gpurec records has a
// meaning for the replay.
func TestReplayHasAnOpForEveryMemoryCall(t *testing.T) {
	testclass.Unit(t)
	for i := range bpf.CallTable {
		c := &bpf.CallTable[i]
		if format.ClassOf(c.Kind) != format.ClassMemory || c.Kind == format.KindReserve ||
			c.Kind == format.KindUnreserve {
			continue
		}
		if _, ok := livemem.OpsByKind[c.Kind]; !ok {
			t.Errorf("%s: kind %s", c.Name, c.Kind)
		}
		known := []string{
			format.MemoryDevice,
			format.MemoryAsync,
			format.MemoryManaged,
			format.MemoryHost,
			format.MemoryRegistered,
			format.MemoryArray,
			format.MemoryPhysical,
			format.MemoryIPC,
			format.MemoryExternal,
		}
		if c.Memory != "" && !slices.Contains(known, c.Memory) {
			t.Errorf("%s: memory kind %s", c.Name, c.Memory)
		}
	}
	for name := range timeline.APIKindsByFunction {
		if !slices.ContainsFunc(bpf.CallTable, func(c bpf.ProbedFunction) bool { return c.Name == name }) {
			t.Errorf("%s is not recorded", name)
		}
	}
}

func TestDeviceOfAContext(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddRow(format.Row{Kind: format.KindDevice, Device: 0})
	recording.AddRow(format.Row{Kind: format.KindDevice, Device: 1})
	recording.AddAPICall("cuCtxCreate_v4", 1, 0xc1, 1)
	analyzetest.SetContext(recording.AddCall(format.KindLaunch, "cuLaunchKernel", 5, 1), 0xc2, 0)
	analyzetest.SetContext(recording.AddCall(format.KindLaunch, "cuLaunchKernel", 9, 1), 0xc3, 0)
	analyzetest.SetContext(recording.AddCall(format.KindLaunch, "cuLaunchKernel", 12, 1), 0xc3, 1)
	for i, context := range []int64{0xc1, 0xc2, 0xc3, 0} {
		analyzetest.SetContext(recording.AddAlloc(int64(20+10*i), 1, int64(0x9000+i), 1), context, -1)
	}
	// in another process's context
	analyzetest.SetContext(recording.AddAlloc(70, 1, 0x9010, 1), 0xc2, -1).Pid = 77
	recording.AddMemCreate(80, 0x1010, 1).Value = 1
	s, err := state.ReadMemory(recording.Timeline(), 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[int64]int32)
	for _, a := range s.Live {
		got[a.Ptr] = a.Device
	}
	want := map[int64]int32{0x9000: 1, 0x9001: 0, 0x9002: -1, 0x9003: -1, 0x9010: -1, 0x1010: 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("devices %v, want %v", got, want)
	}
}
