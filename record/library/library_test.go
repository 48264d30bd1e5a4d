//go:build linux

package library

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/process"
)

func TestProbeOffset(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		text     []byte
		offset   int
		emulated bool
	}{
		"push %rbp":                        {[]byte{0x55, 0x48, 0x89, 0xe5}, 0, true},
		"endbr64; push %rbp":               {[]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 4, true},
		"cmpl $1,x(%rip); je (libcuda)":    {[]byte{0x81, 0x3d, 1, 2, 3, 0, 1, 0, 0, 0, 0x74, 0x10}, 10, true},
		"nop; ret":                         {[]byte{0x90, 0xc3}, 0, true},
		"xor %eax,%eax; jmp":               {[]byte{0x31, 0xc0, 0xeb, 0x00}, 2, true},
		"mov %rdi,%rax; push":              {[]byte{0x48, 0x89, 0xf8, 0x55}, 3, true},
		"xor %edi,%edi; push: an argument": {[]byte{0x31, 0xff, 0x55}, 0, false},
		"sub $8,%rsp: the stack pointer":   {[]byte{0x48, 0x83, 0xec, 0x08, 0x55}, 0, false},
		"mov %eax,(%rdi): memory":          {[]byte{0x89, 0x07, 0x55}, 0, false},
		"ret":                              {[]byte{0xc3}, 0, false},
		"nothing":                          {nil, 0, false},
	} {
		offset, emulated := chooseProbeOffset(elf.EM_X86_64, c.text)
		if offset != c.offset || emulated != c.emulated {
			t.Errorf("%s: offset %d emulated %v, want %d %v", name, offset, emulated, c.offset, c.emulated)
		}
	}
	if offset, emulated := chooseProbeOffset(elf.EM_AARCH64, []byte{0x55}); offset != 0 || emulated {
		t.Error("arm64 code must be probed at its first instruction")
	}
}

// FuzzLibrary chooses probes in a damaged library.
func FuzzLibrary(f *testing.F) {
	library, err := os.ReadFile(filepath.Join("../../build/simcuda", "libcuda.so.1"))
	if err != nil {
		f.Skip("simcuda is not built: make simcuda")
	}
	// The input is a change to a valid library, so inputs are small.
	f.Add(uint32(0), []byte{}, uint32(0), "libcuda.so.1")
	f.Add(uint32(18), []byte{0xb7, 0}, uint32(0), "libcuda.so.1")
	f.Add(uint32(0x28), []byte{0xff, 0xff}, uint32(100), "libc10_cuda.so")
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32, name string) {
		data := append([]byte(nil), library...)
		copy(data[int(at)%len(data):], patch)
		path := filepath.Join(t.TempDir(), "lib.so")
		if err := os.WriteFile(path, data[:len(data)-int(cut)%len(data)], 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := process.OpenRegular(path)
		if err != nil {
			t.Fatal(err)
		}
		cache := NewCache()
		defer cache.Close()
		lib, err := cache.addFile(file, name)
		if err == nil && len(lib.Probes) > bpf.NumDriverCookies()+len(bpf.AllocatorFunctions) {
			t.Errorf("%d probes", len(lib.Probes))
		}
	})
}

