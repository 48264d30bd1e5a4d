//go:build linux

package record

import (
	"bufio"
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// The programs of testdata/chains write the stacks from which they call the driver. The tests
// compare the stacks of a recording with these expected stacks, frame by frame.

// frameWant is an expected frame: a Python frame if it has a file, otherwise a native function of
// the program.
type frameWant struct {
	Func string
	File string
	Line int32
	// NativeLine is compared if the recording has lines of native code.
	NativeLine int32 `json:"native_line"`
}

// chainWant is the expected stack of a call site that calls the driver.
type chainWant struct {
	Name string
	// Bytes or GridX identifies the calls of this call site.
	Bytes int64
	GridX int32 `json:"grid_x"`
	// Times is the number of allocations of the call site; 0: unknown.
	Times int
	// Python is true if the outermost expected frames are Python frames.
	Python bool
	// Truncated is true if the stack is deeper than the unwinder's limit.
	Truncated bool
	// New is true for code that was mapped just before the call, ShortLived for code that is
	// unmapped soon after. Such stacks may be incomplete but must not be wrong.
	New        bool
	ShortLived bool `json:"short_lived"`
	// Direct is true if the call site frees on another line than it allocates.
	Direct bool
	Frames []frameWant // innermost first, without frames of the driver
}

// leastTruncated is the minimum number of program frames in a truncated stack.
const leastTruncated = 100

// quiet is added to the size of allocations for which chain.py does not check its own stack.
const quiet = 1 << 20

// readChains reads the expected stacks that a program has written.
func readChains(t *testing.T, path string) []chainWant {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var chains []chainWant
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c chainWant
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		chains = append(chains, c)
	}
	if err := lines.Err(); err != nil || len(chains) == 0 {
		t.Fatalf("%s: %d chains, %v", path, len(chains), err)
	}
	return chains
}

// ownCode resolves addresses of the test programs with their symbol tables; stripped programs have
// theirs in NAME.debug. So the tests check addresses and not only names.
type ownCode map[string][]elf.Symbol

func readOwnCode(t *testing.T, dir string) ownCode {
	t.Helper()
	own := make(ownCode)
	for _, name := range []string{"chains.so", "late.so", "chain", "chain-fixed", "chain-stripped"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path + ".debug"); err == nil {
			path += ".debug"
		}
		file, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := file.Symbols()
		file.Close()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		own[name] = slices.DeleteFunc(symbols, func(s elf.Symbol) bool { return elf.ST_TYPE(s.Info) != elf.STT_FUNC })
	}
	return own
}

// function returns the function name at an address of a test program's module, "?" if no symbol
// contains the address. ok is false for other modules.
func (own ownCode) function(f *format.Frame) (name string, ok bool) {
	symbols, ok := own[filepath.Base(f.Module)]
	for _, s := range symbols {
		if addr := uint64(f.Addr); addr >= s.Value && addr < s.Value+s.Size {
			return plain(symbolize.Demangle(s.Name)), true
		}
	}
	return "?", ok
}

