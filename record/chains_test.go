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
	"sync"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// pythonsDir is the output folder of scripts/pythons.sh: Python interpreters of several versions.
const pythonsDir = "../build/python"

// chainPrograms compiles testdata/chains once for all tests, because compiling takes seconds.
// TestMain removes the programs.
var chainPrograms = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "chains"); err != nil {
		return "", err
	}
	chainsDir = dir
	if out, err := exec.Command("sh", "testdata/chains/build.sh", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build testdata/chains: %w: %s", err, out)
	}
	return dir, nil
})

// chainsDir is the folder of the compiled programs, "" until buildChains.
var chainsDir string

// buildChains returns the folder of the compiled programs of testdata/chains, and their functions.
func buildChains(t *testing.T) (string, ownCode) {
	t.Helper()
	for _, compiler := range []string{"cc", "c++"} {
		if _, err := exec.LookPath(compiler); err != nil {
			testclass.Missing(t, "no compiler: "+err.Error())
		}
	}
	dir, err := chainPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return dir, readOwnCode(t, dir)
}

// pythons returns the available Python interpreters by name, each only once.
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
		testclass.Missing(t, "no Python is available: scripts/pythons.sh")
	}
	return found
}

// chainProgram is a program of testdata/chains, with the expected stacks that it wrote.
type chainProgram struct {
	name   string
	args   []string // program and arguments; EXPECTED is replaced by the file for expected stacks
	pid    int32
	chains []chainWant
}

// recordPrograms records all programs in one recording, from "ready" to "done" of each: the
// unwinder takes seconds to start.
func recordPrograms(t *testing.T, stacks string, programs []*chainProgram) Result {
	t.Helper()
	return recordProgramsWith(t, func(opt *Options) { opt.Stacks = stacks }, programs, func(*Session) {})
}

// recordProgramsWith records programs with changed options. It calls done before the recording ends.
func recordProgramsWith(
	t *testing.T, change func(*Options), programs []*chainProgram, done func(*Session),
) Result {
	t.Helper()
	var running []*simProgram
	var pids []int
	expected := make([]string, len(programs))
	for i, program := range programs {
		expected[i] = filepath.Join(t.TempDir(), "expected.jsonl")
		args := slices.Clone(program.args)
		if at := slices.Index(args, "EXPECTED"); at >= 0 {
			args[at] = expected[i]
		}
		p := startSim(t, nil, args[0], args[1:]...)
		p.expect("ready")
		running, pids = append(running, p), append(pids, p.pid())
		program.pid = int32(p.pid())
	}
	opt := testOptions(t, pids...)
	change(&opt)
	s := start(t, opt)
	result := runWhile(t, s, func() {
		for _, p := range running {
			p.step()
		}
		for _, p := range running {
			p.expect("done")
		}
		done(s)
	})
	for i, p := range running {
		p.finish()
		programs[i].chains = readChains(t, expected[i])
	}
	if total := result.Meta.Totals(); total.Lost != 0 || total.Seen != total.Recorded {
		t.Errorf("counts %+v", total)
	}
	return result
}

// script returns the path of a Python program of testdata/chains.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata/chains", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStacksOfNativeProgramsAreComplete(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	dir, own := buildChains(t)
	var programs []*chainProgram
	for _, name := range []string{"chain", "chain-stripped", "chain-fixed"} {
		programs = append(
			programs,
			&chainProgram{
				name: name,
				args: []string{filepath.Join(dir, name), "EXPECTED", filepath.Join(dir, "late.so")},
			},
		)
	}
	result := recordPrograms(t, probe.StacksFull, programs)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) { own.compareChains(t, result.Output, p).report(t) })
	}
}

func TestStacksOfPythonAreComplete(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	dir, own := buildChains(t)
	var programs []*chainProgram
	for name, python := range pythons(t) {
		programs = append(
			programs,
			&chainProgram{
				name: name,
				args: []string{python, script(t, "chain.py"), filepath.Join(dir, "chains.so"), "EXPECTED"},
			},
		)
	}
	result := recordPrograms(t, probe.StacksFull, programs)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) { own.compareChains(t, result.Output, p).report(t) })
	}
}

// TestStacksOfTrainingAreRight compares the stack of every launch of a simulated training loop: all
// stacks if every call is unwound, and the error rate of inferred stacks.
func TestStacksOfTrainingAreRight(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir, own := buildChains(t)
	found := pythons(t)
	names := slices.Sorted(maps.Keys(found))
	if os.Getenv("GPUREC_ALL_PYTHONS") != "1" { // all versions take minutes
		names = names[len(names)-1:]
		if _, ok := found["3.13"]; ok {
			names[0] = "3.13"
		}
	}
	for _, name := range names {
		for _, stacks := range []string{probe.StacksFull, probe.StacksAuto} {
			t.Run(name+"/"+stacks, func(t *testing.T) {
				var programs []*chainProgram
				for _, variant := range []string{"plain", "recursive", "random"} {
					programs = append(programs, &chainProgram{name: variant, args: []string{
						found[name],
						script(t, "train_sim.py"),
						filepath.Join(dir, "chains.so"),
						"EXPECTED",
						"--variant",
						variant,
						"--seconds",
						"2",
					}})
				}
				result := recordPrograms(t, stacks, programs)
				for _, p := range programs {
					t.Run(p.name, func(t *testing.T) { own.compareLaunches(t, result.Output, p).report(t) })
				}
			})
		}
	}
}

// TestChainsAreCompared checks the comparison with correct and wrong stacks.
func TestChainsAreCompared(t *testing.T) {
	testclass.Unit(t)
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
	wants := []frameWant{
		{Func: "chain_alloc"},
		{Func: "A.inner", File: "b.py", Line: 7},
		{Func: "chain_call_back"},
		{Func: "<module>", File: "b.py", Line: 9},
	}
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
		"cut": {[]format.Frame{driver, alloc, inner, unnamed}, format.StackTruncated, "truncated with 3 " +
			"of 4 frames"},
		"cut in native": {[]format.Frame{driver, alloc, inner, unnamed, module, eval}, format.StackComplete, "ends at _PyEval"},
		"status":        {whole, format.StackTruncated, "all frames, but truncated"},
		"name":          {[]format.Frame{driver, misnamed}, format.StackComplete, "was named chain_call_back"},
		"nothing":       {nil, format.StackNone, "no frames"},
		"no driver":     {[]format.Frame{alloc}, format.StackComplete, "the innermost frame is in chains.so"},
	} {
		if diff := own.difference(
			c.frames,
			c.status,
			&chainWant{Frames: wants},
		); !strings.HasPrefix(diff, c.want) &&
			!strings.Contains(diff, c.want) {
			t.Errorf("%s: %q, should be %q", what, diff, c.want)
		}
	}
	for _, c := range []chainWant{{New: true, Frames: wants}, {ShortLived: true, Frames: wants}} {
		if diff := own.difference([]format.Frame{driver, alloc, inner}, format.StackTruncated, &c); diff != "" {
			t.Errorf("incomplete stacks of new or short-lived code: %s", diff)
		}
	}
}
