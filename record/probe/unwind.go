//go:build linux

package probe

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/unwind"
)

// Values of Options.Stacks, as in --stacks.
const (
	StacksAuto = "auto" // stacks of frequent calls are inferred by fingerprint, others are unwound
	StacksFull = "full" // every call is unwound
	StacksFP   = "fp"   // stacks are walked by frame pointers
	StacksOff  = "off"
)

// SyncTimeout limits how long attaching waits for unwind tables. The tables of a library of 400 MB
// take seconds to read.
const SyncTimeout = 10 * time.Second

// bpfStackModes maps Options.Stacks to the modes of the BPF programs.
var bpfStackModes = map[string]bpf.CudaStackMode{
	StacksAuto: bpf.CudaStackModeSTACKS_AUTO, StacksFull: bpf.CudaStackModeSTACKS_FULL,
	StacksFP: bpf.CudaStackModeSTACKS_FRAME_POINTERS, StacksOff: bpf.CudaStackModeSTACKS_OFF,
}

// listSharedUnwindMaps returns the maps that the BPF programs share with the unwinder, by name.
func listSharedUnwindMaps(u *unwind.Unwinder) map[string]*ebpf.Map {
	return map[string]*ebpf.Map{"unwinders": u.Programs(), "python_processes": u.Pythons()}
}

// limitStackCache limits the size of the stack cache in BPF programs, if StackCacheSets is set.
func (o *Options) limitStackCache(spec *ebpf.CollectionSpec) error {
	if o.StackCacheSets == 0 {
		return nil
	}
	return spec.Variables["last_cache_set"].Set(uint32(o.StackCacheSets - 1))
}

// loadUnwindStop loads unwind_stop, which runs after the unwinder, and links it to the unwinder.
func (p *Probes) loadUnwindStop(opt Options) error {
	u := opt.Unwinder
	spec, err := bpf.LoadUnwind()
	if err != nil {
		return fmt.Errorf("read BPF programs: %w", err)
	}
	layout := u.Layout()
	err = spec.Variables["task_thread_pointer"].Set(layout.ThreadPointer)
	for name, offset := range map[string]uint32{
		"record_error": layout.Error, "record_pc": layout.PC, "record_words": layout.Words,
		"record_kernel_words": layout.KernelWords, "record_data": layout.Data,
	} {
		err = errors.Join(err, spec.Variables[name].Set(offset))
	}
	if err := errors.Join(
		err,
		spec.Variables["wakeup_bytes"].Set(uint64(opt.BufferBytes/4)),
		spec.Variables["record_classes"].Set(toBPFBool(opt.ModuleClasses)),
		opt.limitStackCache(spec),
	); err != nil {
		return fmt.Errorf("set BPF variables: %w", err)
	}
	for _, program := range spec.Programs {
		program.AttachType = p.programAttachType()
	}
	spec.Maps["unwind_record"].ValueSize = u.Record().ValueSize()
	spec.Maps["events"].MaxEntries = p.Objects.Events.MaxEntries()
	o := &p.Objects
	err = spec.LoadAndAssign(&p.unwind, &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
		"unwind_record": u.Record(), "python_processes": u.Pythons(),
		"unwinding":    o.Unwinding,
		"threads":      o.Threads,
		"events":       o.Events,
		"calls":        o.Calls,
		"stats":        o.Stats,
		"stacks_sent":  o.StacksSent,
		"stack_cache":  o.StackCache,
		"path_cache":   o.PathCache,
		"code_maps":    o.CodeMaps,
		"stack_pieces": o.StackPieces,
	}})
	if err != nil {
		return fmt.Errorf("load the BPF program that ends unwinding: %w", err)
	}
	return u.SetStop(p.unwind.UnwindStop)
}

// RationUnwinding limits the share of its time that a thread spends on unwinding; 0: no limit.
func (p *Probes) RationUnwinding(share float64) error {
	spacing := uint32(0)
	if share > 0 && share < 1 {
		spacing = uint32(max(1, math.Round(1/share)))
	}
	if err := p.Objects.UnwindSpacing.Set(spacing); err != nil {
		return fmt.Errorf("ration unwinding: %w", err)
	}
	return nil
}

// SumInferenceStats returns counts of inferred, checked and wrong stacks, by class of call.
func (p *Probes) SumInferenceStats() (sums [bpf.CudaCallClassCLASS_COUNT]bpf.CudaInferenceStats) {
	for class := range sums {
		var cpus []bpf.CudaClassStats
		if p.Objects.Stats.Lookup(uint32(class), &cpus) != nil {
			continue
		}
		for i := range cpus {
			c := &cpus[i].Inference
			for level, n := range c.Inferred {
				sums[class].Inferred[level] += n
			}
			sums[class].Checked += c.Checked
			sums[class].Wrong += c.Wrong
			sums[class].WrongWeight += c.WrongWeight
			sums[class].Busy += c.Busy
			sums[class].Rationed += c.Rationed
			sums[class].Unchecked += c.Unchecked
			sums[class].UnwindingNs += c.UnwindingNs
		}
	}
	return sums
}

// UnwindingNs returns the time that all threads have spent on unwinding, in nanoseconds.
func (p *Probes) UnwindingNs() (ns int64) {
	for _, sum := range p.SumInferenceStats() {
		ns += int64(sum.UnwindingNs)
	}
	return ns
}
