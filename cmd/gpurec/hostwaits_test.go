//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/simtest"
)

// keepsHostFiles is the folder that gets recordings and truth of the programs; "": none.
var keepsHostFiles = os.Getenv("GPUREC_HOST_KEEP")

// hostSeeds returns the number of variants of each program of examples/hostwaits. all is false in a
// plain test run, which records one variant of each.
func hostSeeds() (seeds int, all bool) {
	seeds, err := strconv.Atoi(os.Getenv("GPUREC_SEEDS"))
	return max(seeds, 1), err == nil
}

// hostInterpreters returns the CPythons 3.11 to 3.13 of this machine, one of each version.
func hostInterpreters(t *testing.T) []string {
	t.Helper()
	found, _ := filepath.Glob("../../build/python/*/bin/python3") // a fixed pattern
	if home, err := os.UserHomeDir(); err == nil {
		more, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.1[123].*/bin/python3"))
		found = append(found, more...)
	}
	found = append(found, "/usr/bin/python3")
	versions := make(map[string]string)
	for _, path := range found {
		out, err := exec.Command(path, "-c", "import ctypes, sys; print(sys.version_info[1])").Output()
		if version := strings.TrimSpace(string(out)); err == nil && versions[version] == "" {
			versions[version] = path
		}
	}
	var list []string
	for _, version := range []string{"11", "12", "13"} {
		if path := versions[version]; path != "" {
			list = append(list, path)
		}
	}
	if len(list) == 0 {
		testclass.Missing(t, "no CPython 3.11 to 3.13 is installed")
	}
	return list
}

// hostVariant is a program of examples/hostwaits with its arguments.
type hostVariant struct {
	language string // c or python
	kinds    string // as in the program's argument
	seed     int
	hangs    bool
	loaded   bool // other programs use the processors
}

func (v hostVariant) String() string { return fmt.Sprintf("%s/%s/%d", v.language, v.kinds, v.seed) }

// hostProgram is a running program of examples/hostwaits.
type hostProgram struct {
	t                 *testing.T
	cmd               *exec.Cmd
	stdin             io.WriteCloser
	stdout            *bufio.Reader
	truth, operations string
}

// startHostProgram starts a program on simulated device files. It ends with the test.
func startHostProgram(t *testing.T, v hostVariant, args ...string) *hostProgram {
	t.Helper()
	requireSimcuda(t, "hostwaits", privilege.AttachAuto)
	folder, dir := t.TempDir(), simcudaDir()
	p := &hostProgram{t: t, truth: filepath.Join(folder, "truth.json"), operations: filepath.Join(folder, "works.tsv")}
	program := []string{filepath.Join(dir, "hostwaits")}
	if v.language == "python" {
		pythons := hostInterpreters(t)
		program = []string{pythons[v.seed%len(pythons)], "../../examples/hostwaits/hostwaits.py", "--folder", folder}
	}
	program = append(program, v.kinds, "--seed", strconv.Itoa(v.seed), "--truth", p.truth)
	if v.hangs {
		program = append(program, "--hang")
	}
	if v.loaded {
		program = append(program, "--normal-priority")
	}
	p.cmd = exec.Command(filepath.Join(dir, "devfiles"), append(program, args...)...)
	p.cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "SIMCUDA_TIME=on", "SIMCUDA_CHANNELS=tear_ns=0,decoys=off",
		"SIMCUDA_WORKS="+p.operations, "SIMCUDA_STATE="+filepath.Join(folder, "state"))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.stdout = bufio.NewReader(out)
	must(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the program and its children
		_ = p.cmd.Wait()                                      // killed
	})
	return p
}

// expect waits for an output line that begins with prefix, and returns the rest of the line.
func (p *hostProgram) expect(prefix string) string {
	p.t.Helper()
	for {
		line, err := p.stdout.ReadString('\n')
		if err != nil {
			p.t.Fatalf("waiting for %q: %v", prefix, err)
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// step lets the program continue.
func (p *hostProgram) step() {
	p.t.Helper()
	_, err := p.stdin.Write([]byte("x"))
	must(p.t, err)
}

// hostKinds are the faults by language. Two faults are separated by a comma.
var hostKinds = map[string][]string{
	"c":      {"none", "mutex", "pipe"},
	"python": {"file", "loader"},
}

// moreHostKinds are recorded with GPUREC_SEEDS only. Other programs on the processors change what many of
// them wait for.
var moreHostKinds = map[string][]string{
	"c":      {"sleep", "file", "spin", "sleep,pipe", "cgroup", "oversubscribed", "spin,mutex"},
	"python": {"none", "sleep", "lock", "pipe", "spin", "gc", "gil", "import", "child", "gc,sleep", "gil,pipe"},
}

// hostVariants returns the variants of the programs.
func hostVariants() (list []hostVariant) {
	seeds, all := hostSeeds()
	for _, language := range []string{"c", "python"} {
		kinds := hostKinds[language]
		if all {
			kinds = slices.Concat(kinds, moreHostKinds[language])
		}
		for _, k := range kinds {
			for seed := 1; seed <= seeds; seed++ {
				list = append(list, hostVariant{language: language, kinds: k, seed: seed})
			}
		}
	}
	return list
}

// checkHostTruth checks the truth of a program that has ended against its own clock: all intervals are in
// their steps, those of a cause do not overlap, and each fault delays the program.
func checkHostTruth(t *testing.T, v hostVariant, truth *simtest.HostTruth) {
	t.Helper()
	want := strings.Split(strings.TrimPrefix(v.kinds, "none"), ",")
	if v.kinds == "none" {
		want = nil
	}
	var kinds []string
	for _, f := range truth.Faults {
		kinds = append(kinds, f.Kind)
		if f.Function == "" || f.Line == 0 {
			t.Errorf("%+v has no place", f)
		}
	}
	slices.Sort(kinds)
	if slices.Sort(want); !slices.Equal(kinds, want) {
		t.Errorf("faults %q, not %q", kinds, want)
	}
	if len(truth.Steps) < 50 || truth.Pid == 0 || truth.Tid == 0 || truth.Language != v.language {
		t.Errorf("%d steps, pid %d, tid %d, %s", len(truth.Steps), truth.Pid, truth.Tid, truth.Language)
	}
	delays := make(map[int]int64)
	for i, h := range truth.Holds {
		step := truth.Steps[h.Step]
		if h.FromNs >= h.ToNs || h.FromNs < step.FromNs || h.ToNs > step.ToNs {
			t.Errorf("%+v is not in its step %+v", h, step)
		}
		if i > 0 && truth.Holds[i-1].ToNs > h.FromNs && h.Kind == truth.Holds[i-1].Kind {
			t.Errorf("%+v overlaps %+v", h, truth.Holds[i-1])
		}
		delays[h.Fault] += h.ToNs - h.FromNs
	}
	for _, f := range truth.Faults {
		if leastNs := int64(50e6); delays[f.Number] < leastNs {
			t.Errorf("%s delays the program by %d ns", f.Kind, delays[f.Number])
		}
	}
}
