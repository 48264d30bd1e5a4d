//go:build linux

package probe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/privilege"
)

// Kernel maps hold state of threads and processes. It is deleted when they have exited: otherwise a
// long recording of a program that starts others would fill the maps.

// ThreadReapInterval is the time between searches for exited threads. The map of thread states
// holds 65,536 threads, so at most that many may exit in this time.
const ThreadReapInterval = 10 * time.Second

// ReapThreads deletes the state of exited threads, and returns their calls that had not returned.
func (p *Probes) ReapThreads() []bpf.CudaEvent {
	var open []bpf.CudaEvent
	for _, id := range p.ListThreadIDs() {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/task/%d", id>>32, uint32(id))); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		var t bpf.CudaThread
		if p.Objects.Threads.LookupAndDelete(id, &t) == nil {
			open = appendOpenCalls(open, &t)
		}
	}
	return open
}

// ListThreadIDs returns the threads that have state in the kernel, as pid<<32|tid. An ID may occur
// twice.
func (p *Probes) ListThreadIDs() []uint64 {
	var ids []uint64
	var id uint64
	m := p.Objects.Threads
	for err := m.NextKey(nil, &id); err == nil && len(ids) < int(m.MaxEntries()); err = m.NextKey(id, &id) {
		ids = append(ids, id) // a key deleted meanwhile restarts the iteration
	}
	return ids
}

// appendOpenCalls appends a thread's calls that have not returned, from the outermost inwards.
func appendOpenCalls(open []bpf.CudaEvent, t *bpf.CudaThread) []bpf.CudaEvent {
	for i := range min(int(t.Open), len(t.Calls)) {
		e := t.Calls[i].Event
		if call, _, _, ok := bpf.FunctionByCookie(
			e.Call,
		); ok && !call.CountOnly &&
			call.Decode != bpf.CudaCallDecodeDECODE_ENGINE {
			open = append(open, e)
		}
	}
	return open
}

// setLinkOwner records that a link is attached to one process. The caller holds p.mu.
func (p *Probes) setLinkOwner(pid int, l link.Link) {
	if pid != EveryProcess {
		p.owners[l] = pid
	}
}

// closeProcessLinks closes the uprobe_multi links of an exited process, in the background. Perf uprobes
// stay: the kernel needs 0.05 to 0.3 s to remove one.
func (p *Probes) closeProcessLinks(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.How != privilege.AttachMulti {
		return
	}
	var gone []link.Link
	removeFrom := func(links *[]link.Link) {
		*links = slices.DeleteFunc(*links, func(l link.Link) bool {
			if p.owners[l] != pid || p.owners[l] == EveryProcess {
				return false
			}
			gone = append(gone, l)
			delete(p.owners, l)
			return true
		})
	}
	pairsOf := []*linkPairs{&p.permanent, &p.collectives.groups, &p.collectives.operations}
	for _, pairs := range slices.AppendSeq(pairsOf, maps.Values(p.getters)) {
		removeFrom(&pairs.entries)
		removeFrom(&pairs.returns)
	}
	for _, links := range p.windows.lists() {
		*links = slices.DeleteFunc(*links, func(l windowLink) bool {
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
	if p.gone = append(p.gone, gone...); !p.isClosing && len(p.gone) > 0 {
		p.isClosing = true
		p.closing.Go(p.closeGone)
	}
}

// closeGone closes the links of exited processes, until none is left. Next to other recorders on a busy
// machine, the links of one process take seconds.
func (p *Probes) closeGone() {
	for {
		p.mu.Lock()
		links := p.gone
		p.gone, p.isClosing = nil, len(links) > 0
		p.mu.Unlock()
		if len(links) == 0 {
			return
		}
		_ = closeLinks(links) // on an error there is nothing to do: no process can hit these probes
	}
}
