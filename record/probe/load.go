//go:build linux

package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
)

// Options configure the BPF programs.
type Options struct {
	How         privilege.AttachMethod
	BufferBytes int              // size of the ring buffer, a power of two
	Stacks      string           // StacksAuto, StacksFull, StacksFP or StacksOff
	Unwinder    *unwind.Unwinder // nil: stacks are not unwound
	All         bool             // record every process that Comm and Cgroup select
	Comm        string           // with All: only processes with this name; "": any
	Cgroup      process.Cgroup   // with All: only processes below this cgroup; zero: any
	Functions   []string         // probe only these functions; empty: all
	Classes     []string         // probe only these format.RecordClasses; empty: all
	// StackCacheSets limits the sets of the stack cache, a power of two; 0: CACHE_SETS.
	StackCacheSets int
	// ModuleClasses adds the classes of PyTorch's modules to stacks.
	ModuleClasses bool
	// SampleProgress reads the progress words of channels at calls that submit work.
	SampleProgress bool
	// KernelArgs reads the arguments of kernel launches. KeptLaunches is the number of launches of a stream whose
	// arguments are kept for TakeArguments; 0: those of all launches are sent.
	KernelArgs   bool
	KeptLaunches int
}

// LoadPrograms loads the BPF programs and fills the call table. It attaches nothing. It returns a
// *privilege.Error if capabilities are missing.
func LoadPrograms(opt Options) (*Probes, error) {
	how, bufferBytes := opt.How, opt.BufferBytes
	spec, err := bpf.LoadCuda()
	if err != nil {
		return nil, fmt.Errorf("read BPF programs: %w", err)
	}
	p := &Probes{
		How:       how,
		functions: opt.Functions,
		classes:   opt.Classes,
		arguments: opt.KernelArgs, keptLaunches: uint32(opt.KeptLaunches),
		attached: make(map[attachment]bool),
		getters:  make(map[string]*linkPairs),
		owners:   make(map[link.Link]int),
	}
	for _, program := range spec.Programs {
		program.AttachType = p.programAttachType()
	}
	spec.Maps["events"].MaxEntries = uint32(bufferBytes)
	streams := opt.sizeArgumentMaps(spec)
	replace := make(map[string]*ebpf.Map)
	if opt.Unwinder != nil {
		replace = listSharedUnwindMaps(opt.Unwinder)
		if err := spec.Variables["task_thread_pointer"].Set(opt.Unwinder.Layout().ThreadPointer); err != nil {
			return nil, fmt.Errorf("set BPF variables: %w", err)
		}
	}
	if err := errors.Join(
		spec.Variables["stack_capture"].Set(uint8(bpfStackModes[opt.Stacks])),
		spec.Variables["record_all"].Set(toBPFBool(opt.All)),
		spec.Variables["sample_progress"].Set(toBPFBool(opt.SampleProgress)),
		spec.Variables["record_arguments"].Set(toBPFBool(opt.KernelArgs)),
		spec.Variables["kept_launches"].Set(uint32(opt.KeptLaunches)),
		spec.Variables["only_comm"].Set(toCommBytes(opt.Comm)),
		spec.Variables["only_cgroup"].Set(opt.Cgroup.ID),
		spec.Variables["only_cgroup_level"].Set(opt.Cgroup.Level),
		spec.Variables["wakeup_bytes"].Set(uint64(bufferBytes/4)),
		opt.limitStackCache(spec),
	); err != nil {
		return nil, fmt.Errorf("set BPF variables: %w", err)
	}
	if err := spec.LoadAndAssign(&p.Objects, &ebpf.CollectionOptions{MapReplacements: replace}); err != nil {
		err = fmt.Errorf("load BPF programs: %w", err)
		if have, cerr := privilege.ReadEffective(); cerr == nil {
			err = have.ExplainLoadError(err)
		}
		return nil, err
	}
	if err := p.fillFreeStreams(streams); err != nil {
		p.Close()
		return nil, err
	}
	if opt.Unwinder != nil {
		if err := p.loadUnwindStop(opt); err != nil {
			p.Close()
			return nil, err
		}
	}
	for cookie := range bpf.NumCookies() {
		call, _, _, _ := bpf.FunctionByCookie(uint16(cookie))
		if err := p.Objects.Calls.Put(uint32(cookie), call.BPFSpec()); err != nil {
			p.Close()
			return nil, fmt.Errorf("fill the call table: %w", err)
		}
	}
	return p, nil
}

// programAttachType returns the attach type of the BPF programs: the kernel checks it at attach and
// at tail calls.
func (p *Probes) programAttachType() ebpf.AttachType {
	if p.How == privilege.AttachPerf {
		return ebpf.AttachNone
	}
	return ebpf.AttachTraceUprobeMulti
}

// toCommBytes returns a process name as the kernel stores it: 15 bytes and a 0.
func toCommBytes(name string) (b [16]byte) {
	copy(b[:15], name)
	return b
}
