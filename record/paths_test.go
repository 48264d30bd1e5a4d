//go:build linux

package record

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// TestNativePathsDistinguishStacks records calls whose stacks differ only in outer frames. Every
// call must have the right stack, also if the stack was inferred.
func TestNativePathsDistinguishStacks(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	if _, err := exec.LookPath("cc"); err != nil {
		testclass.Missing(t, "no C compiler: "+err.Error())
	}
	program := filepath.Join(t.TempDir(), "paths")
	out, err := exec.Command("cc", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-inline", "-o", program, "testdata/paths.c",
		"-L../build/simcuda", "-lcuda").
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const calls = 60000
	p := startSim(t, nil, program, fmt.Sprint(calls))
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Stacks = probe.StacksAuto
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	if err := s.StacksError(); err != nil {
		t.Errorf("stacks are not complete: %v", err)
	}

	ways := stackFunctions(t, result.Output)
	inferred, wrong := 0, 0
	for _, row := range recordedCalls(t, result.Output)[int32(p.pid())] {
		if row.Kind != format.KindMemset {
			continue
		}
		if row.StackStatus == format.StackInferred {
			inferred++
		}
		inner, outer := fmt.Sprintf("inner%d", row.Bytes%100), fmt.Sprintf("outer%d", row.Bytes/100)
		if way := ways[row.StackID]; !slices.Contains(way, inner) || !slices.Contains(way, outer) {
			wrong++
		}
	}
	t.Logf("%d calls, %d inferred, %d wrong", calls, inferred, wrong)
	// Until a second stack is seen, all calls with a fingerprint get the first stack.
	if wrong > 0 || inferred < calls*8/10 {
		t.Errorf("of %d calls %d have an inferred stack and %d a wrong one", calls, inferred, wrong)
	}
}
