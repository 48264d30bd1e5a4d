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

// DetachGrace is how long the end of a recording waits for calls in flight.
const DetachGrace = 100 * time.Millisecond

// WaitForOpenCalls stops recording new calls and waits, grace at most, until those in flight have
// returned. StopEvents may follow.
func (p *Probes) WaitForOpenCalls(grace time.Duration) error {
	if err := p.Pause(true); err != nil {
		return err
	}
	for end := time.Now().Add(grace); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if open, err := p.OpenCalls(); err != nil || len(open) == 0 {
			return err
		}
	}
	return nil
}

// StopEvents ends all events of the programs. It removes links of uprobe_multi. Perf uprobes stay,
// because removing them takes long: their programs return at once, and Close removes them.
func (p *Probes) StopEvents() error {
	if p.How == privilege.AttachMulti {
		return p.detach()
	}
	if err := p.Objects.RecordingEnded.Set(flag(true)); err != nil {
		return fmt.Errorf("end the BPF programs: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := closeLinks(p.tracing)
	p.tracing = nil
	awaitPrograms()
	return err
}

// awaitPrograms waits until BPF programs have ended that were under way when it was called:
// they are RCU readers, for which this membarrier waits. It is refused on machines with
// CPUs that have no tick.
func awaitPrograms() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(DetachGrace) // a program takes microseconds
	}
}

// detach removes the probes: entries first, so that no entry lacks its return.
func (p *Probes) detach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, links := range p.getters {
		p.lasting.entries = append(p.lasting.entries, links.entries...)
		p.lasting.returns = append(p.lasting.returns, links.returns...)
		delete(p.getters, name)
	}
	p.lasting.entries = append(p.lasting.entries, placed(p.launches.entries)...)
	p.lasting.returns = append(p.lasting.returns, placed(p.launches.returns)...)
	p.launches = launchLinks{}
	err := errors.Join(closeLinks(p.tracing), closeLinks(p.lasting.entries), closeLinks(p.lasting.returns))
	p.tracing, p.lasting = nil, linkPairs{}
	return err
}

// closeLinks closes links side by side, which helps uprobe_multi; perf uprobes the kernel takes
// away one at a time, 0.05 to 0.3 s each.
func closeLinks(links []link.Link) error {
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	for chunk := range slices.Chunk(indexes(len(links)), max(1, len(links)/8)) {
		wg.Go(func() {
			for _, i := range chunk {
				errs[i] = links[i].Close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
