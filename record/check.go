//go:build linux

package record

import (
	"cmp"
	"context"
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
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// RequirementCheck is a result of Check: whether one requirement of a recording is met.
type RequirementCheck struct {
	// What names the requirement, such as "kernel" or "privileges".
	What string
	// Needed is true if recording fails with Err. Otherwise Without describes the consequence of
	// Err.
	Needed  bool
	Without string
	// Text describes the result if Err is nil, such as "Linux 6.12.0".
	Text string
	Err  error
}

// CheckRequirements checks whether recording with the attach method how works on this machine, and
// in process pid if pid is not 0. It attaches to no other process.
func CheckRequirements(pid int, how privilege.AttachMethod) []RequirementCheck {
	how = how.ResolveForKernel()
	findings := []RequirementCheck{
		{What: "kernel", Needed: true, Text: "Linux " + host.KernelRelease(), Err: host.CheckKernel()},
		checkAttach(how),
		{What: "privileges", Needed: true, Text: "sufficient for " + string(how), Err: privilege.CheckAttach(how)},
		checkBPFPrograms(how),
		checkFollowingChildren(how),
		checkUnwinding(how),
		checkNVML(),
		{
			What:    "kernel log",
			Text:    "/dev/kmsg is readable",
			Err:     checkReadableFile("/dev/kmsg"),
			Without: "Xid errors of the kernel log are not recorded",
		},
	}
	if pid != 0 {
		findings = append(findings, checkProcess(pid))
		findings = append(findings, checkAllocators(pid)...)
		findings = append(findings, checkTorchBlocks(pid)...)
		findings = append(findings, checkGPUTimes(pid))
	}
	return findings
}

// checkAllocators checks whether the caching allocator of a process can be recorded. It returns no
// finding for a process without a PyTorch allocator.
func checkAllocators(pid int) []RequirementCheck {
	p, err := process.Open(pid)
	if err != nil {
		return nil // checkProcess reports the error
	}
	defer p.Close()
	cache := library.NewCache()
	defer cache.Close()
	libs, err := cache.Mapped(p)
	if err != nil {
		return nil
	}
	lib := library.FirstOfKind(libs, library.KindAllocator)
	if lib == nil {
		return nil
	}
	version := library.ReadTorchVersion(p, lib.Path)
	f := RequirementCheck{What: "PyTorch", Text: strings.TrimSpace(version + " every tensor is recorded")}
	switch source, why := library.AllocatorModeAuto.ChooseSource(lib, library.FirstOfKind(libs, library.KindReports)); {
	case source == nil:
		f.Err = errors.New(library.ExplainMissingAllocator(lib.Path, version, why))
	case why != "":
		f.Text += "; " + library.ExplainReportLimits(lib.Path, version, why)
	}
	return []RequirementCheck{f}
}

// checkTorchBlocks checks whether the blocks of a process's caching allocator can be read. It returns no finding for a
// process without a PyTorch allocator, or whose mappings cannot be read.
func checkTorchBlocks(pid int) []RequirementCheck {
	p, err := process.Open(pid)
	if err != nil {
		return nil // checkProcess reports the error
	}
	defer p.Close()
	if _, err := p.Maps(); err != nil {
		return nil
	}
	sum, err := sumTorchBlocks(pid)
	if errors.Is(err, ErrNoTorch) || errors.Is(err, process.ErrNoProcess) {
		return nil
	}
	if refused := new(TorchMemoryError); errors.As(err, &refused) {
		err = refused.Err // the line need not name the process
	}
	return []RequirementCheck{{
		What: "PyTorch blocks", Text: sum.String(), Err: err,
		Without: "memory from before a recording is then unknown",
	}}
}

// sumTorchBlocks reads the blocks of all devices of a process.
func sumTorchBlocks(pid int) (sum torchSum, err error) {
	m, err := OpenTorchMemory(context.Background(), pid)
	if err != nil {
		return sum, err
	}
	defer m.Close()
	for device := range m.Devices() {
		r, err := m.Read(context.Background(), device)
		if err = cmp.Or(err, r.Refused); err != nil {
			return sum, err
		}
		sum.add(r.State)
	}
	return sum, nil
}

// torchSum is the sum of the states of some devices.
type torchSum struct {
	blocks, agree, totals int
	allocated             uint64
}

func (n *torchSum) add(state *torchallocator.State) {
	n.blocks += state.CountBlocks()
	n.allocated += state.AllocatedBytes
	n.totals += len(state.Totals)
	for _, t := range state.Totals {
		if t.Blocks == t.Statistics {
			n.agree++
		}
	}
}

// String returns numbers and bytes of the blocks, and how many totals agree. Devices that were never used have no totals.
func (n *torchSum) String() string {
	if n.totals == 0 {
		return "no blocks yet"
	}
	size := fmt.Sprintf("%.2f GiB", float64(n.allocated)/(1<<30))
	if n.allocated < 1<<30 {
		size = fmt.Sprintf("%.2f MiB", float64(n.allocated)/(1<<20))
	}
	noun := "blocks"
	if n.blocks == 1 {
		noun = "block"
	}
	return fmt.Sprintf("%d %s, %s, %d of %d totals agree", n.blocks, noun, size, n.agree, n.totals)
}

// checkGPUTimes checks whether GPU times of a process can be recorded.
func checkGPUTimes(pid int) RequirementCheck {
	text, err := progress.Check(pid)
	return RequirementCheck{What: "GPU times", Text: text, Err: err, Without: "--gpu-time records no GPU times"}
}

// checkAttach checks whether the kernel supports uprobe_multi.
func checkAttach(how privilege.AttachMethod) RequirementCheck {
	f := RequirementCheck{
		What: "uprobe_multi",
		Text: "one link probes all functions",
		Without: "perf uprobes are used: " +
			"removing each one takes 0.05 to 0.3 s",
	}
	if how != privilege.AttachMulti {
		f.Err = errors.New("not used: uprobe_multi needs Linux 6.6")
	}
	return f
}

// checkBPFPrograms loads the BPF programs and unloads them.
func checkBPFPrograms(how privilege.AttachMethod) RequirementCheck {
	f := RequirementCheck{What: "BPF programs", Needed: true, Text: "the kernel accepts them"}
	p, err := probe.LoadPrograms(probe.Options{How: how, BufferBytes: 1 << 16, Stacks: probe.StacksFP})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = p.Close()
	return f
}

// checkUnwinding starts the unwinder and runs its self-test.
func checkUnwinding(how privilege.AttachMethod) RequirementCheck {
	f := RequirementCheck{
		What: "stacks",
		Text: "complete, with Python and C++ frames",
		Without: "stacks are walked by frame " +
			"pointers: most frames of Python and PyTorch are missing",
	}
	u, err := newUnwinder(newUnwindOptions(how))
	if err != nil {
		f.Err = err
		return f
	}
	defer u.Close()
	p, err := probe.LoadPrograms(probe.Options{How: how, BufferBytes: 1 << 16, Stacks: probe.StacksAuto, Unwinder: u})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = errors.Join(probe.SelfTestUnwinding(p, u), p.Close())
	if f.Err == nil && !unwind.IsPatched() {
		f.Err, f.Without = ErrUnpatched, "native frames are complete, Python frames are missing"
	}
	return f
}

// checkFollowingChildren checks whether children of target processes can be followed.
func checkFollowingChildren(how privilege.AttachMethod) RequirementCheck {
	f := RequirementCheck{
		What: "children",
		Text: "recorded from their first call",
		Without: "child processes are not " +
			"recorded",
	}
	p, err := probe.LoadPrograms(probe.Options{How: how, BufferBytes: 1 << 16})
	if err != nil {
		f.Err = err
		return f
	}
	f.Err = errors.Join(p.FollowChildren(), p.Close())
	return f
}

// checkNVML checks whether the GPUs can be sampled.
func checkNVML() RequirementCheck {
	f := RequirementCheck{What: "NVML", Without: "GPU utilization, memory and power are not recorded"}
	t, err := nvml.Open()
	if err != nil {
		f.Err = err
		return f
	}
	defer t.Close()
	f.Text = fmt.Sprintf("driver %s, CUDA %s, %d GPUs", t.DriverVersion, t.CUDAVersion, len(t.DeviceRows(0)))
	return f
}

func checkReadableFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// checkProcess checks whether a process can be recorded.
func checkProcess(pid int) RequirementCheck {
	f := RequirementCheck{What: fmt.Sprintf("process %d", pid), Needed: true}
	tables, err := ListLibraryProbes(pid)
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

// LibraryProbes lists the probes for one library.
type LibraryProbes struct {
	Path    string
	Probes  []library.Probe
	Missing []string // functions of the call table that the library does not export
}

// ListLibraryProbes returns the probes for each libcuda and caching allocator that a process has
// mapped. It returns the same errors about processes as Start.
func ListLibraryProbes(pid int) ([]LibraryProbes, error) {
	p, err := process.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := privilege.CheckProcessAccess(p); err != nil {
		return nil, err
	}
	cache := library.NewCache()
	defer cache.Close()
	libs, err := cache.Mapped(p)
	if err != nil {
		return nil, err
	}
	if library.FirstOfKind(libs, library.KindDriver) == nil {
		return nil, &process.Error{Pid: pid, Comm: p.Comm, Err: process.ErrNoLibrary}
	}
	tables := make([]LibraryProbes, 0, len(libs))
	for _, lib := range library.AllocatorModeAuto.SelectLibraries(libs) {
		tables = append(tables, listProbesOf(lib))
	}
	return tables, nil
}

// listProbesOf returns the probes for a library, and the functions of the call table that it lacks.
func listProbesOf(l *library.Library) LibraryProbes {
	t := LibraryProbes{Path: l.Path, Probes: l.Probes}
	if l.Kind != library.KindDriver {
		return t
	}
	for i := range bpf.CallTable {
		name := bpf.CallTable[i].Name
		if !slices.ContainsFunc(l.Probes, func(p library.Probe) bool { return p.Symbol == name }) {
			t.Missing = append(t.Missing, name)
		}
	}
	return t
}
