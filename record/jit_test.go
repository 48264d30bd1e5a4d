//go:build linux

package record

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
)

// TestJITCodeIsNamed records a call from JIT code, which only the program's perf map
// names. In a pid namespace, the file name of the perf map has another pid than the host's.
func TestJITCodeIsNamed(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	unshare, err := exec.LookPath("unshare")
	if _, cerr := exec.LookPath("cc"); err != nil || cerr != nil {
		testclass.Missing(t, fmt.Sprintf("no compiler or no unshare: %v, %v", cerr, err))
	}
	program := filepath.Join(t.TempDir(), "jit")
	out, err := exec.Command("cc", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o", program, "testdata/jit.c", "-L../build/simcuda", "-lcuda").
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, command := range map[string][]string{
		"here":        {program},
		"a namespace": {unshare, "--pid", "--fork", "--mount-proc", program},
	} {
		t.Run(name, func(t *testing.T) {
			p := startSim(t, nil, command[0], command[1:]...)
			p.expect("ready")
			pid := p.pid()
			if children := process.Descendants([]int{pid}); len(children) > 1 {
				t.Fatalf("children of %v: %v", command, children)
			} else if len(children) == 1 {
				pid = children[0]
			}
			opt := testOptions(t, pid)
			opt.Stacks = probe.StacksFP
			result := runWhile(t, start(t, opt), func() {
				p.step()
				p.expect("done")
			})
			p.finish()
			functions := slices.Concat(slices.Collect(maps.Values(stackFunctions(t, result.Output)))...)
			if calls := recordedCalls(t, result.Output)[int32(pid)]; len(calls) != 1 ||
				!slices.Contains(functions, "made_at_run_time") {
				t.Errorf("%d calls, functions %q", len(calls), functions)
			}
		})
	}
}
