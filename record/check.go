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
func Check(pid int, how Attach) []Finding {
	how = how.onThisKernel()
	findings := []Finding{
		{What: "kernel", Needed: true, Text: "Linux " + osRelease(), Err: CheckKernel()},
		checkAttach(how),
		{What: "privileges", Needed: true, Text: "enough for " + string(how), Err: CheckPrivileges(how)},
		checkPrograms(how),
		checkFollow(how),
		checkStacks(how),
		checkNVML(),
		{What: "kernel log", Text: "/dev/kmsg can be read", Err: checkReadable("/dev/kmsg"), Without: "no Xid errors from the kernel log"},
	}
	if pid != 0 {
		findings = append(findings, checkProcess(pid))
		findings = append(findings, checkAllocators(pid)...)
	}
	return findings
}

// checkAllocators tells of the caching allocator of a process whether it can be recorded.
func checkAllocators(pid int) []Finding {
	p, err := openProcess(pid)
	if err != nil {
		return nil // checkProcess says so
	}
	defer p.close()
	cache := newLibraryCache()
	defer cache.close()
	libs, err := cache.libraries(p)
	if err != nil {
		return nil
	}
	lib := firstOf(libs, allocatorLibrary)
	if lib == nil {
		return nil
	}
	version := torchVersion(p, lib.path)
	f := Finding{What: "PyTorch", Text: strings.TrimSpace(version + " every tensor is recorded")}
	switch teller, why := AllocatorAuto.teller(lib, firstOf(libs, reportLibrary)); {
	case teller == nil:
		f.Err = errors.New(missingAllocator(lib.path, version, why))
	case why != "":
		f.Text += "; " + limitedAllocator(lib.path, version, why)
	}
	return []Finding{f}
}

func checkAttach(how Attach) Finding {
	f := Finding{What: "uprobe_multi", Text: "one link for all functions", Without: "perf uprobes are used: removing them takes 0.05 to 0.3 s each"}
	if how != AttachMulti {
		f.Err = errors.New("not used: the kernel has it from Linux 6.6 on")
	}
	return f
}

// checkPrograms loads the BPF programs and drops them again.
func checkPrograms(how Attach) Finding {
	f := Finding{What: "BPF programs", Needed: true, Text: "the kernel accepts them"}
	p, err := loadProbes(probeOptions{how: how, bufferBytes: 1 << 16, stacks: StacksFP})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = p.close()
	return f
}

// checkStacks starts the unwinder and has it prove itself.
func checkStacks(how Attach) Finding {
	f := Finding{What: "stacks", Text: "complete, Python and C++", Without: "stacks are walked by frame pointers: most frames of Python and PyTorch are missing"}
	u, err := startUnwinding(unwindOptions(how))
	if err != nil {
		f.Err = err
		return f
	}
	defer u.Close()
	p, err := loadProbes(probeOptions{how: how, bufferBytes: 1 << 16, stacks: StacksAuto, unwinder: u})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = errors.Join(selfTest(p, u), p.close())
	if f.Err == nil && !unwind.Patched() {
		f.Err, f.Without = ErrUnpatched, "native frames are complete"
	}
	return f
}

// checkFollow tries whether children of recorded processes can be followed.
func checkFollow(how Attach) Finding {
	f := Finding{What: "children", Text: "are followed from their first call", Without: "child processes are not recorded"}
	p, err := loadProbes(probeOptions{how: how, bufferBytes: 1 << 16})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = errors.Join(p.follow(), p.close())
	return f
}

func checkNVML() Finding {
	f := Finding{What: "NVML", Without: "no GPU utilisation, memory or power in recordings"}
	t, err := openTelemetry()
	if err != nil {
		f.Err = err
		return f
	}
	defer t.close()
	f.Text = fmt.Sprintf("driver %s, CUDA %s, %d GPUs", t.driver, t.cuda, len(t.facts(0)))
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
	Probes  []Probe
	Missing []string // functions of the table that the library does not export
}

// Calls returns, for every libcuda and caching allocator that the process has mapped, what
// would be probed in it. Errors are those of Start about processes.
func Calls(pid int) ([]CallTable, error) {
	p, err := openProcess(pid)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.checkAccess(); err != nil {
		return nil, err
	}
	cache := newLibraryCache()
	defer cache.close()
	libs, err := cache.libraries(p)
	if err != nil {
		return nil, err
	}
	if firstOf(libs, driverLibrary) == nil {
		return nil, &ProcessError{Pid: pid, Comm: p.comm, Err: ErrNoLibrary}
	}
	tables := make([]CallTable, 0, len(libs))
	for _, lib := range AllocatorAuto.wanted(libs) {
		tables = append(tables, lib.table())
	}
	return tables, nil
}

func (l *library) table() CallTable {
	t := CallTable{Path: l.path, Probes: l.probes}
	if l.kind != driverLibrary {
		return t
	}
	for i := range bpf.Calls {
		name := bpf.Calls[i].Name
		if !slices.ContainsFunc(l.probes, func(p Probe) bool { return p.Symbol == name }) {
			t.Missing = append(t.Missing, name)
		}
	}
	return t
}
