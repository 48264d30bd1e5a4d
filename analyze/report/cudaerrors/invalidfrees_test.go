package cudaerrors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// freeScript writes a recording of a program with an invalid free.
type freeScript struct{ *analyzetest.TestRecording }

func newFreeScript(t testing.TB) *freeScript {
	recording := analyzetest.NewTestRecording(t)
	recording.AddStack(1, "load", "main")
	recording.AddStack(2, "drop", "main")
	recording.AddStack(3, "cleanup", "main")
	recording.AddCall(format.KindAPI, "cuInit", 0, analyzetest.Us)
	return &freeScript{recording}
}

// makes adds an allocation at 1 s, by the first of names if there are any.
func (s *freeScript) makes(ptr, bytes int64, name ...string) *format.Row {
	r := analyzetest.SetStackAndSite(
		s.AddAlloc(analyzetest.Second, analyzetest.Us, ptr, bytes),
		1,
		"load (train.cc:10)",
	)
	if len(name) > 0 {
		r.Name, r.MemoryKind = name[0], name[1]
	}
	return r
}

// frees adds a free that succeeds at 2 s.
func (s *freeScript) frees(ptr int64, name ...string) *format.Row {
	return s.named(
		analyzetest.SetStackAndSite(s.AddFree(2*analyzetest.Second, analyzetest.Us, ptr), 2, "drop (train.cc:20)"),
		name,
	)
}

// fails adds a free that fails at 3 s.
func (s *freeScript) fails(ptr int64, name ...string) *format.Row {
	r := s.named(
		analyzetest.SetStackAndSite(s.AddFree(3*analyzetest.Second, analyzetest.Us, ptr), 3, "cleanup (train.cc:30)"),
		name,
	)
	r.Result = fault.ResultInvalidValue
	return r
}

// named sets the function, the kind of memory and the call kind of a call.
func (s *freeScript) named(r *format.Row, name []string) *format.Row {
	if len(name) > 0 {
		r.Name, r.MemoryKind = name[0], name[1]
	}
	if len(name) > 2 {
		r.Kind = name[2]
	}
	return r
}

// virtual adds memory mapped at 0x10000, with handle 0x77.
func (s *freeScript) virtual() {
	s.named(
		analyzetest.SetStackAndSite(
			s.AddAlloc(analyzetest.Second, analyzetest.Us, 0x10000, 2*analyzetest.Mib),
			1,
			"load (train.cc:10)",
		),
		[]string{"cuMemAddressReserve", "", format.KindReserve},
	)
	s.makes(0x77, 2*analyzetest.Mib, "cuMemCreate", format.MemoryPhysical)
	m := s.named(
		s.AddAlloc(analyzetest.Second+analyzetest.Ms, analyzetest.Us, 0x10000, 2*analyzetest.Mib),
		[]string{"cuMemMap", "", format.KindMap},
	)
	m.SrcPtr = 0x77
}

const freeAddress = int64(0x7f0000000000)

