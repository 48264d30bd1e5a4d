//go:build linux

package record

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
)

// What the kernel and the probes keep of threads and processes is taken away when they are
// gone: a recorder of programs that start others would run out of room after some days.

// reapInterval is how often threads are looked for that are gone. The kernel has room for
// the state of 65,536: so many may end in that time.
const reapInterval = 10 * time.Second

// reapThreads deletes the state of threads that are gone, until stop is closed. The calls
// that they were in are handed to the scribe, as open.
func (s *Session) reapThreads(stop <-chan struct{}) {
	for !sleep(stop, reapInterval) {
		if open := s.probes.reap(); len(open) > 0 {
			markOpen(open, clockNs(unix.CLOCK_MONOTONIC))
			s.scribe.addOpen(open)
		}
	}
}

// reap deletes the state of threads that are gone and returns the calls that they were in.
func (p *probes) reap() []bpf.CudaEvent {
	var open []bpf.CudaEvent
	for _, id := range p.threadIDs() {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/task/%d", id>>32, uint32(id))); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		var t bpf.CudaThread
		if p.objects.Threads.LookupAndDelete(id, &t) == nil {
			open = appendOpen(open, &t)
		}
	}
	return open
}

// threadIDs are the threads that the kernel keeps state of, pid<<32|tid.
func (p *probes) threadIDs() []uint64 {
	var ids []uint64
	var id uint64
	m := p.objects.Threads
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
func (p *probes) own(pid int, l link.Link) {
	if pid != everyProcess {
		p.owners[l] = pid
	}
}

// unlink closes the links of a process that has ended. Those of perf uprobes stay: each
// would take the kernel 0.05 to 0.3 s.
func (p *probes) unlink(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.how != AttachMulti {
		return
	}
	var gone []link.Link
	take := func(links *[]link.Link) {
		*links = slices.DeleteFunc(*links, func(l link.Link) bool {
			if p.owners[l] != pid || p.owners[l] == everyProcess {
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