func TestRecordTraceIsRecognized(t *testing.T) {
	testclass.Unit(t)
	const method = "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::record_trace"
	for _, test := range []struct {
		parameters string
		row        int
		known      bool
	}{
		{"(c10::CachingDeviceAllocator::TraceEntry::Action, unsigned long, unsigned long, CUstream_st*, signed " +
			"char, std::pair<unsigned long long, unsigned long long>, std::shared_ptr<c10::GatheredContext>)", 0, true},
		{"(c10::cuda::CUDACachingAllocator::TraceEntry::Action, unsigned long, unsigned long, CUstream_st*, signed " +
			"char, std::shared_ptr<c10::GatheredContext>)", 1, true},
		{"(c10::cuda::CUDACachingAllocator::TraceEntry::Action, long, unsigned long, CUstream_st*, int, " +
			"std::shared_ptr<c10::GatheredContext>)", 1, true},
		{"(c10::cuda::CUDACachingAllocator::TraceEntry::Action, long, unsigned long, CUstream_st*, " +
			"std::shared_ptr<c10::GatheredContext>)", 0, false},
		{"(c10::CachingDeviceAllocator::TraceEntry::Action, unsigned long, unsigned long, CUstream_st*, signed " +
			"char, int, std::shared_ptr<c10::GatheredContext>)", 0, false},
		{"", 0, false},
	} {
		if row, known := findRecordTraceRow(method + test.parameters); row != test.row || known != test.known {
			t.Errorf("%s: row %d, %v", test.parameters, row, known)
		}
	}
	if name := fmt.Sprintf(
		"_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator12record_traceE%s",
		"NS_",
	); !recordTraceSymbol.MatchString(
		name,
	) {
		t.Errorf("%s is not found", name)
	}
}

func TestChooseSource(t *testing.T) {
	testclass.Unit(t)
	good, bad := &Library{Kind: KindAllocator}, &Library{Kind: KindAllocator, Missing: "no trace"}
	reports, silent := &Library{Kind: KindReports}, &Library{Kind: KindReports, Missing: "no reports"}
	for _, test := range []struct {
		mode               AllocatorMode
		allocator, reports *Library
		source             *Library
		why                string
	}{
		{AllocatorModeAuto, good, reports, good, ""},
		{AllocatorModeAuto, good, nil, good, ""},
		{AllocatorModeAuto, bad, reports, reports, "no trace"},
		{AllocatorModeAuto, bad, silent, nil, "no trace; no reports"},
		{AllocatorModeAuto, bad, nil, nil, "no trace"},
		{AllocatorModeLight, good, reports, reports, ""},
		{AllocatorModeLight, good, silent, nil, "no reports"},
		{AllocatorModeLight, good, nil, nil, "libc10.so is not mapped"},
	} {
		if source, why := test.mode.ChooseSource(
			test.allocator,
			test.reports,
		); source != test.source ||
			why != test.why {
			t.Errorf("%+v: %+v, %q", test, source, why)
		}
		driver := &Library{Kind: KindDriver}
		libs := []*Library{driver, test.allocator}
		if test.reports != nil {
			libs = append(libs, test.reports)
		}
		want := []*Library{driver}
		if test.source != nil {
			want = append(want, test.source)
		}
		if got := test.mode.SelectLibraries(libs); !slices.Equal(got, want) {
			t.Errorf("%+v: %d libraries are probed", test, len(got))
		}
		if got := AllocatorModeOff.SelectLibraries(libs); !slices.Equal(got, libs[:1]) {
			t.Errorf("off: %d libraries are probed", len(got))
		}
	}
	// Without libc10_cuda.so, a program does not use PyTorch's CUDA allocator.
	if got := AllocatorModeLight.SelectLibraries([]*Library{reports}); len(got) != 0 {
		t.Error("libc10.so without libc10_cuda.so is probed")
	}
}

func TestIsDriverMapping(t *testing.T) {
	testclass.Unit(t)
	const at = "7f0000000000-7f0000001000 "
	for line, want := range map[string]bool{
		at + "r-xp 00000000 08:01 42   /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\n": true,
		at + "r-xp 00000000 08:01 42   /usr/lib/libcuda.so.1 (deleted)\n":                true,
		at + "r--p 00000000 08:01 42   /usr/lib/libcuda.so.1\n":                          false,
		at + "r-xp 00000000 08:01 42   /usr/lib/libcudart.so.13\n":                       false,
		at + "r-xp 00000000 08:01 42   /tmp/libcuda.so.1/libm.so\n":                      false,
		"/libcuda.so.1\n": false,
	} {
		if got := isDriverMapping([]byte(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
