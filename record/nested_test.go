//go:build linux

package record

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// buildNested compiles testdata/nested.c: a simulated driver whose functions call each other.
func buildNested(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		testclass.Missing(t, "no C compiler: "+err.Error())
	}
	dir := t.TempDir()
	flags := []string{"-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fcf-protection=none", "-o"}
	for _, args := range [][]string{
		append(flags, filepath.Join(dir, "libcuda.so.1"), "-DDRIVER", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "testdata/nested.c"),
		append(flags, filepath.Join(dir, "nested"), "testdata/nested.c", filepath.Join(dir, "libcuda.so.1")),
	} {
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

// TestNestedCallsHaveParents records nested calls, a tail call from one driver function to another,
// and calls that longjmp leaves.
func TestNestedCallsHaveParents(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	dir := buildNested(t)
	cmd := exec.Command(filepath.Join(dir, "nested"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &simProgram{t: t, cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
	p.expect("ready")
	s := start(t, testOptions(t, p.pid()))
	result := runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()

	type call struct {
		name, parent string
		abandoned    bool
		result       int32
		bytes        int64
	}
	var want []call
	for i := range int64(3) {
		want = append(
			want,
			call{name: "cuMemAlloc_v2", bytes: (i + 1) * 100},
			call{name: "cuMemAllocAsync", parent: "cuMemAlloc_v2", bytes: (i + 1) * 100},
			call{
				name:   "cuStreamSynchronize",
				parent: "cuMemAllocAsync",
			},
			call{name: "cuMemFree_v2"},
			call{name: "cuCtxSynchronize", parent: "cuMemFree_v2"},
		)
	}
	want = append(
		want,
		call{name: "cuMemAlloc_v2", abandoned: true, bytes: 4000},
		call{name: "cuMemAllocAsync", parent: "cuMemAlloc_v2", abandoned: true, bytes: 4000},
		call{
			name:      "cuStreamSynchronize",
			parent:    "cuMemAllocAsync",
			abandoned: true,
		},
		call{name: "cuCtxSynchronize"},
		call{name: "cuStreamSynchronize"},
	)
	rows := recordedCalls(t, result.Output)[int32(p.pid())]
	names := make(map[int64]string)
	var got []call
	for _, r := range rows {
		names[r.StartNs] = r.Name
		got = append(got, call{r.Name, names[r.ParentStartNs], r.Flags&format.FlagAbandoned != 0, r.Result, r.Bytes})
		if parent := r.ParentStartNs != 0; parent != (r.StackStatus == format.StackParent) {
			t.Errorf("%s: stack %s, parent %v", r.Name, r.StackStatus, parent)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d calls recorded, %d made", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("call %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	total := result.Meta.Totals()
	if total.Seen != total.Recorded || total.Lost != 0 || total.Open != 0 || total.Abandoned != 3 {
		t.Errorf("counts %+v", total)
	}
}
