//go:build linux

package record

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// TestRationedStacksAreNamedLater records a training loop whose unwinding is rationed at first. It
// compares the stack of every launch that has one, also of those whose stack became known later.
// Many call sites of this loop have equal fingerprints, so many calls stay without a stack.
func TestRationedStacksAreNamedLater(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	dir, own := buildChains(t)
	found := pythons(t)
	python := found[slices.Max(slices.Collect(maps.Keys(found)))]
	expected := filepath.Join(t.TempDir(), "expected.jsonl")
	p := startSim(t, nil, python, script(t, "train_sim.py"), filepath.Join(dir, "chains.so"), expected,
		"--variant", "plain", "--seconds", "4")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Stacks = probe.StacksAuto
	s := start(t, opt)
	if err := s.StacksError(); err != nil {
		testclass.Missing(t, err.Error())
	}
	result := runWhile(t, s, func() {
		ration := func(share float64) {
			if err := s.probes.RationUnwinding(share); err != nil {
				t.Fatal(err)
			}
		}
		ration(0.0002)
		p.step()
		eventually(t, "calls are rationed", func() bool { return rationedCalls(s) > 1000 })
		ration(0.2)
		p.expect("done")
	})
	p.finish()
	program := chainProgram{name: "plain", pid: int32(p.pid()), chains: readChains(t, expected)}
	statuses := make(map[string]int) // as stored
	for _, rows := range callsOf(t, result.Output, program.pid) {
		for _, r := range rows {
			if r.Name == "cuLaunchKernel" {
				statuses[r.StackStatus]++
			}
		}
	}
	count := own.compareResolved(t, result.Output, &program)
	t.Logf("stored %v; resolved: %v", statuses, count)
	named := statuses[format.StackRationed] - count.status[format.StackRationed]
	if named < 100 {
		t.Errorf("%d of %d rationed stacks were named later", named, statuses[format.StackRationed])
	}
	noted := launchInference(t, result.Output)
	wrong := count.wrong - count.wrongStatus[format.StackRationed]
	if most := noted.WrongEstimated + noted.Unchecked + int64(count.calls/50); int64(wrong) > most {
		t.Errorf("%d of %d stacks are wrong, at most %d are accounted for: %v", wrong, count.calls, most, count.places)
	}
	if total := result.Meta.Totals(); total.Lost != 0 || total.Seen != total.Recorded {
		t.Errorf("counts %+v", total)
	}
}

// memoryRation is the share of its time that the thread of TestMemoryCallsAreRationed may spend on unwinding.
const memoryRation = 0.01

// TestMemoryCallsAreRationed records a program that does nothing but allocate and free. Unwinding must not take much more
// than its ration, and stacks that are known must be right.
func TestMemoryCallsAreRationed(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	found := pythons(t)
	python := found[slices.Max(slices.Collect(maps.Keys(found)))]
	path, err := filepath.Abs("testdata/memory_calls.py")
	if err != nil {
		t.Fatal(err)
	}
	p := startSim(t, nil, python, path, "3")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Stacks = probe.StacksAuto
	s := start(t, opt)
	if err := s.StacksError(); err != nil {
		testclass.Missing(t, err.Error())
	}
	unwindingNs := int64(0)
	result := runWhile(t, s, func() {
		if err := s.probes.RationUnwinding(memoryRation); err != nil {
			t.Fatal(err)
		}
		p.step()
		p.expect("done")
		unwindingNs = s.probes.UnwindingNs()
	})
	p.finish()
	if most := 3 * memoryRation * float64(3*time.Second); float64(unwindingNs) > most {
		t.Errorf("unwinding took %.1f ms, more than %.1f ms", float64(unwindingNs)/1e6, most/1e6)
	}
	stacks := recordedStacks(t, result.Output)
	count := make(map[string]int)
	for _, rows := range callsOf(t, result.Output, int32(p.pid())) {
		for i := range rows {
			r := &rows[i]
			if r.Name != "cuMemAlloc_v2" {
				continue
			}
			count[r.StackStatus]++
			want := fmt.Sprintf("size_%d", r.Bytes/4096)
			if frames := stacks[r.StackID]; len(frames) > 0 && !hasFunction(frames, want) {
				count["wrong"]++
			}
		}
	}
	t.Logf("%.1f ms of unwinding, %v", float64(unwindingNs)/1e6, count)
	if count[format.StackInferred] < 1000 || count[format.StackComplete] < 100 {
		t.Errorf("stacks: %v", count)
	}
	if known := count[format.StackInferred] + count[format.StackComplete]; count["wrong"] > known/200 {
		t.Errorf("%d of %d stacks are wrong", count["wrong"], known)
	}
	if total := result.Meta.Totals(); total.Lost != 0 || total.Seen != total.Recorded {
		t.Errorf("counts %+v", total)
	}
}

// hasFunction reports whether a stack has a frame of a function.
func hasFunction(frames []format.Frame, name string) bool {
	return slices.ContainsFunc(frames, func(f format.Frame) bool { return f.Func == name })
}

// launchInference returns the recording's statement about inferred stacks of launches.
func launchInference(t *testing.T, path string) (last format.StackInference) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if err := rec.Rows(func(r *format.Row) error {
		if i, ok := sampling.ReadStackInference(r); ok && i.Class == "launch" {
			last = i
		}
		return nil
	}, format.ClassFact); err != nil {
		t.Fatal(err)
	}
	return last
}

// rationedCalls returns the number of launches that were not unwound and have no known stack.
func rationedCalls(s *Session) uint64 {
	return s.probes.SumInferenceStats()[bpf.CudaCallClassCLASS_LAUNCH].Rationed
}

// compareResolved compares the stack of every launch as the column methods of Group return it.
func (own ownCode) compareResolved(t *testing.T, path string, program *chainProgram) *chainCount {
	t.Helper()
	stacks, byGrid := recordedStacks(t, path), make(map[int32]*chainWant)
	for i := range program.chains {
		byGrid[program.chains[i].GridX] = &program.chains[i]
	}
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	count := new(chainCount)
	for _, g := range rec.Groups() {
		if g.Class() != format.ClassCall {
			continue
		}
		names, pids, grids := g.Strings("name"), g.Int32("pid", nil), g.Int32("grid_x", nil)
		ids, status := g.Int32("stack_id", nil), g.Strings("stack_status")
		for i := range g.NumRows() {
			if names.At(i) != "cuLaunchKernel" || pids[i] != program.pid {
				continue
			}
			want := byGrid[grids[i]]
			count.add(status.At(i), want.Name, own.difference(stacks[ids[i]], status.At(i), want))
		}
		if err := g.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return count
}
