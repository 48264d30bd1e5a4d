//go:build linux

package probe

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
)

// Attach places the probes of a library for one process, or for all with EveryProcess. It does
// nothing if that was done or tried before. Returns are probed before entries, so that no entry
// lacks its return.
func (p *Probes) Attach(lib *library.Library, pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := attachment{lib.ID, pid}
	if p.attached[key] || p.attached[attachment{lib.ID, EveryProcess}] {
		return nil
	}
	p.attached[key] = true // a part may be in place even if it fails
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

// attachMulti makes one pair of links for all functions, and one for each that may be
// dropped, as a whole or its return.
func (p *Probes) attachMulti(lib *library.Library, pid int) error {
	executable, err := link.OpenExecutable(lib.Executable())
	if err != nil {
		return err
	}
	var lasting, launches, allocator []library.Probe
	getters := make(map[string][]library.Probe)
	for _, at := range p.wanted(lib) {
		switch call, _, _, _ := bpf.ByCookie(at.Cookie); {
		case call.Getter:
			getters[call.Name] = append(getters[call.Name], at)
		case call.SamplesReturns():
			launches = append(launches, at)
		case call.Class == bpf.CudaCallClassCLASS_ALLOCATOR:
			allocator = append(allocator, at)
		default:
			lasting = append(lasting, at)
		}
	}
	if len(launches) > 0 {
		if err := p.linkLaunches(executable, launches, pid); err != nil {
			return err
		}
	}
	for _, probes := range [][]library.Probe{lasting, allocator} {
		if err := p.linkMulti(executable, probes, pid, &p.lasting); err != nil {
			return err
		}
	}
	for name, probes := range getters {
		if p.getters[name] == nil {
			p.getters[name] = new(linkPairs)
		}
		if err := p.linkMulti(executable, probes, pid, p.getters[name]); err != nil {
			return err
		}
	}
	return nil
}

// entryProgram is the program at the entry of a function.
func (p *Probes) entryProgram(cookie uint16) *ebpf.Program {
	switch call, _, _, _ := bpf.ByCookie(cookie); {
	case call.SamplesReturns():
		return p.Objects.LaunchEnter
	case call.Class == bpf.CudaCallClassCLASS_ALLOCATOR:
		return p.Objects.AllocatorEnter
	}
	return p.Objects.CallEnter
}

// linkMulti links entries and returns of the probes, whose entries have one program; a return
// only where one is needed.
func (p *Probes) linkMulti(executable *link.Executable, probes []library.Probe, pid int, to *linkPairs) error {
	if len(probes) == 0 {
		return nil
	}
	entry, exit := multiOptions(probes, pid)
	if len(exit.Addresses) > 0 {
		returns, err := executable.UretprobeMulti(nil, p.Objects.CallExit, &exit)
		if err != nil {
			return err
		}
		to.returns = append(to.returns, returns)
		p.own(pid, returns)
	}
	entries, err := executable.UprobeMulti(nil, p.entryProgram(probes[0].Cookie), &entry)
	if err != nil {
		return err
	}
	to.entries = append(to.entries, entries)
	p.own(pid, entries)
	p.count.Add(int64(len(entry.Addresses) + len(exit.Addresses)))
	return nil
}

// multiOptions are the entries and the returns to probe.
func multiOptions(probes []library.Probe, pid int) (entry, exit link.UprobeMultiOptions) {
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

// wanted are the probes of a library that are to be placed.
func (p *Probes) wanted(lib *library.Library) []library.Probe {
	if len(p.functions) == 0 && len(p.classes) == 0 {
		return lib.Probes
	}
	return slices.DeleteFunc(slices.Clone(lib.Probes), func(at library.Probe) bool {
		call, _, _, _ := bpf.ByCookie(at.Cookie)
		return len(p.functions) > 0 && !slices.Contains(p.functions, at.Symbol) || !IsNeeded(call, p.classes)
	})
}

// allocationsLast orders probes that are placed one after the other. In a library that is used
// meanwhile, a free without its allocation is no harm, but the reverse would be taken for a leak.
func allocationsLast(probes []library.Probe) []library.Probe {
	isAllocation := func(at library.Probe) bool {
		call, _, _, _ := bpf.ByCookie(at.Cookie)
		return call.Kind == format.KindAlloc
	}
	return append(slices.DeleteFunc(slices.Clone(probes), isAllocation),
		slices.DeleteFunc(slices.Clone(probes), func(at library.Probe) bool { return !isAllocation(at) })...)
}

func (p *Probes) attachPerf(lib *library.Library, pid int) error {
	executable, err := link.OpenExecutable(lib.Executable())
	if err != nil {
		return err
	}
	for _, at := range allocationsLast(p.wanted(lib)) {
		opt := &link.UprobeOptions{Address: at.FileOffset, PID: pid, Cookie: uint64(at.Cookie)}
		if at.Return {
			l, err := executable.Uretprobe("", p.Objects.CallExit, opt)
			if err != nil {
				return err
			}
			p.lasting.returns = append(p.lasting.returns, l)
			p.count.Add(1)
		}
		l, err := executable.Uprobe("", p.entryProgram(at.Cookie), opt)
		if err != nil {
			return err
		}
		p.lasting.entries = append(p.lasting.entries, l)
		p.count.Add(1)
	}
	return nil
}
