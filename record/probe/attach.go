//go:build linux

package probe

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
)

// AttachLibrary attaches the probes of a library to one process, or to all processes with
// EveryProcess. It does nothing if the library was attached before, or an attempt failed. Return
// probes are attached before entry probes, so that each recorded entry has its return.
func (p *Probes) AttachLibrary(lib *library.Library, pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := attachment{lib.ID, pid}
	if p.attached[key] || p.attached[attachment{lib.ID, EveryProcess}] {
		return nil
	}
	p.attached[key] = true // also on an error: some probes may be attached
	var err error
	if p.How == privilege.AttachMulti {
		err = p.attachMulti(lib, pid)
	} else {
		err = p.attachPerf(lib, pid)
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", lib.Path, err)
	}
	return nil
}

// attachMulti attaches with uprobe_multi: one pair of links for all permanent probes, and separate
// links for probes that may be removed during the recording.
func (p *Probes) attachMulti(lib *library.Library, pid int) error {
	executable, err := link.OpenExecutable(lib.Executable())
	if err != nil {
		return err
	}
	var permanent, launches, allocator, collectives, engine []library.Probe
	getters := make(map[string][]library.Probe)
	for _, at := range p.selectedProbes(lib) {
		switch call, _, _, _ := bpf.FunctionByCookie(at.Cookie); {
		case call.Getter:
			getters[call.Name] = append(getters[call.Name], at)
		case call.SamplesReturnProbes():
			launches = append(launches, at)
		case call.Class == bpf.CudaCallClassCLASS_ALLOCATOR:
			allocator = append(allocator, at)
		case call.Class == bpf.CudaCallClassCLASS_COLLECTIVE:
			collectives = append(collectives, at)
		case call.Class == bpf.CudaCallClassCLASS_ENGINE:
			engine = append(engine, at)
		default:
			permanent = append(permanent, at)
		}
	}
	for _, probes := range [][]library.Probe{launches, allocator} {
		if len(probes) == 0 {
			continue
		}
		if err := p.addWindowLinks(executable, probes, pid); err != nil {
			return err
		}
	}
	if err := p.attachMultiLinks(executable, permanent, pid, &p.permanent); err != nil {
		return err
	}
	if err := p.attachCollectives(executable, collectives, pid); err != nil {
		return err
	}
	if err := p.attachEngineReturns(executable, engine, pid); err != nil {
		return err
	}
	if err := p.attachMultiLinks(executable, engine, pid, &p.permanent); err != nil {
		return err
	}
	if p.isHolding {
		p.held = append(p.held, func() error {
			err := p.attachGetters(executable, getters, pid)
			if pid != EveryProcess && errors.Is(err, os.ErrNotExist) {
				return nil // the library file is open, so the process has exited
			}
			return err
		})
		return nil
	}
	return p.attachGetters(executable, getters, pid)
}

// entryProgram returns the BPF program for the entry of a function.
func (p *Probes) entryProgram(cookie uint16) *ebpf.Program {
	switch call, _, _, _ := bpf.FunctionByCookie(cookie); {
	case call.SamplesReturnProbes():
		return p.Objects.LaunchEnter
	case call.Class == bpf.CudaCallClassCLASS_ALLOCATOR:
		return p.Objects.AllocatorEnter
	case call.Class == bpf.CudaCallClassCLASS_COLLECTIVE:
		return p.Objects.CollectiveEnter
	case call.Class == bpf.CudaCallClassCLASS_ENGINE:
		return p.Objects.EngineEnter
	}
	return p.Objects.CallEnter
}

// attachMultiLinks attaches probes with uprobe_multi: one link for their entries and, where returns
// are probed, one for their returns. All probes must have the same entry program. It appends the
// links to pairs.
func (p *Probes) attachMultiLinks(
	executable *link.Executable,
	probes []library.Probe,
	pid int,
	pairs *linkPairs,
) error {
	if len(probes) == 0 {
		return nil
	}
	entry, exit := makeMultiOptions(probes, pid)
	if len(exit.Addresses) > 0 {
		returns, err := executable.UretprobeMulti(nil, p.Objects.CallExit, &exit)
		if err != nil {
			return err
		}
		pairs.returns = append(pairs.returns, returns)
		p.setLinkOwner(pid, returns)
	}
	entries, err := executable.UprobeMulti(nil, p.entryProgram(probes[0].Cookie), &entry)
	if err != nil {
		return err
	}
	pairs.entries = append(pairs.entries, entries)
	p.setLinkOwner(pid, entries)
	p.count.Add(int64(len(entry.Addresses) + len(exit.Addresses)))
	return nil
}

// makeMultiOptions returns the link options for the entries and for the returns of probes.
func makeMultiOptions(probes []library.Probe, pid int) (entry, exit link.UprobeMultiOptions) {
	entry.PID, exit.PID = uint32(pid), uint32(pid)
	for _, at := range probes {
		entry.Addresses = append(entry.Addresses, at.FileOffset)
		entry.Cookies = append(entry.Cookies, uint64(at.Cookie))
		if at.Return {
			exit.Addresses = append(exit.Addresses, at.FileOffset)
			exit.Cookies = append(exit.Cookies, uint64(at.Cookie))
		}
	}
	return entry, exit
}

// selectedProbes returns the probes of a library that Options.Functions and Options.Classes select.
func (p *Probes) selectedProbes(lib *library.Library) []library.Probe {
	return slices.DeleteFunc(slices.Clone(lib.Probes), func(at library.Probe) bool {
		call, _, _, _ := bpf.FunctionByCookie(at.Cookie)
		return len(p.functions) > 0 && !slices.Contains(p.functions, at.Symbol) || call.ForKernelArgs && !p.arguments ||
			!call.ForKernelArgs && !IsFunctionNeeded(call, p.classes)
	})
}

// moveAllocationsLast moves the probes of allocations behind all others. Perf uprobes are attached
// one by one while the program runs. A free without its allocation is harmless; an allocation
// without its free would be reported as a leak.
func moveAllocationsLast(probes []library.Probe) []library.Probe {
	isAllocation := func(at library.Probe) bool {
		call, _, _, _ := bpf.FunctionByCookie(at.Cookie)
		return call.Kind == format.KindAlloc
	}
	return append(slices.DeleteFunc(slices.Clone(probes), isAllocation),
		slices.DeleteFunc(slices.Clone(probes), func(at library.Probe) bool { return !isAllocation(at) })...)
}

// attachPerf attaches with perf uprobes, one link for each entry and return.
func (p *Probes) attachPerf(lib *library.Library, pid int) error {
	executable, err := link.OpenExecutable(lib.Executable())
	if err != nil {
		return err
	}
	probes := moveAllocationsLast(p.selectedProbes(lib))
	if err := p.attachEngineReturns(executable, probes, pid); err != nil {
		return err
	}
	for _, at := range probes {
		opt := &link.UprobeOptions{Address: at.FileOffset, PID: pid, Cookie: uint64(at.Cookie)}
		if at.Return {
			l, err := executable.Uretprobe("", p.Objects.CallExit, opt)
			if err != nil {
				return err
			}
			p.permanent.returns = append(p.permanent.returns, l)
			p.count.Add(1)
		}
		l, err := executable.Uprobe("", p.entryProgram(at.Cookie), opt)
		if err != nil {
			return err
		}
		p.permanent.entries = append(p.permanent.entries, l)
		p.count.Add(1)
	}
	return nil
}
