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

// TestFullStackCacheKeepsBusyCallSites records calls from 64 call sites with a large and a small
// stack cache. Every call must have the right stack, and the busiest call site must stay in the
// cache.
func TestFullStackCacheKeepsBusyCallSites(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	if _, err := exec.LookPath("cc"); err != nil {
		testclass.Missing(t, "no C compiler: "+err.Error())
	}
	program := filepath.Join(t.TempDir(), "sites")
	out, err := exec.Command("cc", "-O2", "-fno-inline", "-o", program, "testdata/sites.c", "-L../build/simcuda", "-lcuda").
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const calls = 20000
	for _, c := range []struct {
		sets int
		// Shares of inferred stacks: of the first call site, and of the other call sites.
		minFirst, minAny, maxMany float64
	}{
		{sets: 0, minFirst: 0.9, minAny: 0.75, maxMany: 1},
		{sets: 32, minFirst: 0.9, minAny: 0.75, maxMany: 1}, // 160 entries
		{sets: 4, minFirst: 0.9, minAny: 0, maxMany: 0.5},   // 20 entries
	} {
		t.Run(fmt.Sprint(c.sets), func(t *testing.T) {
			p := startSim(t, nil, program, fmt.Sprint(calls))
			p.expect("ready")
			opt := testOptions(t, p.pid())
			opt.Stacks, opt.stackCacheSets = probe.StacksAuto, c.sets
			s := start(t, opt)
			result := runWhile(t, s, func() {
				p.step()
				p.expect("done")
			})
			p.finish()
			if err := s.StacksError(); err != nil {
				t.Fatalf("stacks are not complete: %v", err)
			}
			functions := stackFunctions(t, result.Output)
			var made, inferred, wrong [2]int // index 0: the first call site, 1: the others
			for _, row := range recordedCalls(t, result.Output)[int32(p.pid())] {
				if row.Kind != format.KindMemset {
					continue
				}
				site, other := row.Bytes-1, 0
				if site > 0 {
					other = 1
				}
				made[other]++
				if row.StackStatus == format.StackInferred {
					inferred[other]++
				}
				if !slices.Contains(functions[row.StackID], fmt.Sprintf("site%02o", site)) {
					wrong[other]++
				}
			}
			first, others := float64(inferred[0])/float64(made[0]), float64(inferred[1])/float64(made[1])
			t.Logf("%d calls, inferred %.3f of the first call site, %.3f of the others", made[0]+made[1], first, others)
			if made[0]+made[1] != calls || wrong[0]+wrong[1] > 0 {
				t.Errorf(
					"of %d calls %d are recorded, %d with a wrong stack",
					calls,
					made[0]+made[1],
					wrong[0]+wrong[1],
				)
			}
			if first < c.minFirst || others < c.minAny || others > c.maxMany {
				t.Errorf("inferred %.3f and %.3f", first, others)
			}
		})
	}
}
