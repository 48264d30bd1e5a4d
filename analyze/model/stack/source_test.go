package stack_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
)

func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil && filepath.Base(name) == name {
		testclass.Missing(t, name+" is not installed")
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// sourceProgram is a compiled program of symbolize/testdata. Comments in its source mark the calls
// of here().
type sourceProgram struct {
	source, path string
	calls        map[string]int64 // addresses of the calls marked in the source, by marker
	main         int64
}

func compileSource(t testing.TB, source string, flags ...string) *sourceProgram {
	t.Helper()
	p := &sourceProgram{source: source, path: filepath.Join(t.TempDir(), "program"), calls: make(map[string]int64)}
	compiler := map[string]string{".c": "gcc", ".cpp": "g++"}[filepath.Ext(source)]
	command(
		t,
		compiler,
		append(
			[]string{
				"-O2",
				"-g",
				"-no-pie",
				"-Wl,--build-id=sha1",
				"-o",
				p.path,
				analyzetest.RepositoryPath(t, "symbolize", "testdata", source),
			},
			flags...)...)
	for line := range strings.Lines(command(t, p.path)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		addr, err := strconv.ParseInt(strings.TrimPrefix(text, "0x"), 16, 64)
		if err != nil {
			t.Fatalf("the program printed %q", line)
		}
		p.calls[name] = addr - 1
	}
	object, err := symbolize.OpenObject(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	main, _ := object.Find("main")
	p.main = int64(main.Start)
	return p
}

// split moves the debug information into a separate file in the same folder.
func (p *sourceProgram) split(t testing.TB) {
	t.Helper()
	command(t, "objcopy", "--only-keep-debug", p.path, p.path+".debug")
	command(t, "strip", "--strip-all", p.path)
	command(t, "objcopy", "--add-gnu-debuglink="+p.path+".debug", p.path)
}

func (p *sourceProgram) line(t testing.TB, marker string) int {
	t.Helper()
	text, err := os.ReadFile(analyzetest.RepositoryPath(t, "symbolize", "testdata", p.source))
	if err != nil {
		t.Fatal(err)
	}
	return slices.IndexFunc(
		strings.Split(string(text), "\n"),
		func(l string) bool { return strings.HasSuffix(l, "// "+marker) },
	) + 1
}

func buildID(t testing.TB, path string) string {
	t.Helper()
	object, err := symbolize.OpenObject(path)
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	return object.BuildID()
}

// tape records one allocation from the marked call. function is the recorded name of the calling
// function, or "". The outermost frame belongs to PyTorch's Python code, because a frame of the
// script itself would become the call site.
func (p *sourceProgram) tape(t testing.TB, call, function string) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	frame := format.Frame{
		Func:       function,
		SystemName: function,
		Module:     p.path,
		BuildID:    buildID(t, p.path),
		Addr:       p.calls[call],
		Type:       "native",
	}
	outer := frame
	outer.Func, outer.SystemName, outer.Addr = "", "", p.main
	recording.AddRow(
		format.Row{
			Kind:        format.KindStack,
			StackID:     1,
			StackStatus: format.StackComplete,
			Device:      -1,
			Frames: []format.Frame{
				{
					Func:       "cuMemAlloc_v2",
					SystemName: "cuMemAlloc_v2",
					Module:     "/nowhere/libcuda.so.1",
					BuildID:    "c0da",
					Addr:       0x1000,
					Type:       "native",
				},
				frame,
				outer,
				{Func: "step", File: analyzetest.TorchDir + "train.py", Line: 7, Type: "python"},
			},
		},
	)
	analyzetest.SetStackAndSite(
		recording.AddAlloc(analyzetest.Second, analyzetest.Us, 0x7f0000000000, analyzetest.Mib),
		1,
		function,
	)
	return recording
}

// stackText returns the frames of stack 1 as text.
func stackText(tl *timeline.Timeline) []string {
	var list []string
	for _, id := range tl.Stacks.Stacks[1] {
		f := &tl.Stacks.Frames[id]
		list = append(list, fmt.Sprintf("%s %s:%d", query.FrameName(f), filepath.Base(f.File), f.Line))
	}
	return list
}

func TestSourceAddsLinesAndInlinedCalls(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		source, call string
		functions    []string // functions inlined at the call, innermost first
	}{
		{"inlined.c", "chain", []string{"innermost", "middle", "outer"}},
		{"inlined.c", "elsewhere", []string{"elsewhere"}},
		{"inlined.cpp", "method", []string{"shapes::Widget::area", "shapes::twice<long>", "shapes::generic<long>"}},
	} {
		for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
			for _, split := range []bool{false, true} {
				for _, named := range []bool{false, true} {
					t.Run(
						fmt.Sprint(c.source, " ", c.call, version, " split ", split, " named ", named),
						func(t *testing.T) {
							p := compileSource(t, c.source, version)
							if split {
								p.split(t)
							}
							recorded := ""
							if named {
								recorded = c.functions[len(c.functions)-1]
							}
							recording := p.tape(t, c.call, recorded)
							tl := recording.Timeline()
							before, _ := os.ReadFile(recording.Path)
							summary := tl.AddSourceLines(new(symbolize.Finder))
							if summary.Modules != 2 ||
								!slices.Equal(summary.Without, []string{"/nowhere/libcuda.so.1"}) ||
								summary.Err != nil {
								t.Errorf("summary: %+v", summary)
							}
							want := []string{"cuMemAlloc_v2 .:0"}
							for i, f := range c.functions {
								want = append(
									want,
									fmt.Sprintf("%s %s:%d", f, c.source, p.line(t, fmt.Sprint(c.call, " ", i))),
								)
							}
							got := stackText(tl)
							if n := len(
								want,
							); len(got) != n+2 || !slices.Equal(got[:n], want) || !strings.HasPrefix(got[n], "main "+c.source) ||
								got[n+1] != "step train.py:7" {
								t.Errorf("got %q\nwant %q, main and step", got, want)
							}
							checkSourceReports(
								t,
								tl,
								c.functions[0],
								len(c.functions),
								filepath.Base(want[1][strings.Index(want[1], c.source):]),
							)
							if after, _ := os.ReadFile(recording.Path); !bytes.Equal(before, after) {
								t.Error("the recording was changed")
							}
						},
					)
				}
			}
		}
	}
}

