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

// Probes holds the BPF programs and their links. The kernel removes the probes when the links are
// closed or the recorder exits. Safe for concurrent use.
type Probes struct {
	How     privilege.AttachMethod
	Objects bpf.CudaObjects
	process bpf.ProcessObjects // programs that follow children; empty if children are not followed
	unwind  struct {           // the program at the end of unwinding; empty if stacks are not unwound
		UnwindStop *ebpf.Program `ebpf:"unwind_stop"`
	}

	functions []string // probe only these functions, if not empty
	classes   []string // probe only these classes, if not empty
	arguments bool     // the arguments of kernel launches are read
	// keptLaunches is Options.KeptLaunches.
	keptLaunches uint32

	// MissingLaunches holds the periods without kernel launches.
	MissingLaunches MissingLaunchTimes

	mu          sync.Mutex
	tracing     []link.Link
	permanent   linkPairs
	windows     windowLinks
	collectives collectiveLinks
	getters     map[string]*linkPairs // by function name
	isHolding   bool                  // HoldFrequentProbes was called
	held        []func() error        // attach the getters that were left out
	removing    sync.WaitGroup        // calls of RemoveGetterProbes, and closeLinksOf
	attached    map[attachment]bool
	count       atomic.Int64 // probed addresses, entries and returns
	// owners has the process of each link that is attached to one process.
	owners map[link.Link]int
	// gone are the links of exited processes. While isClosing is true, a goroutine closes them.
	gone      []link.Link
	isClosing bool
	closing   sync.WaitGroup
}

// linkPairs are links to entries and returns of functions. Entries must be closed first, so that
// each recorded entry has its return.
type linkPairs struct{ entries, returns []link.Link }

// attachment identifies a library that is attached to one process or, with EveryProcess, to all.
type attachment struct {
	lib process.FileID
	pid int
}

// EveryProcess is the pid of probes that are attached to a library in every process. Only targets
// are recorded, but each process that calls the library pays for the probe hits.
const EveryProcess = 0

// AttachedPids returns the processes to which libraries are attached, in any order. It includes
// EveryProcess if a library is attached in every process.
func (p *Probes) AttachedPids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pids []int
	for key := range p.attached {
		pids = append(pids, key.pid)
	}
	return pids
}

// CountPermanentLinks returns the number of permanent links to entries and to returns, without
// those that are removed and attached again during the recording.
func (p *Probes) CountPermanentLinks() (entries, returns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.permanent.entries), len(p.permanent.returns)
}

// ProbeCount returns the number of probed addresses, entries and returns. It never blocks:
// attaching and removing probes can take seconds, and the row writer calls ProbeCount at every
// rotation.
func (p *Probes) ProbeCount() int { return int(p.count.Load()) }

// Close removes the remaining probes and unloads the BPF programs.
func (p *Probes) Close() error {
	err := p.detachAllProbes()
	p.closing.Wait()
	if p.process.ProcessFork != nil {
		err = errors.Join(err, p.process.Close())
	}
	if p.unwind.UnwindStop != nil {
		err = errors.Join(err, p.unwind.UnwindStop.Close())
	}
	return errors.Join(err, p.Objects.Close())
}
