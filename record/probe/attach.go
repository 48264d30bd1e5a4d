//go:build linux

package probe

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
)

// Probes holds the loaded BPF programs and what they are attached to. The links keep
// the probes in place; dropping them, also by dying, removes the probes.
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

// DetachGrace is how long the end of a recording waits for calls in flight.
const DetachGrace = 100 * time.Millisecond

// EveryProcess stands for a pid: probes that every process on the machine hits. Only
// targets are recorded, but the others pay the price of a probe too.
const EveryProcess = 0

// Options are what the BPF programs are set to.
type Options struct {
	How         privilege.Attach
	BufferBytes int
	Stacks      string
	Unwinder    *unwind.Unwinder // nil if stacks are not unwound
	All         bool             // record every process ...
	Comm        string           // ... of this name, if it is not empty
	Cgroup      process.Cgroup   // ... below this one, if it is not zero
	Functions   []string         // all, if empty
	Classes     []string         // of calls, some of format.RecordClasses; all, if empty
	KnownSets   int              // of which known stacks are kept, a power of two; 0: all that there are
}

// Load loads the BPF programs and fills the table of calls.
func Load(opt Options) (*Probes, error) {
	how, bufferBytes := opt.How, opt.BufferBytes
	spec, err := bpf.LoadCuda()
	if err != nil {
		return nil, fmt.Errorf("read BPF programs: %w", err)
	}
	p := &Probes{How: how, functions: opt.Functions, classes: opt.Classes, attached: make(map[attachment]bool), getters: make(map[string]*linkPairs), owners: make(map[link.Link]int)}
	for _, program := range spec.Programs {
		program.AttachType = p.attachType()
	}
	spec.Maps["events"].MaxEntries = uint32(bufferBytes)
	replace := make(map[string]*ebpf.Map)
	if opt.Unwinder != nil {
		replace = unwindMaps(opt.Unwinder)
		if err := spec.Variables["task_thread_pointer"].Set(opt.Unwinder.Layout().ThreadPointer); err != nil {
			return nil, fmt.Errorf("set BPF variables: %w", err)
		}
	}
	if err := errors.Join(spec.Variables["take_stacks"].Set(uint8(stackModes[opt.Stacks])), spec.Variables["record_all"].Set(flag(opt.All)),
		spec.Variables["only_comm"].Set(commBytes(opt.Comm)), spec.Variables["only_cgroup"].Set(opt.Cgroup.ID),
		spec.Variables["only_cgroup_level"].Set(opt.Cgroup.Level),
		spec.Variables["wakeup_bytes"].Set(uint64(bufferBytes/4)), opt.limitKnown(spec)); err != nil {
		return nil, fmt.Errorf("set BPF variables: %w", err)
	}
	if err := spec.LoadAndAssign(&p.Objects, &ebpf.CollectionOptions{MapReplacements: replace}); err != nil {
		err = fmt.Errorf("load BPF programs: %w", err)
		if have, cerr := privilege.Effective(); cerr == nil {
			err = have.ExplainLoad(err)
		}
		return nil, err
	}
	if opt.Unwinder != nil {
		if err := p.endUnwinding(opt); err != nil {
			p.Close()
			return nil, err
		}
	}
	for cookie := range bpf.NumCookies() + len(bpf.Allocators) {
		call, _, _, _ := bpf.ByCookie(uint16(cookie))
		if err := p.Objects.Calls.Put(uint32(cookie), call.Spec()); err != nil {
			p.Close()
			return nil, fmt.Errorf("fill table of calls: %w", err)
		}
	}
	return p, nil
}

// attachType is that of all programs that are attached to functions, or called by those.
func (p *Probes) attachType() ebpf.AttachType {
	if p.How == privilege.AttachPerf {
		return ebpf.AttachNone
	}
	return ebpf.AttachTraceUprobeMulti
}

// flag is a boolean as the BPF programs have it.
func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// commBytes is a process name as the kernel keeps it: 15 characters and a 0.
func commBytes(name string) (b [16]byte) {
	copy(b[:15], name)
	return b
}

