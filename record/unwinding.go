//go:build linux

package record

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/unwind"
)

// Ways of taking stacks, in Options.Stacks.
const (
	StacksAuto = "auto" // unwound, or inferred for calls that come in masses
	StacksFull = "full" // unwound, every one
	StacksFP   = "fp"   // walked by frame pointers
	StacksOff  = "off"
)

// syncTimeout is how long attaching waits until stacks of a process can be unwound:
// unwind tables of 400 MB libraries take seconds to read.
const syncTimeout = 10 * time.Second

// stackModes are the BPF programs' names for them.
var stackModes = map[string]bpf.CudaStackMode{
	StacksAuto: bpf.CudaStackModeSTACKS_AUTO, StacksFull: bpf.CudaStackModeSTACKS_FULL,
	StacksFP: bpf.CudaStackModeSTACKS_FRAME_POINTERS, StacksOff: bpf.CudaStackModeSTACKS_OFF,
}

// ErrUnpatched is the StacksError of a build in which stacks have no Python frames.
var ErrUnpatched = unwind.ErrUnpatched

// startUnwinder starts what complete stacks need. Where it cannot, stacks are walked by
// frame pointers and stacksErr says why.
func (s *Session) startUnwinder(how Attach) {
	if s.opt.Stacks != StacksAuto && s.opt.Stacks != StacksFull {
		return
	}
	opt := unwindOptions(how)
	opt.Mapped = s.remapped.add
	for _, p := range s.family.all() {
		opt.Pids = append(opt.Pids, p.pid)
	}
	s.unwinder, s.stacksErr = startUnwinding(opt)
	if s.stacksErr != nil {
		s.opt.Stacks = StacksFP
	} else if !unwind.Patched() {
		s.stacksErr = ErrUnpatched
	}
}

// startUnwinding starts the profiler if we may.
func startUnwinding(opt unwind.Options) (*unwind.Unwinder, error) {
	if err := checkUnwinding(); err != nil {
		return nil, err
	}
	return unwind.Start(opt)
}

// unwindOptions are those that the BPF programs need, with this process to unwind: that is
// the self-test.
func unwindOptions(how Attach) unwind.Options {
	opt := unwind.Options{AttachType: ebpf.AttachTraceUprobeMulti, EntrySlot: uint32(bpf.CudaUnwinderSlotUNWINDER_ENTRY), Pids: []int{os.Getpid()}}
	if how == AttachPerf {
		opt.AttachType = ebpf.AttachNone
	}
	return opt
}

// syncUnwinder waits until stacks of the processes can be unwound.
func (s *Session) syncUnwinder(p *probes) {
	end := time.Now().Add(syncTimeout)
	for _, member := range s.family.all() {
		maps, err := member.maps()
		if err != nil {
			continue // it has ended
		}
		p.mapCode(member.pid, maps)
		var code []unwind.Mapping
		for _, m := range maps {
			if m.Executable() && m.Inode != 0 && isELF(member.mapFile(m)) {
				code = append(code, unwind.Mapping{Start: m.Start, End: m.End})
			}
		}
		s.unwinder.Sync(member.pid, code, time.Until(end))
	}
}