// checkSourceReports checks that reports show the call site with its source line.
func checkSourceReports(t *testing.T, tl *timeline.Timeline, function string, depth int, place string) {
	t.Helper()
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	row := r.Tables[0].Rows[0]
	if site := row.Cells[len(row.Cells)-1]; site != fmt.Sprintf("%s (%s)", function, place) {
		t.Errorf("site %q, want %s (%s)", site, function, place)
	}
	prof, _, _, err := pprof.BuildHeapProfile(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	code := prof.Sample[0].Location[1]
	if len(code.Line) != depth || code.Line[0].Function.Name != function || code.Line[depth-1].Line == 0 {
		t.Errorf("%d functions at %#x, the first %q", len(code.Line), code.Address, code.Line[0].Function.Name)
	}
}

func TestSourceUsesNoOtherBuild(t *testing.T) {
	testclass.Unit(t)
	p := compileSource(t, "inlined.c")
	recording := p.tape(t, "chain", "")
	other := compileSource(t, "inlined.c", "-O1")
	raw, err := os.ReadFile(other.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	tl := recording.Timeline()
	before := stackText(tl)
	summary := tl.AddSourceLines(&symbolize.Finder{Dirs: []string{filepath.Dir(other.path)}})
	if !slices.Equal(summary.Without, []string{p.path, "/nowhere/libcuda.so.1"}) || summary.Err != nil {
		t.Errorf("summary: %+v", summary)
	}
	if after := stackText(tl); !slices.Equal(before, after) {
		t.Errorf("frames were %q, are %q", before, after)
	}
}

func TestSourceReportsDamagedDebugInformation(t *testing.T) {
	testclass.Unit(t)
	p := compileSource(t, "inlined.c", "-gdwarf-5")
	recording := p.tape(t, "chain", "outer")
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, bytes.Repeat([]byte{0xff}, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "objcopy", "--update-section", ".debug_info="+junk, p.path)
	summary := recording.Timeline().AddSourceLines(new(symbolize.Finder))
	if summary.Err == nil || !strings.Contains(summary.Err.Error(), "program: ") ||
		strings.Count(summary.Err.Error(), "\n") > 0 {
		t.Errorf("error: %v", summary.Err)
	}
	if len(summary.Without) != 2 {
		t.Errorf("summary: %+v", summary)
	}
}