// plain removes compiler suffixes such as ".cold" from a function name.
func plain(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// sourceFile returns the base name of a file. The unwinder names files of frozen modules after the
// module: _bootstrap.py for <frozen importlib._bootstrap>.
func sourceFile(path string) string {
	if frozen, ok := strings.CutPrefix(path, "<frozen "); ok {
		return strings.TrimSuffix(frozen[strings.LastIndex(frozen, ".")+1:], ">") + ".py"
	}
	return filepath.Base(path)
}

// isUnlisted reports whether a function of a test program is not in the expected stacks: functions
// of the C++ library and of the process's start.
func isUnlisted(name string) bool {
	return name == "_start" || name == "execute_native_thread_routine" ||
		strings.Contains(name, "std::") || strings.Contains(name, "{lambda")
}

// pythonShim is a code object of CPython 3.12 and newer between a native and a Python frame. It has
// no source file.
const pythonShim = "<interpreter trampoline>"

// difference describes the difference between a stack and its expected frames, "" if there is none.
// The expected frames must be there in order, without other Python frames or frames of the test
// program's modules. Frames of the interpreter, libffi and libc may be in between.
func (own ownCode) difference(frames []format.Frame, status string, want *chainWant) string {
	got, first := own.comparable(frames)
	if first != "" {
		return first
	}
	for i := range min(len(got), len(want.Frames)) {
		if diff := frameDifference(&got[i], &want.Frames[i], want.ShortLived); diff != "" {
			return fmt.Sprintf("frame %d of %d: %s", i, len(got), diff)
		}
	}
	lenient := want.New || want.ShortLived
	switch {
	case len(got) > len(want.Frames):
		return fmt.Sprintf("%d frames more than there are: %+v", len(got)-len(want.Frames), got[len(want.Frames):])
	case want.Truncated:
		if len(got) < leastTruncated || len(got) == len(want.Frames) || status != format.StackTruncated {
			return fmt.Sprintf("%s with %d of %d frames, should be truncated", status, len(got), len(want.Frames))
		}
		return ""
	case len(got) < len(want.Frames) && (!lenient || status == format.StackComplete || status == format.StackInferred):
		return fmt.Sprintf(
			"%s with %d of %d frames, next should be %+v",
			status,
			len(got),
			len(want.Frames),
			want.Frames[len(got)],
		)
	case len(got) < len(want.Frames):
		return ""
	case status != format.StackComplete && status != format.StackInferred:
		return fmt.Sprintf("all frames, but %s", status)
	}
	return atStart(frames[len(frames)-1])
}

// comparable returns the frames of a stack that are compared: Python frames, and frames of the test
// program's modules.
func (own ownCode) comparable(frames []format.Frame) (known []frameWant, wrong string) {
	if len(frames) == 0 {
		return nil, "no frames"
	}
	if base := filepath.Base(frames[0].Module); base != "libcuda.so.1" {
		return nil, "the innermost frame is in " + base
	}
	for _, f := range frames[1:] {
		if f.Type == "python" {
			if f.Func != pythonShim {
				known = append(known, frameWant{Func: f.Func, File: f.File, Line: f.Line})
			}
			continue
		}
		name, ok := own.function(&f)
		switch {
		case !ok || isUnlisted(name):
		case f.Func != "" && plain(f.Func) != name:
			return nil, fmt.Sprintf("%s at %#x was named %s", name, f.Addr, f.Func)
		default:
			w := frameWant{Func: name}
			if f.File != "" {
				w.NativeLine = f.Line
			}
			known = append(known, w)
		}
	}
	return known, ""
}

// frameDifference describes the difference between two frames, "" if there is none.
func frameDifference(got, want *frameWant, shortLived bool) string {
	python := got.File != "" || got.Line != 0 // native frames have neither file nor line
	switch {
	case shortLived && want.File != "" && (got.Func == want.Func || got.Func == ""):
		return "" // the code was unmapped before its name or lines were read
	case got.Func != want.Func || python != (want.File != "") || sourceFile(got.File) != sourceFile(want.File) || got.Line != want.Line,
		got.NativeLine != 0 && want.NativeLine != 0 && got.NativeLine != want.NativeLine:
		return fmt.Sprintf("%+v, should be %+v", *got, *want)
	}
	return ""
}

// atStart describes an outermost frame that is not _start, or clone in libc; "" if it is.
func atStart(last format.Frame) string {
	base := filepath.Base(last.Module)
	starts := []string{"", "_start", "clone", "__clone", "clone3", "__clone3", "start_thread"}
	if last.Type == "python" || !slices.Contains(starts, last.Func) ||
		!strings.HasPrefix(base, "libc.") && !strings.HasPrefix(base, "python") && !strings.HasPrefix(base, "chain") {
		return fmt.Sprintf("ends at %s of %s, which is no thread's start", last.Func, base)
	}
	return ""
}

// expectChain checks that a complete stack has the expected frames and fails the test if not.
func (own ownCode) expectChain(t *testing.T, frames []format.Frame, want []frameWant) {
	t.Helper()
	if diff := own.difference(frames, format.StackComplete, &chainWant{Frames: want}); diff != "" {
		t.Error(diff)
	}
}

// chainCount counts the results of stack comparisons.
type chainCount struct {
	calls, wrong int
	status       map[string]int
	wrongStatus  map[string]int
	places       map[string]string // call sites with a wrong stack -> the difference
}

func (c *chainCount) add(status, place, diff string) {
	if c.status == nil {
		c.status, c.wrongStatus, c.places = make(map[string]int), make(map[string]int), make(map[string]string)
	}
	c.calls++
	c.status[status]++
	if diff != "" {
		c.wrong++
		c.wrongStatus[status]++
		if _, ok := c.places[place]; !ok {
			c.places[place] = diff
		}
	}
}

func (c *chainCount) String() string {
	return fmt.Sprintf("%d calls, stacks %v; %d wrong %v", c.calls, c.status, c.wrong, c.wrongStatus)
}

// report logs the counts. It fails the test if a call site has wrong stacks, or if no stack was
// compared.
func (c *chainCount) report(t *testing.T) {
	t.Helper()
	t.Log(c)
	if c.calls == 0 {
		t.Error("no calls were compared")
	}
	n := 0
	for place, diff := range c.places {
		if n++; n <= 10 {
			t.Errorf("%s: %s", place, diff)
		}
	}
	if n > 10 {
		t.Errorf("and %d more call sites", n-10)
	}
}

// recordedStacks returns the stacks of a recording, by stack id.
func recordedStacks(t *testing.T, path string) map[int32][]format.Frame {
	t.Helper()
	stacks := make(map[int32][]format.Frame)
	for _, row := range factRows(t, path, format.KindStack) {
		stacks[row.StackID] = row.Frames
	}
	return stacks
}

// callsOf returns the recorded calls of a process, by thread and in order.
func callsOf(t *testing.T, path string, pid int32) map[int32][]format.Row {
	t.Helper()
	calls := recordedCalls(t, path)
	maps.DeleteFunc(calls, func(_ int32, rows []format.Row) bool { return rows[0].Pid != pid })
	return calls
}

// compareChains compares the stack of every allocation and free of a test program with the expected
// stack of its call site, and each call site's number of allocations.
func (own ownCode) compareChains(t *testing.T, path string, program *chainProgram) *chainCount {
	t.Helper()
	chains := program.chains
	stacks, byBytes, times := recordedStacks(t, path), make(map[int64]*chainWant), make(map[int64]int)
	for i := range chains {
		byBytes[chains[i].Bytes] = &chains[i]
	}
	count := new(chainCount)
	for _, rows := range callsOf(t, path, program.pid) {
		places := make(map[int64]*chainWant) // by the allocated pointer
		for _, r := range rows {
			switch r.Name {
			case "cuMemAlloc_v2":
				want := byBytes[r.Bytes&(quiet-1)]
				if want == nil {
					t.Fatalf("an allocation of %d bytes, which no call site makes", r.Bytes)
				}
				times[want.Bytes]++
				places[r.Ptr] = want
				count.add(r.StackStatus, want.Name, own.difference(stacks[r.StackID], r.StackStatus, want))
			case "cuMemFree_v2":
				if want := places[r.Ptr]; want != nil && !want.Direct {
					count.add(
						r.StackStatus,
						want.Name+" (free)",
						own.difference(stacks[r.StackID], r.StackStatus, want),
					)
				}
			}
		}
	}
	for _, c := range chains {
		if times[c.Bytes] != c.Times {
			t.Errorf("%s: recorded %d times, called %d times", c.Name, times[c.Bytes], c.Times)
		}
	}
	return count
}

// compareLaunches compares the stack of every launch with the expected stack of its grid size.
func (own ownCode) compareLaunches(t *testing.T, path string, program *chainProgram) *chainCount {
	t.Helper()
	stacks, byGrid := recordedStacks(t, path), make(map[int32]*chainWant)
	for i := range program.chains {
		byGrid[program.chains[i].GridX] = &program.chains[i]
	}
	type pair struct {
		stack, grid int32
		status      string
	}
	known := make(map[pair]string) // cache of differences: the same stack has many launches
	count := new(chainCount)
	for _, rows := range callsOf(t, path, program.pid) {
		for _, r := range rows {
			if r.Name != "cuLaunchKernel" {
				continue
			}
			want := byGrid[r.GridX]
			if want == nil {
				t.Fatalf("a launch with grid %d, which no call site makes", r.GridX)
			}
			key := pair{r.StackID, r.GridX, r.StackStatus}
			diff, ok := known[key]
			if !ok {
				diff = own.difference(stacks[r.StackID], r.StackStatus, want)
				known[key] = diff
			}
			count.add(r.StackStatus, want.Name, diff)
		}
	}
	return count
}