// isELF reports whether a file begins as ELF files do. Others may be mapped too, such as
// code that a compiler wrote into a memfd; no unwind table is to be waited for.
func isELF(path string) bool {
	file, err := openRegular(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var magic [len(elf.ELFMAG)]byte
	_, err = io.ReadFull(file, magic[:])
	return err == nil && string(magic[:]) == elf.ELFMAG
}

// addUnwinding lets stacks of a process that came later be unwound.
func (s *Session) addUnwinding(p *process) {
	if s.unwinder == nil {
		return
	}
	s.unwinder.Add(p.pid)
	s.remapped.add(p.pid)
}

// lookAtMapped looks where code lies in processes that have mapped some since the last
// look, and whether it is to be probed.
func (s *Session) lookAtMapped() {
	for _, pid := range s.remapped.take() {
		p := s.family.get(pid)
		if p == nil {
			continue
		}
		if maps, err := p.maps(); err == nil { // or it has ended
			s.probes.mapCode(pid, maps)
		}
		s.attachLibraries(p)
	}
}

// unwindMaps are the maps that the programs share with the unwinder.
func unwindMaps(u *unwind.Unwinder) map[string]*ebpf.Map {
	return map[string]*ebpf.Map{"unwinders": u.Programs(), "python_processes": u.Pythons()}
}

// limitKnown has programs know fewer stacks, if they are to.
func (opt *probeOptions) limitKnown(spec *ebpf.CollectionSpec) error {
	if opt.knownSets == 0 {
		return nil
	}
	return spec.Variables["known_last"].Set(uint32(opt.knownSets - 1))
}

// endUnwinding loads the program at the end of the unwinder's.
func (p *probes) endUnwinding(opt probeOptions) error {
	u := opt.unwinder
	spec, err := bpf.LoadUnwind()
	if err != nil {
		return fmt.Errorf("read BPF programs: %w", err)
	}
	layout := u.Layout()
	for name, offset := range map[string]uint32{
		"record_error": layout.Error, "record_pc": layout.PC, "record_words": layout.Words,
		"record_kernel_words": layout.KernelWords, "record_data": layout.Data,
	} {
		err = errors.Join(err, spec.Variables[name].Set(offset))
	}
	if err := errors.Join(err, spec.Variables["wakeup_bytes"].Set(uint64(opt.bufferBytes/4)), opt.limitKnown(spec)); err != nil {
		return fmt.Errorf("set BPF variables: %w", err)
	}
	for _, program := range spec.Programs {
		program.AttachType = p.attachType()
	}
	spec.Maps["unwind_record"].ValueSize = u.Record().ValueSize()
	spec.Maps["events"].MaxEntries = p.objects.Events.MaxEntries()
	o := &p.objects
	err = spec.LoadAndAssign(&p.unwind, &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{
		"unwind_record": u.Record(), "unwinding": o.Unwinding, "threads": o.Threads, "events": o.Events, "calls": o.Calls, "stats": o.Stats,
		"stacks_sent": o.StacksSent, "known_stacks": o.KnownStacks, "known_paths": o.KnownPaths,
		"code_maps": o.CodeMaps, "stack_pieces": o.StackPieces,
	}})
	if err != nil {
		return fmt.Errorf("load BPF programs that end unwinding: %w", err)
	}
	return u.SetStop(p.unwind.UnwindStop)
}

// inferenceNotes say how often inferred stacks were wrong, a row per class of calls.
func (s *Session) inferenceNotes(now int64) []format.Row {
	var rows []format.Row
	for class, sum := range s.probes.inferences() {
		var inferred int64
		for _, n := range sum.Inferred {
			inferred += int64(n)
		}
		if inferred+int64(sum.Checked+sum.Busy) == 0 {
			continue
		}
		text, err := json.Marshal(format.StackInference{
			Class: classNames[class], Key: "call, then what came before, or Python frames, then native path",
			Inferred: inferred, BySequence: int64(sum.Inferred[bpf.CudaFingerprintLevelLEVEL_SEQUENCE]),
			ByPython: int64(sum.Inferred[bpf.CudaFingerprintLevelLEVEL_PYTHON]), ByPath: int64(sum.Inferred[bpf.CudaFingerprintLevelLEVEL_PATH]),
			Checked: int64(sum.Checked), Wrong: int64(sum.Wrong), WrongEstimated: int64(sum.WrongWeight), Busy: int64(sum.Busy),
		})
		if err != nil {
			continue // strings and numbers always encode
		}
		rows = append(rows, format.Row{Kind: format.KindNote, Name: format.NoteStackInference, StartNs: now, Device: -1, Message: string(text)})
	}
	return rows
}

// inferences returns how often the stacks of a class were inferred, checked and wrong.
func (p *probes) inferences() (sums [bpf.CudaCallClassCLASS_COUNT]bpf.CudaInferenceStats) {
	for class := range sums {
		var cpus []bpf.CudaClassStats
		if p.objects.Stats.Lookup(uint32(class), &cpus) != nil {
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
		}
	}
	return sums
}
