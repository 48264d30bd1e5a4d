//go:build linux

package probe

import (
	"errors"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/library"
)

// GetterCalls returns the number of calls of each getter (bpf.ProbedFunction.Getter), by function
// name.
func (p *Probes) GetterCalls() map[string]uint64 {
	calls := make(map[string]uint64)
	for cookie := range bpf.NumDriverCookies() {
		call, _, _, _ := bpf.FunctionByCookie(uint16(cookie))
		if !call.Getter {
			continue
		}
		var cpus []uint64
		if p.Objects.Counts.Lookup(uint32(cookie), &cpus) == nil {
			for _, n := range cpus {
				calls[call.Name] += n
			}
		}
	}
	return calls
}

// RemoveGetterProbes removes the probes of getters, for good. It returns the names of those that had any. It waits 10 ms
// between entries and returns, so that most calls in flight return before. Other probes can be attached and removed
// meanwhile: the kernel takes up to 0.2 s to close a link.
func (p *Probes) RemoveGetterProbes(names []string) (removed []string) {
	var links linkPairs
	p.mu.Lock()
	for _, name := range names {
		if l := p.getters[name]; l != nil {
			links.entries, links.returns = append(links.entries, l.entries...), append(links.returns, l.returns...)
			removed = append(removed, name)
		}
		delete(p.getters, name)
	}
	p.removing.Add(1)
	defer p.removing.Done()
	p.mu.Unlock()
	if len(removed) == 0 {
		return nil
	}
	err := closeLinks(links.entries)
	time.Sleep(10 * time.Millisecond)
	// The kernel removes a link that cannot be closed when the recorder exits.
	_ = errors.Join(err, closeLinks(links.returns))
	return removed
}

// attachGetters attaches the probes of getters of one library, by name. The caller holds p.mu.
func (p *Probes) attachGetters(executable *link.Executable, getters map[string][]library.Probe, pid int) error {
	for name, probes := range getters {
		if p.getters[name] == nil {
			p.getters[name] = new(linkPairs)
		}
		if err := p.attachMultiLinks(executable, probes, pid, p.getters[name]); err != nil {
			return err
		}
	}
	return nil
}
