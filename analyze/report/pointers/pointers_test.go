package pointers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/pointers"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const (
	address = int64(0x7f0000000000)
	ms      = analyzetest.Ms
)

// pointerScript writes a recording of a program whose GPU work fails at 5 s.
type pointerScript struct{ *analyzetest.TestRecording }

func newScript(t testing.TB) *pointerScript {
	recording := analyzetest.NewTestRecording(t)
	recording.AddStack(1, "load", "main")
	recording.AddStack(2, "drop", "main")
	recording.AddStack(3, "run", "main")
	recording.AddCall(format.KindAPI, "cuInit", 0, analyzetest.Us)
	return &pointerScript{recording}
}

func (s *pointerScript) makes(at, ptr int64) *format.Row {
	return analyzetest.SetStackAndSite(s.AddAlloc(at*ms, analyzetest.Us, ptr, analyzetest.Mib), 1, "load (train.cc:10)")
}

func (s *pointerScript) frees(at, ptr int64) *format.Row {
	return analyzetest.SetStackAndSite(s.AddFree(at*ms, analyzetest.Us, ptr), 2, "drop (train.cc:20)")
}

// launches adds a launch on stream 7 with arguments.
func (s *pointerScript) launches(at int64, words ...uint64) *format.Row {
	r := s.AddLaunch(at*ms, analyzetest.Us, "void gemm<float>(float*, int)", 7, 0)
	if len(words) > 0 {
		s.AddKernelArgs(r, format.ArgumentsFromModule, words...)
	}
	return analyzetest.SetStackAndSite(r, 3, "run (train.cc:30)")
}

func (s *pointerScript) fails(result int32) {
	r := s.AddSync("cuStreamSynchronize", 4_000*ms, 1_000*ms, 7, 0)
	analyzetest.SetStackAndSite(r, 3, "run (train.cc:30)").Result = result
}

// pointerCases are programs; want has "state: parameter, allocation site, site of the free, confidence" of each
// suspect argument.
var pointerCases = map[string]struct {
	script func(*pointerScript)
	want   string
	says   string // part of a fact or of the evidence
}{
	"use after free": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.makes(1_100, address+analyzetest.Mib)
		s.frees(2_000, address).Tid = 43
		s.launches(3_000, uint64(address+analyzetest.Mib), 5, uint64(address+4096))
		s.fails(700)
	}, "freed: 2, load (train.cc:10), drop (train.cc:20), high", "load (train.cc:10) allocated 1.0 MiB at 1.00s with " +
		"cuMemAlloc_v2; drop (train.cc:20) freed it at 2.00s with cuMemFree_v2 (thread 43); run (train.cc:30) passed " +
		"0x7f0000001000 as parameter 2 of void gemm<float>(float*, int) at 3.00s (thread 42), 1.00s after the free, " +
		"4.0 KiB after the start of the block; confidence high"},
	"allocated again": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.frees(2_000, address)
		s.makes(2_500, address)
		s.launches(3_000, uint64(address))
		s.fails(700)
	}, "", "all pointers among the recorded arguments are in live memory"},
	"freed after a wait": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.launches(1_500, uint64(address))
		s.AddSync("cuStreamSynchronize", 1_600*ms, ms, 7, 0)
		s.frees(2_000, address)
		s.launches(3_000, 1)
		s.fails(719)
	}, "", ""},
	"freed by a call that waits": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.launches(1_500, uint64(address))
		s.frees(2_000, address)
		s.fails(700)
	}, "", ""},
	"freed in the order of another stream": {func(s *pointerScript) {
		s.makes(1_000, address).MemoryKind = format.MemoryAsync
		s.launches(1_500, uint64(address))
		r := s.frees(2_000, address)
		r.Name, r.MemoryKind, r.Stream = "cuMemFreeAsync", format.MemoryAsync, 8
		s.fails(700)
	}, "freed while the kernel may run: 0, load (train.cc:10), drop (train.cc:20), low", ""},
	"freed in the order of its stream": {func(s *pointerScript) {
		s.makes(1_000, address).MemoryKind = format.MemoryAsync
		s.launches(1_500, uint64(address))
		r := s.frees(2_000, address)
		r.Name, r.MemoryKind, r.Stream = "cuMemFreeAsync", format.MemoryAsync, 7
		s.fails(700)
	}, "", ""},
	"memory of a pool": {func(s *pointerScript) {
		s.makes(1_000, address).MemoryKind = format.MemoryAsync
		r := s.frees(2_000, address)
		r.Name, r.MemoryKind, r.Stream = "cuMemFreeAsync", format.MemoryAsync, 7
		s.launches(3_000, uint64(address))
		s.fails(700)
	}, "freed: 0, load (train.cc:10), drop (train.cc:20), medium", "memory of a pool can stay mapped after its free"},
	"no allocation": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.launches(3_000, uint64(address+16*analyzetest.Mib), 0x3ff0000000000000, 1024)
		s.fails(700)
	}, "no known memory: 0, , , medium", "no recorded allocation has this address"},
	"no allocation, in a recording that began late": {func(s *pointerScript) {
		s.Rows = s.Rows[:3] // without cuInit
		s.makes(1_000, address)
		s.frees(1_100, 0x7f0001000000)
		s.launches(3_000, uint64(address+16*analyzetest.Mib))
		s.fails(700)
	}, "no known memory: 0, , , low", "1 free of memory from before the recording succeeded"},
	"virtual memory": {func(s *pointerScript) {
		s.AddMemCreate(1_000*ms, 0x77, 2*analyzetest.Mib)
		analyzetest.SetStackAndSite(s.AddMemMap(1_100*ms, address, 2*analyzetest.Mib, 0x77), 1, "load (train.cc:10)")
		analyzetest.SetStackAndSite(s.AddMemUnmap(2_000*ms, address, 2*analyzetest.Mib), 2, "drop (train.cc:20)")
		s.launches(3_000, uint64(address+8))
		s.fails(700)
	}, "freed: 0, load (train.cc:10), drop (train.cc:20), high", ""},
	"arguments were not recorded": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.frees(2_000, address)
		s.launches(3_000)
		s.fails(700)
	}, "", "the arguments of launches were not recorded: use gpurec record --kernel-args -- COMMAND"},
	"the Xid names the block": {
		func(s *pointerScript) {
			s.makes(1_000, address)
			s.makes(1_100, address+64*analyzetest.Mib)
			s.frees(2_000, address)
			s.frees(2_100, address+64*analyzetest.Mib)
			s.launches(3_000, uint64(address), uint64(address+64*analyzetest.Mib))
			s.AddXid(4_500*ms, 0, 42, 31, format.XidFact{
				Text: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ " +
					"0x7f00_04000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
			})
			s.fails(700)
		}, "freed: 1, load (train.cc:10), drop (train.cc:20), high; freed: 0, load (train.cc:10), drop (train.cc:20), low",
		"the Xid names the address 0x7f0004000000",
	},
	"only the Xid is known": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.frees(2_000, address)
		s.launches(3_000, uint64(address))
		s.AddXid(4_500*ms, 0, 42, 31, format.XidFact{Text: "MMU Fault"})
	}, "freed: 0, load (train.cc:10), drop (train.cc:20), high", ""},
	"an error that no address causes": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.frees(2_000, address)
		s.launches(3_000, uint64(address))
		s.fails(214)
	}, "", "no free failed because of its pointer, and no work of the GPU failed"},
	"layout unknown": {func(s *pointerScript) {
		s.makes(1_000, address)
		s.frees(2_000, address)
		s.AddKernelArgs(s.launches(3_000), format.ArgumentsUnknown, uint64(address))
		s.fails(700)
	}, "freed: 0, load (train.cc:10), drop (train.cc:20), medium", "the layout of the parameters is unknown"},
}

