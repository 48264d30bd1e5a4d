package timeline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

func TestReplayOfAllMemoryCalls(t *testing.T) {
	const h, va, page = 0x1010, 0x300000000, 2 << 20
	live := func(keysAndBytes ...any) map[string]int64 {
		m := make(map[string]int64)
		for i := 0; i < len(keysAndBytes); i += 2 {
			m["42 "+keysAndBytes[i].(string)] = int64(keysAndBytes[i+1].(int))
		}
		return m
	}
	for name, c := range map[string]struct {
		tape func(*analyzetest.Tape)
		want analyzetest.Outcome
	}{
		"physical memory is live from its creation on": {
			func(tp *analyzetest.Tape) { tp.Create(1, h, page) },
			analyzetest.Outcome{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"memory released while mapped is live until it is unmapped": {
			func(tp *analyzetest.Tape) { tp.Create(1, h, page); tp.MapAt(5, va, page, h); tp.Release(9, h) },
			analyzetest.Outcome{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"after the release, the last unmap ends physical memory": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.MapAt(5, va, page, h)
				tp.Release(9, h)
				tp.Unmap(15, va, page)
			},
			analyzetest.Outcome{Peak: page, Allocs: 1, Frees: 1},
		},
		"memory unmapped before its release is live until the release": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.MapAt(5, va, page, h)
				tp.Unmap(9, va, page)
				tp.Create(20, h+1, page)
				tp.Release(30, h)
			},
			analyzetest.Outcome{Live: live("physical 1011", page), Peak: 2 * page, Allocs: 2, Frees: 1},
		},
		"a handle mapped twice and unmapped once is still mapped": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.MapAt(5, va, page, h)
				tp.MapAt(9, va+page, page, h)
				tp.Release(15, h)
				tp.Unmap(20, va, page)
			},
			analyzetest.Outcome{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"mapping unmap ends several mappings": {
			func(tp *analyzetest.Tape) {
				for i := range int64(3) {
					tp.Create(1+10*i, h+i, page)
					tp.MapAt(5+10*i, va+i*page, page, h+i)
					tp.Release(8+10*i, h+i)
				}
				tp.Unmap(50, va, 2*page)
			},
			analyzetest.Outcome{Live: live("physical 1012", page), Peak: 3 * page, Allocs: 3, Frees: 2},
		},
		"a retained handle needs two releases": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.Memory(format.KindRetain, format.MemoryPhysical, 5, h, 0).SrcPtr = va
				tp.Release(9, h)
			},
			analyzetest.Outcome{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"memory retained by its address after its release": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.MapAt(5, va, page, h)
				tp.Release(9, h)
				tp.Memory(format.KindRetain, format.MemoryPhysical, 12, h, 0).SrcPtr = va
				tp.Unmap(15, va, page)
				tp.Create(20, h+1, page)
				tp.Release(30, h)
			},
			analyzetest.Outcome{Live: live("physical 1011", page), Peak: 2 * page, Allocs: 2, Frees: 1},
		},
		"the driver reuses the number of a handle": {
			func(tp *analyzetest.Tape) { tp.Create(1, h, page); tp.Release(5, h); tp.Create(9, h, 3*page) },
			analyzetest.Outcome{Live: live("physical 1010", 3*page), Peak: 3 * page, Allocs: 2, Frees: 1},
		},
		"the driver reuses a handle's number before the release returns": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.Release(5, h).DurNs = 50
				tp.Create(9, h, 3*page).Tid = 43
			},
			analyzetest.Outcome{Live: live("physical 1010", 3*page), Peak: 3 * page, Allocs: 2, Frees: 1},
		},
		"a new handle with the number of a live mapping proves a lost release": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.MapAt(5, va, page, h)
				tp.Create(9, h, 3*page)
				tp.Unmap(15, va, page) // of the old memory, whose release was lost
			},
			analyzetest.Outcome{Live: live("physical 1010", 3*page), Peak: page * 3, LostFrees: 1, Allocs: 2},
		},
		"a map over a mapping proves a lost unmap": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.MapAt(5, va, page, h)
				tp.Release(8, h)
				tp.Create(9, h+1, page)
				tp.MapAt(15, va-page, 3*page, h+1)
			},
			analyzetest.Outcome{Live: live("physical 1011", page), Peak: 2 * page, LostFrees: 1, Allocs: 2},
		},
		"unknown handles and mappings are from before the recording": {
			func(tp *analyzetest.Tape) {
				tp.Release(1, h)
				tp.Unmap(5, va, page)
				tp.Memory(format.KindRetain, format.MemoryPhysical, 9, h, 0)
				tp.MapAt(15, va, page, h)
				tp.Unmap(20, va, page) // the mapping at va was recorded, so this unmap matches
			},
			analyzetest.Outcome{Unmatched: 2},
		},
		"reserved addresses are not memory": {
			func(tp *analyzetest.Tape) {
				tp.Memory(format.KindReserve, "", 1, va, 1<<30)
				tp.Memory(format.KindUnreserve, "", 5, va, 1<<30)
			},
			analyzetest.Outcome{},
		},
		"borrowed memory is not live": {
			func(tp *analyzetest.Tape) {
				tp.Memory(format.KindBorrow, format.MemoryPhysical, 1, h, 0)
				tp.MapAt(5, va, page, h)
				tp.Release(9, h)
				tp.Unmap(15, va, page)
				tp.Memory(format.KindBorrow, format.MemoryIPC, 20, va, 0)
				tp.Memory(format.KindBorrow, format.MemoryExternal, 25, va, page)
				tp.Memory(format.KindReturn, format.MemoryExternal, 30, va, 0)
				tp.Memory(format.KindReturn, format.MemoryExternal, 35, va+1, 0)
			},
			analyzetest.Outcome{Borrowed: 3, Returned: 2},
		},
		"importing the process's own memory adds a reference": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.Memory(format.KindBorrow, format.MemoryPhysical, 5, h, 0)
				tp.Release(9, h)
			},
			analyzetest.Outcome{Live: live("physical 1010", page), Peak: page, Allocs: 1},
		},
		"equal numbers of different objects": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, 1)
				tp.Memory(format.KindAlloc, format.MemoryArray, 5, h, 2)
				tp.Alloc(9, 1, h, 4)
				tp.Memory(format.KindFree, format.MemoryArray, 15, h, 0)
			},
			analyzetest.Outcome{Live: live("physical 1010", 1, "device 1010", 4), Peak: 7, Allocs: 3, Frees: 1},
		},
		"the end of a context frees its memory, but not physical memory": {
			func(tp *analyzetest.Tape) {
				for i, kind := range []string{
					format.MemoryDevice,
					format.MemoryAsync,
					format.MemoryManaged,
					format.MemoryHost,
					format.MemoryRegistered,
					format.MemoryArray,
					format.MemoryPhysical,
				} {
					analyzetest.InContext(tp.Memory(format.KindAlloc, kind, int64(10*i), int64(0x9000+i), 1), 0xc1, 0)
				}
				analyzetest.InContext(tp.Alloc(80, 1, 0xa000, 1), 0xc2, 0)
				// memory allocated in an unknown context
				analyzetest.InContext(tp.Alloc(84, 1, 0xa001, 1), 0, 0)
				tp.API("cuCtxDestroy_v2", 90, 0xc1, -1)
			},
			analyzetest.Outcome{Live: live("physical 9006", 1, "device a000", 1, "device a001", 1), Left: 6, Peak: 9, Allocs: 9},
		},
		"a failed cuCtxDestroy frees nothing": {
			func(tp *analyzetest.Tape) {
				analyzetest.InContext(tp.Alloc(1, 1, h, 1), 0xc1, 0)
				tp.API("cuCtxDestroy_v2", 9, 0xc1, -1).Result = 201
			},
			analyzetest.Outcome{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"memory counts as freed if the process allocates after destroying the context": {
			func(tp *analyzetest.Tape) {
				analyzetest.InContext(tp.Alloc(1, 1, h, 1), 0xc1, 0)
				tp.API("cuCtxDestroy_v2", 9, 0xc1, -1)
				analyzetest.InContext(tp.Alloc(20, 1, h, 5), 0xc1, 0)
			},
			analyzetest.Outcome{Live: live("device 1010", 5), Peak: 5, Allocs: 2},
		},
		"a reset frees what is in the primary context": {
			func(tp *analyzetest.Tape) {
				tp.API("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRetain", 5, 0xd1, 1)
				analyzetest.InContext(tp.Alloc(10, 1, 0x9000, 1), 0xd0, 0)
				analyzetest.InContext(tp.Alloc(15, 1, 0x9001, 1), 0xd1, 1)
				analyzetest.InContext(tp.Alloc(20, 1, 0x9002, 1), 0xc1, 1)
				tp.API("cuDevicePrimaryCtxReset_v2", 25, 0, 1)
			},
			analyzetest.Outcome{Live: live("device 9000", 1, "device 9002", 1), Left: 1, Peak: 3, Allocs: 3},
		},
		"a reset of a context that was retained before the recording": {
			func(tp *analyzetest.Tape) {
				tp.API("cuCtxCreate_v4", 1, 0xc1, 1)
				analyzetest.InContext(tp.Alloc(10, 1, 0x9000, 1), 0xd0, 0)
				analyzetest.InContext(tp.Alloc(15, 1, 0x9001, 1), 0xd1, 1)
				analyzetest.InContext(tp.Alloc(20, 1, 0x9002, 1), 0xc1, 1)
				analyzetest.InContext(tp.Alloc(22, 1, 0x9003, 1), 0, 1)
				tp.API("cuDevicePrimaryCtxReset_v2", 25, 0, 1)
			},
			analyzetest.Outcome{Live: live("device 9000", 1, "device 9002", 1, "device 9003", 1), Left: 1, Peak: 4, Allocs: 4},
		},
		"the last release ends a primary context": {
			func(tp *analyzetest.Tape) {
				tp.API("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRetain", 5, 0xd0, 0)
				analyzetest.InContext(tp.Alloc(10, 1, h, 1), 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
				analyzetest.InContext(tp.Alloc(20, 1, h+1, 1), 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRelease_v2", 25, 0, 0)
			},
			analyzetest.Outcome{Left: 2, Peak: 2, Allocs: 2},
		},
		"a release is not the last if the context was in use before": {
			func(tp *analyzetest.Tape) {
				analyzetest.InContext(tp.Alloc(1, 1, h, 1), 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRetain", 5, 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
			},
			analyzetest.Outcome{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"a release is not the last if the context is used afterwards": {
			func(tp *analyzetest.Tape) {
				tp.API("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
				analyzetest.InContext(tp.Alloc(5, 1, h, 1), 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
				analyzetest.InContext(tp.Call(format.KindMemset, "cuMemsetD8_v2", 20, 1), 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRelease_v2", 25, 0, 0)
			},
			analyzetest.Outcome{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"a release without retain is mapping of those before the recording": {
			func(tp *analyzetest.Tape) {
				analyzetest.InContext(tp.Alloc(5, 1, h, 1), 0xd0, 0)
				tp.API("cuDevicePrimaryCtxRelease_v2", 15, 0, 0)
			},
			analyzetest.Outcome{Live: live("device 1010", 1), Peak: 1, Allocs: 1},
		},
		"captured calls have no effect": {
			func(tp *analyzetest.Tape) {
				tp.Memory(format.KindAlloc, format.MemoryAsync, 1, h, 1).Flags = format.FlagCaptured
				tp.Memory(format.KindAlloc, format.MemoryAsync, 5, h+1, 1)
				tp.Memory(format.KindFree, format.MemoryAsync, 9, h+1, 0).Flags = format.FlagCaptured
			},
			analyzetest.Outcome{Live: live("async 1011", 1), Peak: 1, Allocs: 1},
		},
		"memory of graphs and of other APIs may be freed": {
			func(tp *analyzetest.Tape) {
				tp.API("cuGraphAddMemAllocNode", 10, h, 0).MemoryKind = format.MemoryGraph
				tp.API("cuExternalMemoryGetMappedBuffer", 15, h+1, 0)
				for i := range int64(2) {
					tp.Free(20+10*i, 1, h) // once for each launch of the graph
					tp.Free(25+10*i, 1, h+1)
				}
			},
			analyzetest.Outcome{Unmatched: 1},
		},
		"arrays of other APIs may be freed, as arrays and once": {
			func(tp *analyzetest.Tape) {
				tp.API("cuExternalMemoryGetMappedMipmappedArray", 10, h, 0)
				tp.Free(20, 1, h)
				tp.Memory(format.KindFree, format.MemoryArray, 30, h, 0)
				tp.Memory(format.KindFree, format.MemoryArray, 40, h, 0)
			},
			analyzetest.Outcome{Unmatched: 2},
		},
		"nodes of any type: mapping of them allocates, like memory of other APIs": {
			func(tp *analyzetest.Tape) {
				node := tp.API("cuGraphAddNode_v2", 10, h, 0)
				node.MemoryKind, node.Message, node.Bytes = format.MemoryGraph, "mem_alloc", 64
				tp.API("cuGraphAddNode", 15, h+1, 0).Message = "kernel"
				// a node that frees memory
				tp.API("cuGraphAddNode", 18, h+2, 0).MemoryKind = format.MemoryGraph
				for i := range int64(3) {
					tp.Free(20+10*i, 1, h+i)
				}
			},
			analyzetest.Outcome{Unmatched: 2},
		},
		"memory imported from a pool ends with mapping free, like that of other APIs": {
			func(tp *analyzetest.Tape) {
				tp.Memory(format.KindBorrow, format.MemoryAsync, 1, h, 0)
				tp.Memory(format.KindBorrow, format.MemoryAsync, 5, h, 0)
				tp.Free(10, 1, h)
				tp.Free(20, 1, h)
			},
			analyzetest.Outcome{Unmatched: 1, Borrowed: 2, Returned: 2},
		},
		"the last detach ends a context that was attached to, though not for all other APIs": {
			func(tp *analyzetest.Tape) {
				tp.API("cuCtxCreate", 1, 0xc1, 0)
				analyzetest.InContext(tp.Alloc(5, 1, h, 1), 0xc1, 0)
				tp.API("cuCtxAttach", 8, 0xc1, 0)
				tp.API("cuCtxDetach", 10, 0xc1, 0)
				tp.Free(15, 1, h)
				analyzetest.InContext(tp.Alloc(20, 1, h, 1), 0xc1, 0)
				tp.API("cuCtxDetach", 30, 0xc1, 0)
				analyzetest.InContext(tp.Alloc(40, 1, h+1, 1), 0xc2, 0)
			},
			analyzetest.Outcome{Live: live("device 1011", 1), Peak: 1, Allocs: 3, Frees: 1},
		},
		"the end of a process frees physical memory, too": {
			func(tp *analyzetest.Tape) {
				tp.Create(1, h, page)
				tp.MapAt(5, va, page, h)
				tp.Exit(42, 50)
				tp.Create(60, h, page)
				tp.Unmap(70, va, page)
			},
			analyzetest.Outcome{Live: live("physical 1010", page), Left: 1, Peak: page, Allocs: 2, Unmatched: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tp := analyzetest.NewTape(t)
			c.tape(tp)
			if c.want.Live == nil {
				c.want.Live = map[string]int64{}
			}
			if got := analyzetest.ReplayOutcome(t, tp.Timeline()); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if got := oracleOutcome(
				tp.Rows,
			); fmt.Sprint(got) != fmt.Sprint(c.want) &&
				!strings.Contains(name, "other APIs") {
				t.Errorf("the oracle returns %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestMappingsEqualAReference(t *testing.T) {
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
		m.Cut(from, to, func(o livemem.Mapping) { got = append(got, o) })
		slices.SortFunc(want, func(a, b livemem.Mapping) int { return int(a.Start - b.Start) })
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: cut %d to %d: %v, want %v", round, from, to, got, want)
		}
		if r.IntN(8) > 0 || round < 10_000 {
			mapping := livemem.Mapping{Start: from, End: to, Number: int64(round)}
			naive = append(naive, mapping)
			m.Insert(mapping)
		}
	}
	for _, p := range m.Pieces {
		if len(p) == 0 || len(p) > livemem.MaxPiece {
			t.Errorf("a piece of %d mappings", len(p))
		}
	}
}

// TestReplayHasAnOpForEveryMemoryCall checks that every memory call that gpurec records has a
// meaning for the replay.
func TestReplayHasAnOpForEveryMemoryCall(t *testing.T) {
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
	for name := range timeline.APINames {
		if !slices.ContainsFunc(bpf.CallTable, func(c bpf.ProbedFunction) bool { return c.Name == name }) {
			t.Errorf("%s is not recorded", name)
		}
	}
}

func TestDeviceOfAContext(t *testing.T) {
	tp := analyzetest.NewTape(t)
	tp.Add(format.Row{Kind: format.KindDevice, Device: 0})
	tp.Add(format.Row{Kind: format.KindDevice, Device: 1})
	tp.API("cuCtxCreate_v4", 1, 0xc1, 1)
	analyzetest.InContext(tp.Call(format.KindLaunch, "cuLaunchKernel", 5, 1), 0xc2, 0)
	analyzetest.InContext(tp.Call(format.KindLaunch, "cuLaunchKernel", 9, 1), 0xc3, 0)
	analyzetest.InContext(tp.Call(format.KindLaunch, "cuLaunchKernel", 12, 1), 0xc3, 1)
	for i, context := range []int64{0xc1, 0xc2, 0xc3, 0} {
		analyzetest.InContext(tp.Alloc(int64(20+10*i), 1, int64(0x9000+i), 1), context, -1)
	}
	// in another process's context
	analyzetest.InContext(tp.Alloc(70, 1, 0x9010, 1), 0xc2, -1).Pid = 77
	tp.Create(80, 0x1010, 1).Value = 1
	s, err := state.ReadMemory(tp.Timeline(), 0)
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
