//go:build linux

package probe

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
)

// FuzzCodeMap makes code maps of arbitrary mappings.
func FuzzCodeMap(f *testing.F) {
	f.Add("00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/a\n7f0000000000-7f0000001000 r-xp 0 00:00 0\n")
	f.Add("0-ffffffffffffffff r-xp 0 08:02 1 /a\n")
	f.Fuzz(func(t *testing.T, text string) {
		if maps, err := symbolize.ReadMaps(strings.NewReader(text)); err == nil {
			makeCodeMap(maps)
		}
	})
}

// TestEveryCallHasAClass fails for a row of the call table whose name has no prefix in
// classByPrefix.
func TestEveryCallHasAClass(t *testing.T) {
	testclass.Unit(t)
	for i := range bpf.CallTable {
		class, ok := recordClassOf(&bpf.CallTable[i])
		if !ok || class != "" && !slices.Contains(format.RecordClasses, class) {
			t.Errorf("%s is of class %q: add a prefix of its name to classOfPrefix", bpf.CallTable[i].Name, class)
		}
	}
	for i := range bpf.AllocatorFunctions {
		if class, _ := recordClassOf(&bpf.AllocatorFunctions[i]); class != format.RecordAllocator {
			t.Errorf("%s is of class %q", bpf.AllocatorFunctions[i].Name, class)
		}
	}
}

// TestIsNeeded checks, for each class of --record, functions that are probed and that are not.
func TestIsNeeded(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		class   string
		with    []string
		without []string
	}{
		{
			format.RecordMemory,
			[]string{
				"cuMemAlloc_v2",
				"cuMemFreeAsync",
				"cuCtxDestroy_v2",
				"cuDevicePrimaryCtxReset_v2",
				"cuGraphAddMemAllocNode",
				"cuStreamBeginCapture_v2",
				"cuEventRecord",
				"cuMemGetInfo_v2",
				"cuCtxSetCurrent",
				"cuMemHostAlloc",
				"cuArrayCreate_v2",
			},
			[]string{"cuLaunchKernel", "cuMemcpyAsync", "cuMemsetD8_v2", "cuStreamSynchronize", "cuModuleLoadData", "cuGraphLaunch", "cuStreamCreate", "cuEventQuery", "cuKernelGetFunction"},
		},
		{
			format.RecordLaunch,
			[]string{"cuLaunchKernel", "cuGraphLaunch", "cuModuleGetFunction", "cuKernelGetFunction", "cuModuleUnload", "cuStreamEndCapture", "cuLaunchHostFunc"},
			[]string{"cuMemAlloc_v2", "cuMemcpyAsync", "cuModuleLoadData", "cuStreamSynchronize", "cuEventCreate"},
		},
		{format.RecordCopy, []string{"cuMemcpyAsync", "cuMemsetD8_v2", "cuStreamWaitEvent"}, []string{"cuLaunchKernel", "cuMemAlloc_v2"}},
		{format.RecordSync, []string{"cuStreamSynchronize", "cuEventQuery", "cuCtxCreate_v2"}, []string{"cuEventRecord", "cuLaunchKernel"}},
		{format.RecordModule, []string{"cuModuleLoadData", "cuLinkCreate_v2", "cuFuncGetName"}, []string{"cuLaunchKernel", "cuStreamCreate"}},
		{format.RecordStream, []string{"cuStreamCreate", "cuEventRecord"}, []string{"cuStreamSynchronize", "cuMemAlloc_v2"}},
		{format.RecordGraph, []string{"cuGraphInstantiateWithFlags", "cuStreamBeginCapture_v2", "cuGraphAddMemAllocNode"}, []string{"cuGraphLaunch", "cuMemAlloc_v2"}},
	} {
		for i := range bpf.CallTable {
			call := &bpf.CallTable[i]
			need := IsFunctionNeeded(call, []string{c.class})
			if slices.Contains(c.with, call.Name) && !need || slices.Contains(c.without, call.Name) && need {
				t.Errorf("--record %s: %s is needed: %v", c.class, call.Name, need)
			}
			if !IsFunctionNeeded(call, nil) || !IsFunctionNeeded(call, format.RecordClasses) {
				t.Errorf("%s is not recorded by default", call.Name)
			}
		}
	}
}
