//go:build linux

package record

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// pythonsDir holds what scripts/pythons.sh gathers.
const pythonsDir = "../build/python"

// buildChains compiles testdata/chains: programs that know from where they call.
func buildChains(t *testing.T) (string, ownCode) {
	t.Helper()
	for _, compiler := range []string{"cc", "c++"} {
		if _, err := exec.LookPath(compiler); err != nil {
			skip(t, "no compiler: "+err.Error())
		}
	}
	dir := t.TempDir()
	if out, err := exec.Command("sh", "testdata/chains/build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir, readOwnCode(t, dir)
}

// pythons are the interpreters there are, by name, the same one once.
func pythons(t *testing.T) map[string]string {
	t.Helper()
	found, seen := make(map[string]string), make(map[string]bool)
	paths, err := filepath.Glob(filepath.Join(pythonsDir, "*", "bin", "python3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "/usr/bin/python3") {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		name := "system"
		if strings.HasPrefix(path, pythonsDir) {
			name = filepath.Base(filepath.Dir(filepath.Dir(path)))
		}
		if found[name], err = filepath.Abs(path); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) == 0 {
		skip(t, "no Python is there: scripts/pythons.sh")
	}
	return found
}

// recordProgram records a program of testdata/chains from "ready" to "done" and
// returns what it wrote down.
func recordProgram(t *testing.T, stacks, program string, args ...string) (Result, []chainWant) {
	t.Helper()
	expected := filepath.Join(t.TempDir(), "expected.jsonl")
	for i := range args {
		if args[i] == "EXPECTED" {
			args[i] = expected
		}
	}
	p := startSim(t, nil, program, args...)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Stacks = stacks
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	if total := result.Meta.Totals(); total.Lost != 0 || total.Seen != total.Recorded {
		t.Errorf("books: %+v", total)
	}
	return result, readChains(t, expected)
}

// script is the path of a Python program of testdata/chains.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata/chains", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStacksOfNativeProgramsAreComplete(t *testing.T) {
	needKernel(t)
	dir, own := buildChains(t)
	for _, program := range []string{"chain", "chain-stripped", "chain-fixed"} {
		t.Run(program, func(t *testing.T) {
			result, chains := recordProgram(t, "full", filepath.Join(dir, program), "EXPECTED", filepath.Join(dir, "late.so"))
			count := own.compareChains(t, result.Output, chains)
			count.report(t)
			t.Log(count)
		})
	}
}

func TestStacksOfPythonAreComplete(t *testing.T) {
	needKernel(t)
	dir, own := buildChains(t)
	for name, python := range pythons(t) {
		t.Run(name, func(t *testing.T) {
			result, chains := recordProgram(t, "full", python, script(t, "chain.py"), filepath.Join(dir, "chains.so"), "EXPECTED")
			count := own.compareChains(t, result.Output, chains)
			count.report(t)
			t.Log(count)
		})
	}
}

// TestStacksOfTrainingAreRight compares the stack of every launch of a training loop's
// look-alike: all of them in full, and how many of the inferred ones are wrong.
func TestStacksOfTrainingAreRight(t *testing.T) {
	needKernel(t)
	dir, own := buildChains(t)
	found := pythons(t)
	names := slices.Sorted(maps.Keys(found))
	if os.Getenv("GPUREC_ALL_PYTHONS") != "1" { // minutes
		names = names[len(names)-1:]
		if _, ok := found["3.13"]; ok {
			names[0] = "3.13"
		}
	}
	for _, name := range names {
		for _, variant := range []string{"plain", "recursive", "random"} {
			for _, stacks := range []string{"full", "auto"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, variant, stacks), func(t *testing.T) {
					result, chains := recordProgram(t, stacks, found[name], script(t, "train_sim.py"), filepath.Join(dir, "chains.so"), "EXPECTED",
						"--variant", variant, "--seconds", "2")
					count := own.compareLaunches(t, result.Output, chains)
					count.report(t)
					t.Log(count)
				})
			}
		}
	}
}

