//go:build linux

package record

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/unwind"

	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
)

// Finding is one thing that Check looked at.
type Finding struct {
	What string
	// Needed is whether recording fails without it; else Without says what is lost.
	Needed  bool
	Without string
	// Text says what was found when Err is nil.
	Text string
	Err  error
}

// Check tells what recording in this way would find here, and about process pid if
// that is not 0. It attaches to nothing.
func Check(pid int, how privilege.Attach) []Finding {
	how = how.OnThisKernel()
	findings := []Finding{
		{What: "kernel", Needed: true, Text: "Linux " + host.Release(), Err: host.CheckKernel()},
		checkAttach(how),
		{What: "privileges", Needed: true, Text: "enough for " + string(how), Err: privilege.Check(how)},
		checkPrograms(how),
		checkFollow(how),
		checkStacks(how),
		checkNVML(),
		{
			What:    "kernel log",
			Text:    "/dev/kmsg can be read",
			Err:     checkReadable("/dev/kmsg"),
			Without: "no Xid errors from the kernel log",
		},
	}
	if pid != 0 {
		findings = append(findings, checkProcess(pid))
		findings = append(findings, checkAllocators(pid)...)
	}
	return findings
}

// checkAllocators tells of the caching allocator of a process whether it can be recorded.
func checkAllocators(pid int) []Finding {
	p, err := process.Open(pid)
	if err != nil {
		return nil // checkProcess says so
	}
	defer p.Close()
	cache := library.NewCache()
	defer cache.Close()
	libs, err := cache.Mapped(p)
	if err != nil {
		return nil
	}
	lib := library.First(libs, library.Allocator)
	if lib == nil {
		return nil
	}
	version := library.TorchVersion(p, lib.Path)
	f := Finding{What: "PyTorch", Text: strings.TrimSpace(version + " every tensor is recorded")}
	switch teller, why := library.AllocatorAuto.ChooseSource(lib, library.First(libs, library.Reports)); {
	case teller == nil:
		f.Err = errors.New(library.MissingText(lib.Path, version, why))
	case why != "":
		f.Text += "; " + library.LimitsText(lib.Path, version, why)
	}
	return []Finding{f}
}

func checkAttach(how privilege.Attach) Finding {
	f := Finding{What: "uprobe_multi", Text: "one link for all functions", Without: "perf uprobes are used: " +
		"removing them takes 0.05 to 0.3 s each"}
	if how != privilege.AttachMulti {
		f.Err = errors.New("not used: the kernel has it from Linux 6.6 on")
	}
	return f
}

// checkPrograms loads the BPF programs and drops them again.
func checkPrograms(how privilege.Attach) Finding {
	f := Finding{What: "BPF programs", Needed: true, Text: "the kernel accepts them"}
	p, err := probe.Load(probe.Options{How: how, BufferBytes: 1 << 16, Stacks: probe.StacksFP})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = p.Close()
	return f
}

// checkStacks starts the unwinder and has it prove itself.
func checkStacks(how privilege.Attach) Finding {
	f := Finding{What: "stacks", Text: "complete, Python and C++", Without: "stacks are walked by frame pointers: " +
		"most frames of Python and PyTorch are missing"}
	u, err := startUnwinding(unwindOptions(how))
	if err != nil {
		f.Err = err
		return f
	}
	defer u.Close()
	p, err := probe.Load(probe.Options{How: how, BufferBytes: 1 << 16, Stacks: probe.StacksAuto, Unwinder: u})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = errors.Join(probe.SelfTest(p, u), p.Close())
	if f.Err == nil && !unwind.Patched() {
		f.Err, f.Without = ErrUnpatched, "native frames are complete"
	}
	return f
}

// checkFollow tries whether children of recorded processes can be followed.
func checkFollow(how privilege.Attach) Finding {
	f := Finding{What: "children", Text: "are followed from their first call", Without: "child processes are not " +
		"recorded"}
	p, err := probe.Load(probe.Options{How: how, BufferBytes: 1 << 16})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = errors.Join(p.FollowChildren(), p.Close())
	return f
}

func checkNVML() Finding {
	f := Finding{What: "NVML", Without: "no GPU utilisation, memory or power in recordings"}
	t, err := nvml.Open()
	if err != nil {
		f.Err = err
		return f
	}
	defer t.Close()
	f.Text = fmt.Sprintf("driver %s, CUDA %s, %d GPUs", t.DriverVersion, t.CUDAVersion, len(t.Facts(0)))
	return f
}

func checkReadable(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

func checkProcess(pid int) Finding {
	f := Finding{What: fmt.Sprintf("process %d", pid), Needed: true}
	tables, err := Calls(pid)
	if err != nil {
		f.Err = err
		return f
	}
	var texts []string
	for _, t := range tables {
		slow := 0
		for _, p := range t.Probes {
			if !p.Emulated {
				slow++
			}
		}
		texts = append(texts, fmt.Sprintf("%s: %d functions, %d of them single-stepped", t.Path, len(t.Probes), slow))
	}
	f.Text = strings.Join(texts, "; ")
	return f
}

// CallTable says what would be probed in one library.
type CallTable struct {
	Path    string
	Probes  []library.Probe
	Missing []string // functions of the table that the library does not export
}

// Calls returns, for every libcuda and caching allocator that the process has mapped, what
// would be probed in it. Errors are those of Start about processes.
func Calls(pid int) ([]CallTable, error) {
	p, err := process.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := privilege.CheckAccess(p); err != nil {
		return nil, err
	}
	cache := library.NewCache()
	defer cache.Close()
	libs, err := cache.Mapped(p)
	if err != nil {
		return nil, err
	}
	if library.First(libs, library.Driver) == nil {
		return nil, &process.Error{Pid: pid, Comm: p.Comm, Err: process.ErrNoLibrary}
	}
	tables := make([]CallTable, 0, len(libs))
	for _, lib := range library.AllocatorAuto.Wanted(libs) {
		tables = append(tables, tableOf(lib))
	}
	return tables, nil
}

func tableOf(l *library.Library) CallTable {
	t := CallTable{Path: l.Path, Probes: l.Probes}
	if l.Kind != library.Driver {
		return t
	}
	for i := range bpf.Calls {
		name := bpf.Calls[i].Name
		if !slices.ContainsFunc(l.Probes, func(p library.Probe) bool { return p.Symbol == name }) {
			t.Missing = append(t.Missing, name)
		}
	}
	return t
}
