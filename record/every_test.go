//go:build linux

package record

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
)

// TestEveryFunctionOfTheTable records a program that calls every function of simcuda with distinct
// arguments, and compares the recording with the ledger, column by column. It fails if a row of the
// call table was not called: a new row needs a function in simcuda and a call in every.c.
func TestEveryFunctionOfTheTable(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(t, nil, "every", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.KernelArgs = 1 // some functions are probed only then
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	ledger := readLedger(t, p.ledger, since)
	n := compare(t, result.Output, ledger)
	called, succeeded := make(map[string]int), make(map[string]int)
	for _, thread := range ledger {
		for _, c := range thread {
			called[c.name]++
			if c.result == 0 {
				succeeded[c.name]++
			}
		}
	}
	checkCaptures(t, result.Output)
	checkNodes(t, result.Output)
	exported := exportedFunctions(t)
	for cookie := range bpf.NumDriverCookies() {
		call, name, _, _ := bpf.FunctionByCookie(uint16(cookie))
		if !exported[name] {
			if name == call.Name {
				t.Errorf("%s is in the table but not in simcuda", name)
			}
			continue // this function has no such per-thread-stream variant
		}
		if called[name] == 0 {
			t.Errorf("%s is in the table but not called by every.c", name)
		} else if succeeded[name] == 0 {
			t.Errorf("%s never succeeds in every.c", name)
		}
	}
	t.Logf("%d calls of %d functions equal the ledger", n, len(called))
}

// checkCaptures checks that launches on a capturing stream are marked, and that launches of the
// graph have its number of kernels.
func checkCaptures(t *testing.T, path string) {
	t.Helper()
	captured, graphs := 0, 0
	for _, rows := range recordedCalls(t, path) {
		capturing, forked := make(map[int64]bool), make(map[int64]bool) // handles of streams, of events
		for _, r := range rows {
			switch {
			case r.Result != 0:
			case strings.HasPrefix(r.Name, "cuStreamBeginCapture"):
				capturing[r.Stream] = true
			case strings.HasPrefix(r.Name, "cuStreamEndCapture"):
				clear(capturing) // every.c captures one graph at a time
				clear(forked)
			case strings.HasPrefix(r.Name, "cuEventRecord"):
				forked[r.Ptr] = capturing[r.Stream]
			case strings.HasPrefix(r.Name, "cuStreamWaitEvent") && forked[r.Ptr]:
				capturing[r.Stream] = true
			case strings.HasPrefix(r.Name, "cuLaunchKernel"):
				if marked := r.Flags&format.FlagCaptured != 0; marked != capturing[r.Stream] {
					t.Errorf("%s on stream %#x: captured %v, marked %v", r.Name, r.Stream, capturing[r.Stream], marked)
				} else if marked {
					captured++
				}
			case strings.HasPrefix(r.Name, "cuGraphLaunch") && r.Value > 0:
				graphs++
			}
		}
	}
	if captured == 0 || graphs == 0 {
		t.Errorf("%d captured launches, %d launches of graphs that hold kernels", captured, graphs)
	}
}

// checkNodes checks values that are not in the ledger: node types, memory kinds, and the number of
// kernels in launches of graphs and launch lists.
func checkNodes(t *testing.T, path string) {
	t.Helper()
	types := make(map[string]int)
	var typed, plain []float64
	var list float64
	for _, rows := range recordedCalls(t, path) {
		graphOf := make(map[int64]int64) // instantiated graph -> graph
		var ofNodes int64                // the graph that cuGraphAddNode built
		for _, r := range rows {
			switch name := strings.TrimSuffix(r.Name, "_v2"); {
			case r.Result != 0:
			case name == "cuGraphAddNode":
				types[r.Message]++
				ofNodes = r.SrcPtr
				if memory := strings.HasPrefix(r.Message, "mem_"); memory != (r.MemoryKind == format.MemoryGraph) {
					t.Errorf("a node of type %s has memory kind %q", r.Message, r.MemoryKind)
				}
				if r.Message == "kernel" && r.Kernel == "" {
					t.Error("a kernel node without the kernel's name")
				}
			case strings.HasPrefix(name, "cuStreamBeginCapture"):
				ofNodes = 0 // the following calls are not from every_nodes.c
			case strings.HasPrefix(name, "cuGraphInstantiate"):
				graphOf[r.Ptr] = r.SrcPtr
			case name == "cuGraphLaunch" && ofNodes != 0 && graphOf[r.Ptr] == ofNodes:
				typed = append(typed, r.Value)
			case name == "cuGraphLaunch" && ofNodes != 0:
				plain = append(plain, r.Value)
			case name == "cuLaunchCooperativeKernelMultiDevice":
				list = r.Value
			}
		}
	}
	want := map[string]int{
		"kernel":    2,
		"memcpy":    1,
		"memset":    1,
		"host":      1,
		"graph":     1,
		"empty":     1,
		"mem_alloc": 1,
		"mem_free":  1,
	}
	if !maps.Equal(types, want) {
		t.Errorf("nodes by type %v, want %v", types, want)
	}
	// Two kernels, and a child graph with one kernel. A disabled node makes the number unknown.
	if !slices.Equal(typed, []float64{3}) || !slices.Equal(plain, []float64{1, 0}) || list != 2 {
		t.Errorf("kernels by launch: graphs of nodes %v and %v, launch list %v", typed, plain, list)
	}
}

// exportedFunctions returns the exported functions of simcuda's libcuda.
func exportedFunctions(t *testing.T) map[string]bool {
	t.Helper()
	path := filepath.Join(simcudaDir, "libcuda.so.1")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	object, err := symbolize.OpenObject(path)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for symbol := range object.Symbols() {
		names[symbol.Name] = true
	}
	return names
}

// TestWorkersAreCompleteFromTheirFirstCall records a launcher that starts workers during the
// recording, as torchrun does.
func TestWorkersAreCompleteFromTheirFirstCall(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := copySimcuda(t)
	p := startSim(t, []string{"LD_LIBRARY_PATH=" + dir}, filepath.Join(dir, "torchrun"), "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.WaitForLibrary = true
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	ledger := readLedger(t, p.ledger, 0)
	n := compare(t, result.Output, ledger)
	pids := make(map[int32]bool)
	for _, thread := range ledger {
		for _, c := range thread {
			pids[c.pid] = true
		}
	}
	if len(pids) != 4 {
		t.Errorf("%d workers made calls", len(pids))
	}
	var named int
	for _, r := range factRows(t, result.Output, format.KindProcess) {
		if pids[r.Pid] && r.Name != "" {
			named++
		}
	}
	t.Logf("%d calls of %d workers equal the ledger, %d process rows", n, len(pids), named)
}
