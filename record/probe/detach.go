//go:build linux

package probe

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/privilege"
)

// MaxDetachWait limits how long the end of a recording waits for calls in flight.
const MaxDetachWait = 100 * time.Millisecond

// WaitForOpenCalls stops recording new calls and waits up to grace until the calls in flight have
// returned. Calls that are still open are no error. Call StopEvents next.
func (p *Probes) WaitForOpenCalls(grace time.Duration) error {
	if err := p.SetPaused(true); err != nil {
		return err
	}
	for end := time.Now().Add(grace); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if open, err := p.OpenCalls(); err != nil || len(open) == 0 {
			return err
		}
	}
	return nil
}

// StopEvents stops all events of the BPF programs. It removes uprobe_multi links. Perf uprobes stay
// attached until Close, because removing them is slow. Their programs return at once.
func (p *Probes) StopEvents() error {
	if p.How == privilege.AttachMulti {
		return p.detachAllProbes()
	}
	if err := p.Objects.RecordingEnded.Set(toBPFBool(true)); err != nil {
		return fmt.Errorf("stop the BPF programs: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := closeLinks(p.tracing)
	p.tracing = nil
	awaitRunningPrograms()
	return err
}

// awaitRunningPrograms waits until BPF programs that were running when it was called have ended.
// They are RCU readers, and membarrier waits for RCU readers. On machines with nohz_full CPUs the
// kernel refuses the membarrier, and awaitRunningPrograms sleeps instead.
func awaitRunningPrograms() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(MaxDetachWait) // a BPF program runs for microseconds
	}
}

// detachAllProbes removes all probes, entries first, so that each recorded entry has its return.
func (p *Probes) detachAllProbes() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removing.Wait() // no other removal begins while p.mu is held
	for name, links := range p.getters {
		p.permanent.entries = append(p.permanent.entries, links.entries...)
		p.permanent.returns = append(p.permanent.returns, links.returns...)
		delete(p.getters, name)
	}
	for _, links := range []*linkPairs{&p.collectives.groups, &p.collectives.operations} {
		p.permanent.entries = append(p.permanent.entries, links.entries...)
		p.permanent.returns = append(p.permanent.returns, links.returns...)
		*links = linkPairs{}
	}
	w := &p.windows
	p.permanent.entries = append(p.permanent.entries, listOpenLinks(w.launches)...)
	p.permanent.entries = append(p.permanent.entries, listOpenLinks(w.allocatorEvents)...)
	p.permanent.returns = append(p.permanent.returns, listOpenLinks(w.launchReturns)...)
	p.windows = windowLinks{}
	err := errors.Join(closeLinks(p.tracing), closeLinks(p.permanent.entries), closeLinks(p.permanent.returns))
	p.tracing, p.permanent = nil, linkPairs{}
	return err
}

// closeLinks closes the links of probes in parallel, which is faster for uprobe_multi. The kernel
// removes perf uprobes one at a time, in 0.05 to 0.3 s each.
func closeLinks(links []link.Link) error {
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	for chunk := range slices.Chunk(listIndexes(len(links)), max(1, len(links)/8)) {
		wg.Go(func() {
			for _, i := range chunk {
				errs[i] = links[i].Close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func listIndexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