// invalidFreeCases are programs with one failed free at 3 s. The verdict "" means that the pointer
// is not the cause.
var invalidFreeCases = map[string]struct {
	script  func(*freeScript)
	verdict string
	sites   string // allocation site and site of the first free
	says    string
}{
	"double free": {
		func(s *freeScript) {
			s.makes(freeAddress, analyzetest.Mib)
			s.frees(freeAddress).Tid = 43
			s.fails(freeAddress)
		}, "double free", "load (train.cc:10), drop (train.cc:20)",
		"load (train.cc:10) allocated 1.0 MiB at 1.00s with cuMemAlloc_v2 (thread 42); drop (train.cc:20) freed it " +
			"at 2.00s with cuMemFree_v2 (thread 43); " +
			"cleanup (train.cc:30) called cuMemFree_v2 at 3.00s (thread 42), 1.00s later; confidence high",
	},
	"memory from before the recording, freed twice": {func(s *freeScript) {
		s.frees(freeAddress)
		s.fails(freeAddress)
	}, "double free", "<nil>, drop (train.cc:20)", "the recording has no allocation of the block; drop (train.cc:20) freed it"},
	"freed twice, allocated again, freed": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.fails(freeAddress)
		analyzetest.SetStackAndSite(
			s.AddAlloc(4*analyzetest.Second, analyzetest.Us, freeAddress, analyzetest.Mib),
			1,
			"load (train.cc:10)",
		)
		s.AddFree(5*analyzetest.Second, analyzetest.Us, freeAddress)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"freed twice, with another free of the address before": {func(s *freeScript) {
		s.AddFree(500*analyzetest.Ms, analyzetest.Us, freeAddress)
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.fails(freeAddress)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", "freed it at 2.00s"},
	"two threads free it at once": {func(s *freeScript) { // the successful call starts later
		s.makes(freeAddress, analyzetest.Mib)
		r := s.frees(freeAddress)
		r.StartNs, r.DurNs = analyzetest.Epoch+3*analyzetest.Second+analyzetest.Us, analyzetest.Us
		r = s.fails(freeAddress)
		r.DurNs, r.Tid = 5*analyzetest.Us, 43
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"handed out again while the call fails": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.fails(freeAddress).DurNs = 10 * analyzetest.Us
		s.AddAlloc(3*analyzetest.Second+2*analyzetest.Us, analyzetest.Us, freeAddress, analyzetest.Mib).Tid = 43
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"a failing call inside the failing call": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.fails(freeAddress).DurNs = 10 * analyzetest.Us
		r := s.fails(freeAddress)
		r.StartNs += analyzetest.Us
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"pinned memory": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib, "cuMemHostAlloc", format.MemoryHost)
		s.frees(freeAddress, "cuMemFreeHost", format.MemoryHost)
		s.fails(freeAddress, "cuMemFreeHost", format.MemoryHost)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", "allocated 1.0 MiB at 1.00s with cuMemHostAlloc"},
	"registered memory": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib, "cuMemHostRegister_v2", format.MemoryRegistered)
		s.frees(freeAddress, "cuMemHostUnregister", format.MemoryRegistered)
		s.fails(freeAddress, "cuMemHostUnregister", format.MemoryRegistered).Result = fault.ResultHostNotRegistered
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"memory of a pool": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib, "cuMemAllocAsync", format.MemoryAsync)
		s.frees(freeAddress, "cuMemFreeAsync", format.MemoryAsync)
		s.fails(freeAddress)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", "with cuMemFreeAsync"},
	"an array": {func(s *freeScript) {
		s.makes(0x55, analyzetest.Mib, "cuArrayCreate_v2", format.MemoryArray)
		s.frees(0x55, "cuArrayDestroy", format.MemoryArray)
		s.fails(0x55, "cuArrayDestroy", format.MemoryArray).Result = fault.ResultInvalidHandle
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"a handle": {func(s *freeScript) {
		s.makes(0x77, 2*analyzetest.Mib, "cuMemCreate", format.MemoryPhysical)
		s.frees(0x77, "cuMemRelease", format.MemoryPhysical)
		s.fails(0x77, "cuMemRelease", format.MemoryPhysical)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"a handle that is still mapped": {func(s *freeScript) {
		s.virtual()
		s.frees(0x77, "cuMemRelease", format.MemoryPhysical)
		s.fails(0x77, "cuMemRelease", format.MemoryPhysical)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", ""},
	"a mapping": {func(s *freeScript) {
		s.virtual()
		s.frees(0x10000, "cuMemUnmap", "", format.KindUnmap).Bytes = 2 * analyzetest.Mib
		s.fails(0x10000, "cuMemUnmap", "", format.KindUnmap)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", "allocated 2.0 MiB at 1.00s with cuMemCreate"},
	"reserved addresses": {func(s *freeScript) {
		s.named(s.makes(freeAddress, 2*analyzetest.Mib), []string{"cuMemAddressReserve", "", format.KindReserve})
		s.frees(freeAddress, "cuMemAddressFree", "", format.KindUnreserve)
		s.fails(freeAddress, "cuMemAddressFree", "", format.KindUnreserve)
	}, "double free", "load (train.cc:10), drop (train.cc:20)", "with cuMemAddressReserve"},
	"memory of another process": {func(s *freeScript) {
		s.named(s.makes(freeAddress, 0), []string{"cuIpcOpenMemHandle_v2", format.MemoryIPC, format.KindBorrow})
		s.frees(freeAddress, "cuIpcCloseMemHandle", format.MemoryIPC, format.KindReturn)
		s.fails(freeAddress, "cuIpcCloseMemHandle", format.MemoryIPC, format.KindReturn)
	}, "double free", "<nil>, drop (train.cc:20)", ""},

	"inside a block": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.fails(freeAddress + 512)
	}, "inside a block", "load (train.cc:10), <nil>", "with an address 512 B after the start of the block; the block stays " +
		"allocated"},
	"behind a block": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.fails(freeAddress + analyzetest.Mib)
	}, "unknown pointer", "<nil>, <nil>", ""},
	"inside a block that was freed": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.fails(freeAddress + 512)
	}, "unknown pointer", "<nil>, <nil>", ""},

	"cuMemFree of pinned memory": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib, "cuMemHostAlloc", format.MemoryHost)
		s.fails(freeAddress)
	}, "wrong function", "load (train.cc:10), <nil>", "the memory stays allocated until it is freed with cuMemFreeHost"},
	"cuMemFreeHost of device memory": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.fails(freeAddress, "cuMemFreeHost", format.MemoryHost)
	}, "wrong function", "load (train.cc:10), <nil>", "the memory stays allocated until it is freed with cuMemFree"},
	"cuMemFreeHost of registered memory": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib, "cuMemHostRegister_v2", format.MemoryRegistered)
		s.fails(freeAddress, "cuMemFreeHost", format.MemoryHost)
	}, "wrong function", "load (train.cc:10), <nil>", "the memory stays allocated until it is freed with cuMemHostUnregister"},
	"cuMemFree of mapped memory": {func(s *freeScript) {
		s.virtual()
		s.fails(0x10000)
	}, "wrong function", "load (train.cc:10), <nil>", "the memory stays allocated until it is freed with " +
		"cuMemUnmap and cuMemRelease"},
	"cuMemFree of a handle": {func(s *freeScript) {
		s.makes(0x77, 2*analyzetest.Mib, "cuMemCreate", format.MemoryPhysical)
		s.fails(0x77)
	}, "wrong function", "load (train.cc:10), <nil>", "the memory stays allocated until it is freed with cuMemRelease"},
	"cuMemFree of an array": {func(s *freeScript) {
		s.makes(0x77, 2*analyzetest.Mib, "cuMipmappedArrayCreate", format.MemoryArray)
		s.fails(0x77)
	}, "wrong function", "load (train.cc:10), <nil>", "the memory stays allocated until it is freed with " +
		"cuMipmappedArrayDestroy"},
	"cuMemFree of another process's memory": {func(s *freeScript) {
		s.named(s.makes(freeAddress, 0), []string{"cuIpcOpenMemHandle_v2", format.MemoryIPC, format.KindBorrow})
		s.fails(freeAddress)
	}, "wrong function", "<nil>, <nil>", "the memory stays allocated until it is freed with cuIpcCloseMemHandle"},

	"after its context": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib).Context = 0xc0
		r := s.AddCall(format.KindAPI, "cuCtxDestroy_v2", 2*analyzetest.Second, analyzetest.Us)
		r.Ptr, r.Context = 0xc0, 0xc0
		s.fails(freeAddress)
	}, "freed with its context", "load (train.cc:10), <nil>", "the end of its context at 2.00s freed it"},
	"after its context, without one": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib).Context = 0xc0
		s.AddCall(format.KindAPI, "cuCtxDestroy_v2", 2*analyzetest.Second, analyzetest.Us).Ptr = 0xc0
		s.fails(freeAddress).Result = fault.ResultContextDestroyed
	}, "freed with its context", "load (train.cc:10), <nil>", ""},

	"a wild pointer": {
		func(s *freeScript) { s.fails(freeAddress) }, "unknown pointer", "<nil>, <nil>",
		"no recorded call of the process returned this address: the memory belongs to another process, " +
			"or CUDA did not allocate it",
	},
	"an old pointer, or a wild one": {func(s *freeScript) {
		s.RemoveRows(func(r *format.Row) bool { return r.Name == "cuInit" })
		s.fails(freeAddress)
	}, "unknown pointer", "<nil>, <nil>", "the memory was allocated before the recording, or never; confidence low"},
	"another process's pointer": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib).Pid = 43
		s.fails(freeAddress)
	}, "unknown pointer", "<nil>, <nil>", ""},
	"the number of a process that ended": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.AddExit(42, 2500*analyzetest.Ms)
		s.fails(freeAddress)
	}, "unknown pointer", "<nil>, <nil>", ""},

	"live memory that the driver does not free": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.fails(freeAddress)
	}, "", "", ""},
	"tried again with success": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.fails(freeAddress).StartNs -= 2 * analyzetest.Second / 2
		s.frees(freeAddress).StartNs += analyzetest.Second / 2
	}, "", "", ""},
	"null":               {func(s *freeScript) { s.fails(0) }, "", "", ""},
	"memory from before": {func(s *freeScript) { s.frees(freeAddress) }, "", "", ""},
	"a broken context": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.fails(freeAddress).Result = 700
	}, "", "", ""},
	"no context": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.frees(freeAddress)
		s.fails(freeAddress).Result = fault.ResultInvalidContext
	}, "", "", ""},
	"the driver shuts down": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.fails(freeAddress + 512).Result = calls.ResultDeinitialized
	}, "", "", ""},
	"cuMemFreeAsync of device memory": {func(s *freeScript) {
		s.makes(freeAddress, analyzetest.Mib)
		s.fails(freeAddress, "cuMemFreeAsync", format.MemoryAsync)
	}, "", "", ""},
	"mapped addresses": {func(s *freeScript) {
		s.virtual()
		s.fails(0x10000, "cuMemAddressFree", "", format.KindUnreserve)
	}, "", "", ""},
	"memory of a graph": {func(s *freeScript) {
		r := s.makes(freeAddress, analyzetest.Mib, "cuMemAllocAsync", format.MemoryAsync)
		r.Flags = format.FlagCaptured
		s.fails(freeAddress)
	}, "", "", ""},
}

