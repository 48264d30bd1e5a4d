//go:build linux

package probe

import (
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
)

// attachEngineReturns probes the return instructions of those probes that have some: calls of PyTorch's autograd
// engine. Their entries are attached later, so that each recorded entry has its return. The caller holds p.mu.
func (p *Probes) attachEngineReturns(executable *link.Executable, probes []library.Probe, pid int) error {
	for _, at := range probes {
		if len(at.Returns) == 0 {
			continue
		}
		links, err := p.attachReturnInstructions(executable, at.Returns, pid)
		for _, l := range links {
			p.permanent.returns = append(p.permanent.returns, l)
			p.setLinkOwner(pid, l)
		}
		if err != nil {
			return err
		}
		p.count.Add(int64(len(at.Returns)))
	}
	return nil
}

// attachReturnInstructions probes instructions at file offsets: with one link, or one each with perf uprobes.
func (p *Probes) attachReturnInstructions(
	executable *link.Executable,
	offsets []uint64,
	pid int,
) (links []link.Link, err error) {
	if p.How == privilege.AttachMulti {
		opt := &link.UprobeMultiOptions{Addresses: offsets, PID: uint32(pid)}
		l, err := executable.UprobeMulti(nil, p.Objects.EngineReturn, opt)
		if err != nil {
			return nil, err
		}
		return []link.Link{l}, nil
	}
	for _, offset := range offsets {
		l, err := executable.Uprobe("", p.Objects.EngineReturn, &link.UprobeOptions{Address: offset, PID: pid})
		if err != nil {
			return links, err
		}
		links = append(links, l)
	}
	return links, nil
}
