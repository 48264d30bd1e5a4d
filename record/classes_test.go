//go:build linux

package record

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// TestEveryCallHasAClass fails for a new row of the table whose name begins like none before.
func TestEveryCallHasAClass(t *testing.T) {
	for i := range bpf.Calls {
		class, ok := classOf(&bpf.Calls[i])
		if !ok || class != "" && !slices.Contains(format.RecordClasses, class) {
			t.Errorf("%s is of class %q: add the beginning of its name to classOfPrefix", bpf.Calls[i].Name, class)
		}
	}
	for i := range bpf.Allocators {
		if class, _ := classOf(&bpf.Allocators[i]); class != format.RecordAllocator {
			t.Errorf("%s is of class %q", bpf.Allocators[i].Name, class)
		}
	}
}

func TestWhatAClassNeeds(t *testing.T) {
	for _, c := range []struct {
		class   string
		with    []string
		without []string
	}{
		{format.RecordMemory, []string{"cuMemAlloc_v2", "cuMemFreeAsync", "cuCtxDestroy_v2", "cuDevicePrimaryCtxReset_v2", "cuGraphAddMemAllocNode",
			"cuStreamBeginCapture_v2", "cuEventRecord", "cuMemGetInfo_v2", "cuCtxSetCurrent", "cuMemHostAlloc", "cuArrayCreate_v2"},
			[]string{"cuLaunchKernel", "cuMemcpyAsync", "cuMemsetD8_v2", "cuStreamSynchronize", "cuModuleLoadData", "cuGraphLaunch", "cuStreamCreate", "cuEventQuery", "cuKernelGetFunction"}},
		{format.RecordLaunch, []string{"cuLaunchKernel", "cuGraphLaunch", "cuModuleGetFunction", "cuKernelGetFunction", "cuModuleUnload", "cuStreamEndCapture", "cuLaunchHostFunc"},
			[]string{"cuMemAlloc_v2", "cuMemcpyAsync", "cuModuleLoadData", "cuStreamSynchronize", "cuEventCreate"}},
		{format.RecordCopy, []string{"cuMemcpyAsync", "cuMemsetD8_v2", "cuStreamWaitEvent"}, []string{"cuLaunchKernel", "cuMemAlloc_v2"}},
		{format.RecordSync, []string{"cuStreamSynchronize", "cuEventQuery", "cuCtxCreate_v2"}, []string{"cuEventRecord", "cuLaunchKernel"}},
		{format.RecordModule, []string{"cuModuleLoadData", "cuLinkCreate_v2", "cuFuncGetName"}, []string{"cuLaunchKernel", "cuStreamCreate"}},
		{format.RecordStream, []string{"cuStreamCreate", "cuEventRecord"}, []string{"cuStreamSynchronize", "cuMemAlloc_v2"}},
		{format.RecordGraph, []string{"cuGraphInstantiateWithFlags", "cuStreamBeginCapture_v2", "cuGraphAddMemAllocNode"}, []string{"cuGraphLaunch", "cuMemAlloc_v2"}},
	} {
		for i := range bpf.Calls {
			call := &bpf.Calls[i]
			need := isNeeded(call, []string{c.class})
			if slices.Contains(c.with, call.Name) && !need || slices.Contains(c.without, call.Name) && need {
				t.Errorf("--record %s: %s is needed: %v", c.class, call.Name, need)
			}
			if !isNeeded(call, nil) || !isNeeded(call, format.RecordClasses) {
				t.Errorf("%s is not recorded by default", call.Name)
			}
		}
	}
}

// TestClassesEqualTheLedger records the same program with some classes of calls, and compares
// with those calls of the ledger that such a recording has.
func TestClassesEqualTheLedger(t *testing.T) {
	needMulti(t)
	for _, classes := range [][]string{{format.RecordMemory}, {format.RecordLaunch}, {format.RecordCopy, format.RecordSync}, {format.RecordStream, format.RecordModule, format.RecordGraph}} {
		t.Run(strings.Join(classes, ","), func(t *testing.T) {
			p := startSim(t, nil, "storm", "--calls", "20000", "--threads", "2", "--seed", "11", "--wait")
			p.expect("ready")
			opt := testOptions(t, p.pid())
			opt.Classes, opt.Allocator, opt.Stacks = classes, AllocatorOff, StacksOff
			s := start(t, opt)
			var since int64
			result := runWhile(t, s, func() {
				since = monotonic()
				p.step()
				p.expect("done")
			})
			p.finish()
			ledger := readLedger(t, p.ledger, since)
			for tid := range ledger {
				ledger[tid] = slices.DeleteFunc(ledger[tid], func(c ledgerCall) bool { return !isNamedIn(classes, c.name) })
			}
			total := result.Meta.Totals()
			if n := compare(t, result.Output, ledger); n < 100 || int64(n) != total.Recorded || total.Lost != 0 {
				t.Errorf("%d calls compared, %+v", n, total)
			}
			if !slices.Equal(result.Meta.Classes, classes) {
				t.Errorf("the metadata has classes %v", result.Meta.Classes)
			}
			notes := factRows(t, result.Output, format.KindNote)
			if !slices.ContainsFunc(notes, func(r format.Row) bool {
				return r.Name == "classes" && strings.Contains(r.Message, strings.Join(classes, ", "))
			}) {
				t.Errorf("no note says what is missing: %v", notes)
			}
		})
	}
}

// isNamedIn reports whether a recording of these classes has the call of an exported name.
func isNamedIn(classes []string, name string) bool {
	for cookie := range bpf.NumCookies() {
		if call, exported, _, _ := bpf.ByCookie(uint16(cookie)); exported == name {
			return isNeeded(call, classes)
		}
	}
	return false
}
