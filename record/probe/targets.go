//go:build linux

package probe

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
)

// toBPFBool returns a boolean as the BPF programs store it.
func toBPFBool(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// FollowChildren makes the children of targets targets before they run. It fails without kernel
// BTF.
func (p *Probes) FollowChildren() error {
	replace := map[string]*ebpf.Map{
		"events":           p.Objects.Events,
		"targets":          p.Objects.Targets,
		"allocators":       p.Objects.Allocators,
		"engine_processes": p.Objects.EngineProcesses,
	}
	spec, err := bpf.LoadProcess()
	if err != nil {
		return fmt.Errorf("read BPF programs: %w", err)
	}
	spec.Maps["events"].MaxEntries = p.Objects.Events.MaxEntries()
	if err := spec.LoadAndAssign(&p.process, &ebpf.CollectionOptions{MapReplacements: replace}); err != nil {
		return fmt.Errorf("load the BPF programs that follow child processes: %w", err)
	}
	for _, program := range []*ebpf.Program{p.process.ProcessFork, p.process.ProcessExec} {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return fmt.Errorf("attach to process events: %w", err)
		}
		p.tracing = append(p.tracing, l)
	}
	return nil
}

// LostProcessEvents returns the number of forks and execs that did not fit into the ring buffer.
func (p *Probes) LostProcessEvents() uint64 {
	var n uint64
	if v := p.process.LostProcessEvents; v == nil || v.Get(&n) != nil {
		return 0
	}
	return n
}

// SetPaused stops recording new calls, or resumes it. Returns of calls in flight are still
// recorded.
func (p *Probes) SetPaused(on bool) error {
	if err := p.Objects.Paused.Set(toBPFBool(on)); err != nil {
		return fmt.Errorf("pause the BPF programs: %w", err)
	}
	return nil
}

// SkipLaunchStacks makes the BPF programs record kernel launches without stacks (on), or with
// stacks.
func (p *Probes) SkipLaunchStacks(on bool) error {
	if err := p.Objects.SkipStacks.Set(toBPFBool(on)); err != nil {
		return fmt.Errorf("switch the stacks of launches: %w", err)
	}
	return nil
}

// RemoveTarget removes the kernel state and the links of an exited process.
func (p *Probes) RemoveTarget(pid int) {
	_ = p.Objects.Targets.Delete(uint32(pid)) // errors are ignored: entries may have been deleted
	_ = p.Objects.CodeMaps.Delete(uint32(pid))
	_ = p.Objects.Allocators.Delete(uint32(pid))
	_ = p.Objects.EngineProcesses.Delete(uint32(pid))
	p.closeProcessLinks(pid)
}

// AddTarget makes a process a target: the BPF programs record its calls.
func (p *Probes) AddTarget(pid int) error {
	if err := p.Objects.Targets.Put(uint32(pid), uint32(1)); err != nil {
		return fmt.Errorf("add process %d to the recording: %w", pid, err)
	}
	return nil
}