// Follow has children of targets become targets before they run. It fails on kernels
// without BTF.
func (p *Probes) Follow() error {
	replace := map[string]*ebpf.Map{"events": p.Objects.Events, "targets": p.Objects.Targets, "allocators": p.Objects.Allocators}
	spec, err := bpf.LoadProcess()
	if err != nil {
		return fmt.Errorf("read BPF programs: %w", err)
	}
	spec.Maps["events"].MaxEntries = p.Objects.Events.MaxEntries()
	if err := spec.LoadAndAssign(&p.process, &ebpf.CollectionOptions{MapReplacements: replace}); err != nil {
		return fmt.Errorf("load BPF programs that follow children: %w", err)
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

// LostChanges returns how many forks and execs user space was not told of.
func (p *Probes) LostChanges() uint64 {
	var n uint64
	if v := p.process.LostChanges; v == nil || v.Get(&n) != nil {
		return 0
	}
	return n
}

// Pause has the programs see no calls, or see them again. Calls under way are seen to return.
func (p *Probes) Pause(on bool) error {
	if err := p.Objects.Paused.Set(flag(on)); err != nil {
		return fmt.Errorf("pause the BPF programs: %w", err)
	}
	return nil
}

// SkipStacks leaves out the stacks of launches, or takes them again.
func (p *Probes) SkipStacks(on bool) error {
	if err := p.Objects.SkipStacks.Set(flag(on)); err != nil {
		return fmt.Errorf("sample stacks of launches: %w", err)
	}
	return nil
}

// Forget ends the recording of a process that is gone.
func (p *Probes) Forget(pid int) {
	_ = p.Objects.Targets.Delete(uint32(pid)) // it may be gone already
	_ = p.Objects.CodeMaps.Delete(uint32(pid))
	_ = p.Objects.Allocators.Delete(uint32(pid))
	p.unlink(pid)
}

// Target lets the programs record the process.
func (p *Probes) Target(pid int) error {
	if err := p.Objects.Targets.Put(uint32(pid), uint32(1)); err != nil {
		return fmt.Errorf("add process %d: %w", pid, err)
	}
	return nil
}

// Attach places the probes of a library for one process; for one it has already, or has
// tried, it does nothing. Returns are probed before entries, so that no entry lacks its return.
func (p *Probes) Attach(lib *library.Library, pid int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := attachment{lib.ID, pid}
	if p.attached[key] || p.attached[attachment{lib.ID, EveryProcess}] {
		return nil
	}
	p.attached[key] = true // a part may be in place even if it fails
	var err error
	if p.How == privilege.AttachMulti {
		err = p.attachMulti(lib, pid)
	} else {
		err = p.attachPerf(lib, pid)
	}
	if err != nil {
		return fmt.Errorf("attach to %s: %w", lib.Path, err)
	}
	return nil
}

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
// that are being placed or removed, which can take seconds: the scribe asks at every rotation.
func (p *Probes) Placed() int { return int(p.count.Load()) }

// attachMulti makes one pair of links for all functions, and one for each that may be
// dropped, as a whole or its return.
func (p *Probes) attachMulti(lib *library.Library, pid int) error {
	executable, err := link.OpenExecutable(lib.Executable())
	if err != nil {
		return err
	}
	var lasting, launches, allocator []library.Probe
	getters := make(map[string][]library.Probe)
	for _, at := range p.wanted(lib) {
		switch call, _, _, _ := bpf.ByCookie(at.Cookie); {
		case call.Getter:
			getters[call.Name] = append(getters[call.Name], at)
		case call.ReturnSpared():
			launches = append(launches, at)
		case call.Class == bpf.CudaCallClassCLASS_ALLOCATOR:
			allocator = append(allocator, at)
		default:
			lasting = append(lasting, at)
		}
	}
	if len(launches) > 0 {
		if err := p.linkLaunches(executable, launches, pid); err != nil {
			return err
		}
	}
	for _, probes := range [][]library.Probe{lasting, allocator} {
		if err := p.linkMulti(executable, probes, pid, &p.lasting); err != nil {
			return err
		}
	}
	for name, probes := range getters {
		if p.getters[name] == nil {
			p.getters[name] = new(linkPairs)
		}
		if err := p.linkMulti(executable, probes, pid, p.getters[name]); err != nil {
			return err
		}
	}
	return nil
}

// entryProgram is the program at the entry of a function.
func (p *Probes) entryProgram(cookie uint16) *ebpf.Program {
	switch call, _, _, _ := bpf.ByCookie(cookie); {
	case call.ReturnSpared():
		return p.Objects.LaunchEnter
	case call.Class == bpf.CudaCallClassCLASS_ALLOCATOR:
		return p.Objects.AllocatorEnter
	}
	return p.Objects.CallEnter
}

// linkMulti links entries and returns of the probes, whose entries have one program; a return
// only where one is needed.
func (p *Probes) linkMulti(executable *link.Executable, probes []library.Probe, pid int, to *linkPairs) error {
	if len(probes) == 0 {
		return nil
	}
	entry, exit := multiOptions(probes, pid)
	if len(exit.Addresses) > 0 {
		returns, err := executable.UretprobeMulti(nil, p.Objects.CallExit, &exit)
		if err != nil {
			return err
		}
		to.returns = append(to.returns, returns)
		p.own(pid, returns)
	}
	entries, err := executable.UprobeMulti(nil, p.entryProgram(probes[0].Cookie), &entry)
	if err != nil {
		return err
	}
	to.entries = append(to.entries, entries)
	p.own(pid, entries)
	p.count.Add(int64(len(entry.Addresses) + len(exit.Addresses)))
	return nil
}

// multiOptions are the entries and the returns to probe.
func multiOptions(probes []library.Probe, pid int) (entry, exit link.UprobeMultiOptions) {
	entry.PID, exit.PID = uint32(pid), uint32(pid)
	for _, at := range probes {
		entry.Addresses = append(entry.Addresses, at.FileOffset)
		entry.Cookies = append(entry.Cookies, uint64(at.Cookie))
		if at.Return {
			exit.Addresses = append(exit.Addresses, at.FileOffset)
			exit.Cookies = append(exit.Cookies, uint64(at.Cookie))
		}
	}
	return entry, exit
}

// wanted are the probes of a library that are to be placed.
func (p *Probes) wanted(lib *library.Library) []library.Probe {
	if len(p.functions) == 0 && len(p.classes) == 0 {
		return lib.Probes
	}
	return slices.DeleteFunc(slices.Clone(lib.Probes), func(at library.Probe) bool {
		call, _, _, _ := bpf.ByCookie(at.Cookie)
		return len(p.functions) > 0 && !slices.Contains(p.functions, at.Symbol) || !IsNeeded(call, p.classes)
	})
}

// allocationsLast orders probes that are placed one after the other. In a library that is used
// meanwhile, a free without its allocation is no harm, but the reverse would be taken for a leak.
func allocationsLast(probes []library.Probe) []library.Probe {
	isAllocation := func(at library.Probe) bool {
		call, _, _, _ := bpf.ByCookie(at.Cookie)
		return call.Kind == format.KindAlloc
	}
	return append(slices.DeleteFunc(slices.Clone(probes), isAllocation),
		slices.DeleteFunc(slices.Clone(probes), func(at library.Probe) bool { return !isAllocation(at) })...)
}

func (p *Probes) attachPerf(lib *library.Library, pid int) error {
	executable, err := link.OpenExecutable(lib.Executable())
	if err != nil {
		return err
	}
	for _, at := range allocationsLast(p.wanted(lib)) {
		opt := &link.UprobeOptions{Address: at.FileOffset, PID: pid, Cookie: uint64(at.Cookie)}
		if at.Return {
			l, err := executable.Uretprobe("", p.Objects.CallExit, opt)
			if err != nil {
				return err
			}
			p.lasting.returns = append(p.lasting.returns, l)
			p.count.Add(1)
		}
		l, err := executable.Uprobe("", p.entryProgram(at.Cookie), opt)
		if err != nil {
			return err
		}
		p.lasting.entries = append(p.lasting.entries, l)
		p.count.Add(1)
	}
	return nil
}

// WaitForOpenCalls lets no further call be recorded and waits until those under way have returned or
// the grace period is over. Then silence can follow, however long it takes.
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

// StopEvents sees to it that nothing comes from the programs any more. Links of uprobe_multi it
// removes. Perf uprobes would take too long: their programs are told that the recording has
// ended, and detach can follow when it has been written.
func (p *Probes) StopEvents() error {
	if p.How == privilege.AttachMulti {
		return p.detach()
	}
	if err := p.Objects.Ended.Set(flag(true)); err != nil {
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
		p.lasting.entries, p.lasting.returns = append(p.lasting.entries, links.entries...), append(p.lasting.returns, links.returns...)
		delete(p.getters, name)
	}
	p.lasting.entries, p.lasting.returns = append(p.lasting.entries, placed(p.launches.entries)...), append(p.lasting.returns, placed(p.launches.returns)...)
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

// OpenCalls returns the calls that have not returned, outermost first per thread.
func (p *Probes) OpenCalls() ([]bpf.CudaEvent, error) {
	var (
		open []bpf.CudaEvent
		id   uint64
		t    bpf.CudaThread
	)
	threads := p.Objects.Threads.Iterate()
	for threads.Next(&id, &t) {
		open = appendOpen(open, &t)
	}
	if err := threads.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("read open calls: %w", err)
	}
	return open, nil
}

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
