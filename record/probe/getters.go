//go:build linux

package probe

import (
	"errors"
	"time"

	"github.com/gpurec/gpurec/bpf"
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

// RemoveGetterProbes removes the probes of a getter, for good. It reports whether there were any.
// It waits 10 ms between entries and returns, so that most calls in flight return before.
func (p *Probes) RemoveGetterProbes(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := p.getters[name]
	delete(p.getters, name)
	if links == nil {
		return false
	}
	err := closeLinks(links.entries)
	time.Sleep(10 * time.Millisecond)
	// The kernel removes a link that cannot be closed when the recorder exits.
	_ = errors.Join(err, closeLinks(links.returns))
	return true
}
