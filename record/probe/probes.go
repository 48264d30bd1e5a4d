//go:build linux

package probe

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
)

// Probes holds the BPF programs and their links. The kernel removes the probes with the links,
// also when the recorder dies. Safe for concurrent use.
type Probes struct {
	How     privilege.Attach
	Objects bpf.CudaObjects
	process bpf.ProcessObjects // follows children; empty if it does not
	unwind  struct {           // the end of unwinding; empty if nothing is unwound
		UnwindStop *ebpf.Program `ebpf:"unwind_stop"`
	}

	functions []string // probed alone, if not empty
	classes   []string // probed alone, if not empty

	// Missing are the times without launches.
	Missing MissingTimes

	mu       sync.Mutex
	tracing  []link.Link
	lasting  linkPairs
	launches launchLinks
	getters  map[string]*linkPairs // by function
	attached map[attachment]bool
	count    atomic.Int64 // places probed, entries and returns
	// owners are the processes of which a link is, if it is of one alone.
	owners map[link.Link]int
}

// linkPairs are links to entries of functions and to their returns; entries are to be
// closed first, so that no return is missed.
type linkPairs struct{ entries, returns []link.Link }

// attachment is one library probed for one process, or for all with EveryProcess.
type attachment struct {
	lib process.FileID
	pid int
}

// EveryProcess is the pid of probes that every process hits. Only targets are recorded, but other
// processes pay for the probes, too.
const EveryProcess = 0

// AttachedPids returns the processes for which libraries are probed, in any order, EveryProcess among
// them where probes are placed for all.
func (p *Probes) AttachedPids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pids []int
	for key := range p.attached {
		pids = append(pids, key.pid)
	}
	return pids
}

// Links returns how many links of entries and of returns are in place, without those that come and
// go while it records.
func (p *Probes) Links() (entries, returns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lasting.entries), len(p.lasting.returns)
}

// Placed returns how many places are probed, entries and returns. It does not wait for probes
// that are being placed or removed, which can take seconds: the row writer asks at every rotation.
func (p *Probes) ProbeCount() int { return int(p.count.Load()) }

// Close removes the probes that are still there and frees the programs.
func (p *Probes) Close() error {
	err := p.detach()
	if p.process.ProcessFork != nil {
		err = errors.Join(err, p.process.Close())
	}
	if p.unwind.UnwindStop != nil {
		err = errors.Join(err, p.unwind.UnwindStop.Close())
	}
	return errors.Join(err, p.Objects.Close())
}