func TestInvalidFrees(t *testing.T) {
	testclass.Unit(t)
	for name, c := range invalidFreeCases {
		s := newFreeScript(t)
		c.script(s)
		r, err := cudaerrors.Run(s.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := analyzetest.ColumnTexts(t, r, "invalid_frees", "verdict")
		if c.verdict == "" {
			if len(got) > 0 {
				t.Errorf("%s: %v", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0] != c.verdict ||
			analyzetest.ColumnTexts(t, r, "invalid_frees", "site")[0] != "cleanup (train.cc:30)" {
			t.Errorf("%s: %v, want %s", name, got, c.verdict)
			continue
		}
		if sites := analyzetest.ColumnTexts(t, r, "invalid_frees", "allocated_site")[0] + ", " + analyzetest.ColumnTexts(t, r, "invalid_frees", "freed_site")[0]; sites != c.sites {
			t.Errorf("%s: sites %s, want %s", name, sites, c.sites)
		}
		if n, _, _ := r.FindNumber("invalid_frees"); n != 1 {
			t.Errorf("%s: %v invalid frees", name, n)
		}
		var evidence string
		for _, table := range r.Tables {
			if table.Name == "invalid_frees" {
				evidence = table.Rows[0].Evidence
			}
		}
		if !strings.Contains(evidence, c.says) {
			t.Errorf("%s: %s\nwant %s", name, evidence, c.says)
		}
	}
}

func TestInvalidFreesAreGroupedBySites(t *testing.T) {
	testclass.Unit(t)
	s := newFreeScript(t)
	for i := range int64(10) {
		for _, r := range []*format.Row{
			s.makes(freeAddress, analyzetest.Mib),
			s.frees(freeAddress),
			s.fails(freeAddress),
		} {
			r.StartNs += i * 4 * analyzetest.Second
		}
	}
	wild := s.fails(0x1234)
	wild.Site = "other (train.cc:40)"
	r, err := cudaerrors.Run(s.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(
		analyzetest.ColumnTexts(t, r, "invalid_frees", "calls"),
		analyzetest.ColumnTexts(t, r, "invalid_frees", "last_ns"),
	); got != fmt.Sprintf(
		"[10 1] [%d %d]",
		39*analyzetest.Second,
		3*analyzetest.Second,
	) {
		t.Errorf("groups %s", got)
	}
	for name, want := range map[string]float64{"invalid_frees": 11, "double_frees": 10, "failed_calls": 11} {
		if got, _, _ := r.FindNumber(name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// TestFailedFreesAreBounded checks that the report states the number of omitted failed frees.
func TestFailedFreesAreBounded(t *testing.T) {
	testclass.Unit(t)
	s := newFreeScript(t)
	s.makes(freeAddress, analyzetest.Mib)
	s.frees(freeAddress)
	for i := range int64(fault.MaxFailedFrees + 5) {
		s.fails(freeAddress).StartNs += i * analyzetest.Us
	}
	r, err := cudaerrors.Run(s.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := r.FindNumber("double_frees"); n != fault.MaxFailedFrees {
		t.Errorf("%v double frees", n)
	}
	if got := fmt.Sprint(r.Facts[0].Value); got != "5 more failed frees have no verdict, because there are too many" {
		t.Errorf("result %q", got)
	}
}

func TestConfidenceOfInvalidFrees(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		change       func(*freeScript)
		level, cause string
	}{
		"complete": {func(*freeScript) {}, report.ConfidenceHigh, ""},
		"calls lost": {func(s *freeScript) {
			s.AddRow(format.Row{Kind: format.KindLost, Name: report.LostMemoryClass, StartNs: analyzetest.Epoch, Value: 3})
		}, report.ConfidenceLow, "3 lost memory calls"},
	} {
		s := newFreeScript(t)
		invalidFreeCases["double free"].script(s)
		c.change(s)
		r, err := cudaerrors.Run(s.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, why := analyzetest.ColumnTexts(t, r, "invalid_frees", "confidence")[0], analyzetest.ColumnTexts(t, r, "invalid_frees", "confidence_reasons")[0]; got != c.level ||
			!strings.Contains(why, c.cause) {
			t.Errorf("%s: %s %s", name, got, why)
		}
	}
}

func TestInvalidFreesReport(t *testing.T) {
	testclass.Unit(t)
	s := newFreeScript(t)
	for i := range int64(3) {
		s.makes(freeAddress+i*2*analyzetest.Mib, analyzetest.Mib)
		s.frees(freeAddress + i*2*analyzetest.Mib).Tid = 43
		s.fails(freeAddress + i*2*analyzetest.Mib)
	}
	s.makes(freeAddress+20*analyzetest.Mib, analyzetest.Mib)
	s.fails(freeAddress+20*analyzetest.Mib, "cuMemFreeHost", format.MemoryHost)
	s.fails(freeAddress + 20*analyzetest.Mib + 4096)
	s.makes(freeAddress+30*analyzetest.Mib, analyzetest.Mib).Context = 0xc0
	s.AddCall(format.KindAPI, "cuCtxDestroy_v2", 2*analyzetest.Second, analyzetest.Us).Ptr = 0xc0
	s.fails(freeAddress + 30*analyzetest.Mib)
	s.fails(0x1234)
	r, err := cudaerrors.Run(s.Timeline(), query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "invalidfrees", 130)
}
