//go:build linux

package record

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
)

// viaScript calls the simulated autograd engine from two lines, from two threads at once, and not at all. The gradients
// of each case have another size.
const viaScript = "../examples/simtorch/leak_backward.py"

// viaTruth says for which line of viaScript the gradients of one size were made. 0: for none, or for several. Negative:
// for this line, but that may be unknown.
type viaTruth struct {
	line  int32
	count int
}

// recordBackward records viaScript with the libraries in a folder of simtorch, and returns its truth by size of the
// gradients.
func recordBackward(t *testing.T, opt Options, folder string) (Result, map[int64]viaTruth) {
	t.Helper()
	libraries := filepath.Dir(simtorch(t, filepath.Join(folder, "libtorch_cpu.so")))
	python, err := exec.LookPath("python3")
	if err != nil {
		testclass.Missing(t, "there is no python3")
	}
	script, err := filepath.Abs(viaScript)
	if err != nil {
		t.Fatal(err)
	}
	p := startSim(
		t,
		[]string{"SIMTORCH_LIB=" + libraries},
		python,
		"-B",
		script,
		"--steps",
		"20",
		"--step-ms",
		"2",
		"--wait",
	)
	p.expect("ready")
	opt.Pids = []int{p.pid()}
	truth := make(map[int64]viaTruth)
	result := runWhile(t, start(t, opt), func() {
		p.step()
		for range 7 {
			f := strings.Split(p.expect("via"), "\t")
			line, _ := strconv.Atoi(f[0]) // a wrong number fails the comparison
			bytes, _ := strconv.ParseInt(f[1], 10, 64)
			count, _ := strconv.Atoi(f[2])
			truth[bytes] = viaTruth{int32(line), count}
		}
		p.expect("truth")
	})
	p.finish()
	return result, truth
}

// linesOfStacks returns the line of viaScript that each stack comes from.
func linesOfStacks(t *testing.T, path string) map[int32]int32 {
	t.Helper()
	lines := make(map[int32]int32)
	for _, row := range factRows(t, path, format.KindStack) {
		for _, f := range row.Frames {
			if filepath.Base(f.File) == filepath.Base(viaScript) {
				lines[row.StackID] = f.Line
				break
			}
		}
	}
	return lines
}

// engineThread returns the thread of the engine, by its name.
func engineThread(t *testing.T, path string) int32 {
	t.Helper()
	for _, row := range factRows(t, path, format.KindThread) {
		if row.Name == "pt_autograd_0" {
			return row.Tid
		}
	}
	t.Fatal("no thread of the engine is recorded")
	return 0
}

// isNewBlock reports whether an allocator event is that of a new block, from either source of events.
func isNewBlock(r *format.Row) bool {
	return r.Name == format.AllocatorAlloc || r.Name == format.AllocatorReportedAlloc
}

// compareVias compares the lines of all gradients with the truth.
func compareVias(t *testing.T, path string, truth map[int64]viaTruth) {
	t.Helper()
	lines, worker, counts := linesOfStacks(t, path), engineThread(t, path), make(map[int64]int)
	for tid, rows := range allocatorRows(t, path) {
		for i := range rows {
			r := &rows[i]
			if tid != worker && r.ViaStackID != 0 {
				t.Errorf("thread %d: %s of %d bytes via stack %d", tid, r.Name, r.Bytes, r.ViaStackID)
			}
			want, isGradient := truth[r.Bytes]
			if !isGradient || !isNewBlock(r) {
				continue
			}
			counts[r.Bytes]++
			if r.ViaStackID == 0 && want.line <= 0 {
				continue
			}
			if line := lines[r.ViaStackID]; line == 0 || line != max(want.line, -want.line) {
				t.Errorf("gradient of %d bytes via line %d, want %d", r.Bytes, line, want.line)
			}
		}
	}
	for bytes, want := range truth {
		if counts[bytes] != want.count {
			t.Errorf("%d gradients of %d bytes, want %d", counts[bytes], bytes, want.count)
		}
	}
}

// TestLinesOfAutogradThreads records a program whose gradients are allocated by a thread of the engine.
func TestLinesOfAutogradThreads(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	for _, test := range []struct {
		name   string
		change func(opt *Options)
	}{
		{"auto", func(*Options) {}},
		{"full", func(opt *Options) { opt.Stacks = probe.StacksFull }},
		{"light", func(opt *Options) { opt.Allocator = library.AllocatorModeLight }},
		{"perf", func(opt *Options) {
			opt.Attach = privilege.AttachPerf
			opt.Only = []string{bpf.EngineFunctions[0].Name, format.SourceTrace, "cuMemAlloc_v2", "cuLaunchKernel"}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			opt := testOptions(t)
			opt.Stacks = probe.StacksAuto
			test.change(&opt)
			result, truth := recordBackward(t, opt, ".")
			compareVias(t, result.Output, truth)
			compareViaOfCalls(t, result.Output, truth)
			t.Logf("truth %v; %+v", truth, result.Meta.Calls)
		})
	}
}

// compareViaOfCalls checks launches and driver memory of the engine's thread: it launches a kernel for each gradient.
func compareViaOfCalls(t *testing.T, path string, truth map[int64]viaTruth) {
	t.Helper()
	lines, worker := linesOfStacks(t, path), engineThread(t, path)
	launches, segments, all := make(map[int32]int), 0, 0
	for tid, rows := range recordedCalls(t, path) {
		for i := range rows {
			r := &rows[i]
			switch {
			case tid != worker && r.ViaStackID != 0:
				t.Errorf("%s of thread %d via stack %d", r.Name, tid, r.ViaStackID)
			case r.Kind == format.KindLaunch:
				launches[lines[r.ViaStackID]]++
				all++
			case tid == worker && r.Kind == format.KindAlloc && lines[r.ViaStackID] != 0:
				segments++
			}
		}
	}
	unsure := make(map[int32]bool)
	for _, v := range truth {
		unsure[-v.line] = unsure[-v.line] || v.line < 0
	}
	for _, v := range truth {
		all -= v.count
		if v.line > 0 && !unsure[v.line] && launches[v.line] != v.count {
			t.Errorf("%d launches via line %d, want %d", launches[v.line], v.line, v.count)
		}
	}
	if all != 0 || segments == 0 {
		t.Errorf("%d launches too many; %d driver allocations of the engine's thread have a line", all, segments)
	}
}

// TestEngineWithoutKnownFunction records a program whose engine has no function that can be probed: no line is known, a
// note says so, and all else is recorded.
func TestEngineWithoutKnownFunction(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	opt := testOptions(t)
	opt.Stacks = probe.StacksAuto
	result, truth := recordBackward(t, opt, "renamed")
	gradients := 0
	for _, rows := range allocatorRows(t, result.Output) {
		for i := range rows {
			if rows[i].ViaStackID != 0 {
				t.Errorf("%s via stack %d", rows[i].Name, rows[i].ViaStackID)
			}
			if _, ok := truth[rows[i].Bytes]; ok && isNewBlock(&rows[i]) {
				gradients++
			}
		}
	}
	want, notes := 0, 0
	for _, v := range truth {
		want += v.count
	}
	for _, note := range factRows(t, result.Output, format.KindNote) {
		if note.Name == format.NoteAutograd {
			notes++
			t.Log(note.Message)
		}
	}
	if notes != 1 || gradients != want {
		t.Errorf("%d notes about the engine, %d gradients, want %d", notes, gradients, want)
	}
}