func TestPointersAreJudged(t *testing.T) {
	testclass.Unit(t)
	for name, c := range pointerCases {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			c.script(s)
			r, err := pointers.Run(s.Timeline(), query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got, texts []string
			for _, f := range r.Facts {
				texts = append(texts, fmt.Sprint(f.Value))
			}
			for i := range r.Tables {
				table := &r.Tables[i]
				for k := range table.Rows {
					row := &table.Rows[k]
					texts = append(texts, row.Evidence)
					if table.Name != "arguments" {
						continue
					}
					text := func(key string) string {
						if v := table.Cell(row, key); v != nil {
							return fmt.Sprint(v)
						}
						return ""
					}
					got = append(got, fmt.Sprintf("%s: %s, %s, %s, %s", text("state"), text("parameter"),
						text("allocated_site"), text("freed_site"), text("confidence")))
				}
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
			if all := strings.Join(texts, "\n"); !strings.Contains(all, c.says) {
				t.Errorf("%q is not in %s", c.says, all)
			}
		})
	}
}

// TestCachedBlock: a tensor that was freed is in memory that is still mapped.
func TestCachedBlock(t *testing.T) {
	testclass.Unit(t)
	s := newScript(t)
	s.makes(900, address)
	for i, name := range []string{format.AllocatorAlloc, format.AllocatorFreeRequested, format.AllocatorFreeCompleted} {
		s.AddRow(format.Row{
			Kind:           format.KindAllocator,
			Name:           name,
			StartNs:        analyzetest.Epoch + (1_000+int64(i)*100)*ms,
			Pid:            42,
			Tid:            42,
			MemoryKind:     format.MemoryTorch,
			Ptr:            address,
			Bytes:          4096,
			StackID:        1,
			Site:           "tensor (train.py:3)",
			StackStatus:    format.StackComplete,
			AllocatedBytes: -1,
			ReservedBytes:  -1,
		})
	}
	s.launches(3_000, uint64(address+512))
	s.fails(700)
	r, err := pointers.Run(s.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for column, want := range map[string]string{"state": "freed to the cache", "confidence": "low", "bytes": "4096"} {
		if got := analyzetest.ColumnTexts(t, r, "arguments", column); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", column, got, want)
		}
	}
}

func TestPointersGolden(t *testing.T) {
	testclass.Unit(t)
	s := newScript(t)
	pointerCases["the Xid names the block"].script(s)
	r, err := pointers.Run(s.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "pointers", 160)
}