// TestChainsAreCompared proves the comparison itself on stacks made up for it.
func TestChainsAreCompared(t *testing.T) {
	dir, own := buildChains(t)
	addr := func(name string) int64 {
		for _, s := range own["chains.so"] {
			if s.Name == name {
				return int64(s.Value) + 1
			}
		}
		t.Fatalf("chains.so has no %s", name)
		return 0
	}
	chains := filepath.Join(dir, "chains.so")
	driver := format.Frame{Func: "cuMemAlloc_v2", Module: "/x/libcuda.so.1", Type: "native"}
	alloc := format.Frame{Func: "chain_alloc", Module: chains, Addr: addr("chain_alloc"), Type: "native"}
	unnamed := format.Frame{Module: chains, Addr: addr("chain_call_back"), Type: "native"}
	misnamed := format.Frame{Func: "chain_call_back", Module: chains, Addr: addr("chain_alloc"), Type: "native"}
	eval := format.Frame{Func: "_PyEval_EvalFrameDefault", Module: "/x/python3.13", Type: "native"}
	inner := format.Frame{Func: "A.inner", File: "/a/b.py", Line: 7, Type: "python"}
	shim := format.Frame{Func: pythonShim, Type: "python"}
	module := format.Frame{Func: "<module>", File: "/a/b.py", Line: 9, Type: "python"}
	begin := format.Frame{Func: "_start", Module: "/x/python3.13", Type: "native"}
	wants := []frameWant{{Func: "chain_alloc"}, {Func: "A.inner", File: "b.py", Line: 7}, {Func: "chain_call_back"}, {Func: "<module>", File: "b.py", Line: 9}}
	whole := []format.Frame{driver, alloc, eval, inner, shim, eval, unnamed, eval, module, eval, begin}
	own.expectChain(t, whole, wants)

	elsewhere := inner
	elsewhere.Line = 8
	for what, c := range map[string]struct {
		frames []format.Frame
		status string
		want   string
	}{
		"another line":    {[]format.Frame{driver, alloc, elsewhere, unnamed, module, begin}, format.StackComplete, "frame 1 of 4"},
		"a frame missing": {[]format.Frame{driver, alloc, inner, module, begin}, format.StackComplete, "frame 2 of 3"},
		"one too many":    {[]format.Frame{driver, alloc, inner, unnamed, module, module, begin}, format.StackComplete, "1 frames more"},
		"order":           {[]format.Frame{driver, inner, alloc, unnamed, module, begin}, format.StackComplete, "frame 0 of 4"},
		"cut":             {[]format.Frame{driver, alloc, inner, unnamed}, format.StackTruncated, "truncated with 3 of 4 frames"},
		"cut in native":   {[]format.Frame{driver, alloc, inner, unnamed, module, eval}, format.StackComplete, "ends at _PyEval"},
		"status":          {whole, format.StackTruncated, "all frames, but truncated"},
		"name":            {[]format.Frame{driver, misnamed}, format.StackComplete, "was named chain_call_back"},
		"nothing":         {nil, format.StackNone, "no frames"},
		"no driver":       {[]format.Frame{alloc}, format.StackComplete, "the innermost frame is in chains.so"},
	} {
		if diff := own.difference(c.frames, c.status, &chainWant{Frames: wants}); !strings.HasPrefix(diff, c.want) && !strings.Contains(diff, c.want) {
			t.Errorf("%s: %q, should be %q", what, diff, c.want)
		}
	}
	for _, c := range []chainWant{{New: true, Frames: wants}, {ShortLived: true, Frames: wants}} {
		if diff := own.difference([]format.Frame{driver, alloc, inner}, format.StackTruncated, &c); diff != "" {
			t.Errorf("new or short-lived code that is cut: %s", diff)
		}
	}
}
