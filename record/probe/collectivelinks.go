//go:build linux

package probe

import (
	"fmt"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/library"
)

// collectiveLinks holds the links of those probes on NCCL that are removed for good if a thread calls it too often. The
// other functions of NCCL have permanent links.
type collectiveLinks struct {
	groups     linkPairs // ncclGroupStart and ncclGroupEnd
	operations linkPairs // operations whose returns are optional
	dropped    CollectiveDetail
}

// CollectiveDetail is a part of the calls of NCCL that a recording can do without: operations and numbers stay.
type CollectiveDetail uint8

const (
	// CollectiveGroups are the calls of ncclGroupStart and ncclGroupEnd, and the groups of operations.
	CollectiveGroups CollectiveDetail = 1 << iota
	// CollectiveReturns are durations and results of operations.
	CollectiveReturns
)

// attachCollectives attaches the probes of a library of NCCL to a process, without those that were removed. The caller
// holds p.mu.
func (p *Probes) attachCollectives(executable *link.Executable, probes []library.Probe, pid int) error {
	var groups, operations, others []library.Probe
	for _, at := range probes {
		switch call, _, _, _ := bpf.FunctionByCookie(at.Cookie); {
		case call.IsGroupCall():
			groups = append(groups, at)
		case call.HasOptionalReturn():
			at.Return = at.Return && p.collectives.dropped&CollectiveReturns == 0
			operations = append(operations, at)
		default:
			others = append(others, at)
		}
	}
	if p.collectives.dropped&CollectiveGroups != 0 {
		groups = nil
	}
	for _, part := range []struct {
		probes []library.Probe
		links  *linkPairs
	}{{others, &p.permanent}, {operations, &p.collectives.operations}, {groups, &p.collectives.groups}} {
		if err := p.attachMultiLinks(executable, part.probes, pid, part.links); err != nil {
			return err
		}
	}
	return nil
}

// DroppableCollectives returns the next detail about NCCL that DropCollectives can drop: groups, then returns. It
// returns 0 if there is none, or NCCL is not probed. Returns stay where an operation was called inside of another one,
// as by a wrapper: without them, both would be recorded.
func (p *Probes) DroppableCollectives() CollectiveDetail {
	var nested uint8
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.collectives
	switch {
	case len(c.operations.entries) == 0:
	case c.dropped&CollectiveGroups == 0:
		return CollectiveGroups
	case c.dropped&CollectiveReturns == 0 && p.Objects.NestedOperations.Get(&nested) == nil && nested == 0:
		return CollectiveReturns
	}
	return 0
}

// DropCollectives stops recording a detail about NCCL, for good and in all processes, and removes its probes. It waits
// until the calls in flight have returned, or stop is closed: a call that hangs stays open.
func (p *Probes) DropCollectives(detail CollectiveDetail, stop <-chan struct{}) error {
	isSkipped, isOf, links := p.Objects.SkipGroups, (*bpf.ProbedFunction).IsGroupCall, &p.collectives.groups
	if detail == CollectiveReturns {
		isSkipped, isOf = p.Objects.SkipOperationReturns, (*bpf.ProbedFunction).HasOptionalReturn
		links = &p.collectives.operations
	}
	p.mu.Lock()
	p.collectives.dropped |= detail
	p.mu.Unlock()
	if err := isSkipped.Set(toBPFBool(true)); err != nil {
		return fmt.Errorf("drop details of NCCL: %w", err)
	}
	if detail == CollectiveGroups {
		if err := p.closeLinksOf(&links.entries); err != nil {
			return err
		}
	}
	if returned, err := p.awaitReturns(stop, 0, isOf); err != nil || !returned {
		return err
	}
	return p.closeLinksOf(&links.returns)
}

// closeLinksOf closes the links of a list and empties it. Other probes can be attached and removed meanwhile.
func (p *Probes) closeLinksOf(list *[]link.Link) error {
	p.mu.Lock()
	links := *list
	*list = nil
	for _, l := range links {
		delete(p.owners, l)
	}
	p.removing.Add(1)
	defer p.removing.Done()
	p.mu.Unlock()
	return closeLinks(links)
}
