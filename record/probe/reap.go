//go:build linux

package probe

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/privilege"
)

// What the kernel and the probes keep of threads and processes is taken away when they are
// gone: a recorder of programs that start others would run out of room after some days.

// ReapInterval is the time between searches for threads that have ended. The kernel has room for
// the state of 65,536: so many may end in that time.
const ReapInterval = 10 * time.Second

// Reap deletes the state of threads that have ended, and returns the calls that they were in.
func (p *Probes) ReapThreads() []bpf.CudaEvent {
	var open []bpf.CudaEvent
	for _, id := range p.ThreadIDs() {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/task/%d", id>>32, uint32(id))); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		var t bpf.CudaThread
		if p.Objects.Threads.LookupAndDelete(id, &t) == nil {
			open = appendOpen(open, &t)
		}
	}
	return open
}

// ThreadIDs returns the threads that the kernel keeps state of, as pid<<32|tid. An ID may occur
// twice.
func (p *Probes) ThreadIDs() []uint64 {
	var ids []uint64
	var id uint64
	m := p.Objects.Threads
	for err := m.NextKey(nil, &id); err == nil && len(ids) < int(m.MaxEntries()); err = m.NextKey(id, &id) {
		ids = append(ids, id) // one that is deleted meanwhile begins the walk again: some come twice
	}
	return ids
}

// appendOpen appends the calls that a thread has entered, outermost first.
func appendOpen(open []bpf.CudaEvent, t *bpf.CudaThread) []bpf.CudaEvent {
	for i := range min(int(t.Open), len(t.Calls)) {
		e := t.Calls[i].Event
		if call, _, _, ok := bpf.ByCookie(e.Call); ok && !call.CountOnly {
			open = append(open, e)
		}
	}
	return open
}

// own notes that a link is of one process. The caller holds p.mu.
func (p *Probes) own(pid int, l link.Link) {
	if pid != EveryProcess {
		p.owners[l] = pid
	}
}

// unlink closes the links of a process that has ended. Those of perf uprobes stay: each
// would take the kernel 0.05 to 0.3 s.
func (p *Probes) unlink(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.How != privilege.AttachMulti {
		return
	}
	var gone []link.Link
	take := func(links *[]link.Link) {
		*links = slices.DeleteFunc(*links, func(l link.Link) bool {
			if p.owners[l] != pid || p.owners[l] == EveryProcess {
				return false
			}
			gone = append(gone, l)
			delete(p.owners, l)
			return true
		})
	}
	take(&p.lasting.entries)
	take(&p.lasting.returns)
	for _, pairs := range p.getters {
		take(&pairs.entries)
		take(&pairs.returns)
	}
	for _, links := range []*[]launchLink{&p.launches.entries, &p.launches.returns} {
		*links = slices.DeleteFunc(*links, func(l launchLink) bool {
			if int(l.options.PID) != pid {
				return false
			}
			if l.link != nil {
				gone = append(gone, l.link)
			}
			return true
		})
	}
	for key := range p.attached {
		if key.pid == pid {
			delete(p.attached, key)
		}
	}
	_ = closeLinks(gone) // nobody can hit them any more
}
