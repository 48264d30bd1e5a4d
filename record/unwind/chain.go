//go:build linux

package unwind

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/tracer"
)

// Names of programs and maps in the BPF object of the OpenTelemetry profiler.
const (
	entryProgramName  = "kprobe__generic"
	nativeProgramName = "kprobe_unwind_native"
	pythonProgramName = "kprobe_unwind_python"
	rodataMapName     = ".rodata.var"
	recordMapName     = "per_cpu_records"
	programsMapName   = "perf_progs"
	pythonsMapName    = "py_procs"
)

const (
	stopProgramSlot = uint32(support.ProgUnwindStop)
	numProgramSlots = 32
	maxFrameWords   = 3072
	// pythonFramesPerProgram is the number of Python frames that each program unwinds. It is the
	// profiler's own value for the verifier of Linux 6.6 and later.
	pythonFramesPerProgram = 15
)

// chain is a second copy of the profiler's BPF programs, which gpurec's probes enter by a tail
// call.
type chain struct {
	opt Options
	// loading is closed when the programs are loaded, or when loading has failed with loadErr. It is
	// nil until Load has returned without an error.
	loading  chan struct{}
	loadErr  error
	loaded   []*ebpf.Program
	programs *ebpf.Map // program array for tail calls
	record   *ebpf.Map // stack that is being unwound, per CPU
	rodata   *ebpf.Map
	// pythons is an empty map of interpreters in an unpatched build, otherwise nil. The profiler
	// has this map only if it unwinds Python.
	pythons *ebpf.Map
	layout  Layout
	// haveMaps is called with the maps that the chain shares with the profiler, by name.
	haveMaps func(map[string]*ebpf.Map) error
}

// Load creates the maps of the chain and starts to load its BPF programs, for which await waits. It
// implements tracer.Probe.
func (c *chain) Load(
	_ context.Context,
	registrar tracer.ProbeRegistrar,
	pc *tracer.ProbeContext,
) (_ link.Link, err error) {
	if err := features.HaveProgramHelper(ebpf.Kprobe, asm.FnLoop); err != nil {
		return nil, fmt.Errorf("needs bpf_loop, Linux 5.17: %w", err)
	}
	names := []string{nativeProgramName, entryProgramName}
	if IsPatched() {
		names = append([]string{pythonProgramName}, names...) // the verifier takes longest for this one
	}
	spec, err := pc.CollectionSpecWith(nil, names, []string{"origin_id_probe", "python_frames_per_program"})
	if err != nil {
		return nil, err
	}
	origin, err := registrar.Register(&samples.TypeMetadata{SampleType: "cuda", SampleUnit: "count"})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		spec.Variables["origin_id_probe"].Set(origin),
		spec.Variables["python_frames_per_program"].Set(uint32(pythonFramesPerProgram)),
		spec.Variables["tpbase_offset"].Get(new(uint64)),
	); err != nil {
		return nil, err
	}
	full, err := support.LoadCollectionSpec()
	if err != nil {
		return nil, err
	}
	if err := c.readLayout(full, spec); err != nil {
		return nil, err
	}
	if err := c.makeMaps(full, spec); err != nil {
		return nil, err
	}
	own := map[string]*ebpf.Map{
		programsMapName:       c.programs,
		recordMapName:         c.record,
		recordMapName + "_kp": c.record,
		rodataMapName:         c.rodata,
	}
	uses := findMapReferences(spec) // RewriteMaps removes the names
	if err := pc.RewriteMaps(spec, nil); err != nil {
		return nil, err
	}
	shared := make(map[string]*ebpf.Map)
	for _, u := range uses {
		if m := own[u.name]; m != nil {
			if err := u.instructionRef().AssociateMap(m); err != nil {
				return nil, fmt.Errorf("%s: %w", u.name, err)
			}
		} else {
			if m, ok := u.instructionRef().Map().(*ebpf.Map); ok {
				shared[u.name] = m
			}
		}
	}
	if c.pythons != nil {
		shared[pythonsMapName] = c.pythons
	}
	if err := c.haveMaps(shared); err != nil {
		return nil, err
	}
	c.loading = make(chan struct{})
	go func() {
		defer close(c.loading)
		c.loadErr = c.loadPrograms(spec, names)
	}()
	return nil, nil
}

// programSlot returns the index of a program in the program array.
func (c *chain) programSlot(name string) uint32 {
	switch name {
	case nativeProgramName:
		return uint32(support.ProgUnwindNative)
	case pythonProgramName:
		return uint32(support.ProgUnwindPython)
	}
	return c.opt.EntrySlot
}

// loadPrograms loads the unwinder's BPF programs into the kernel. They are loaded one after the
// other: gpurec loads its own programs meanwhile, so that two processors verify programs.
func (c *chain) loadPrograms(spec *ebpf.CollectionSpec, names []string) error {
	for _, name := range names {
		program := spec.Programs[name]
		program.AttachType = c.opt.AttachType
		p, err := ebpf.NewProgram(program)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.loaded = append(c.loaded, p)
		if err := c.programs.Put(c.programSlot(name), uint32(p.FD())); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// await waits until the programs are loaded, and returns the error of loading them.
func (c *chain) await() error {
	<-c.loading
	return c.loadErr
}

// mapReference is one instruction of a program that refers to a map.
type mapReference struct {
	program     *ebpf.ProgramSpec
	instruction int
	name        string
}

// instructionRef returns the instruction that refers to the map.
func (r mapReference) instructionRef() *asm.Instruction {
	return &r.program.Instructions[r.instruction]
}

// findMapReferences returns all instructions that refer to maps.
func findMapReferences(spec *ebpf.CollectionSpec) []mapReference {
	var found []mapReference
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if ins := &p.Instructions[i]; ins.IsLoadFromMap() && ins.Reference() != "" {
				found = append(found, mapReference{p, i, ins.Reference()})
			}
		}
	}
	return found
}

// makeMaps creates the maps that the chain does not share with the profiler. full contains all maps
// of the profiler, spec the chain's programs and variables.
func (c *chain) makeMaps(full, spec *ebpf.CollectionSpec) (err error) {
	if c.record, err = ebpf.NewMap(full.Maps[recordMapName]); err != nil {
		return fmt.Errorf("%s: %w", recordMapName, err)
	}
	if c.programs, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "unwinders", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: numProgramSlots,
	}); err != nil {
		return err
	}
	if !IsPatched() {
		if c.pythons, err = ebpf.NewMap(full.Maps[pythonsMapName]); err != nil {
			return fmt.Errorf("%s: %w", pythonsMapName, err)
		}
	}
	constants := spec.Maps[rodataMapName].Copy()
	data := slices.Clone(constants.Contents[0].Value.([]byte))
	for _, v := range spec.Variables {
		if v.SectionName == rodataMapName {
			copy(data[v.Offset:], v.Value)
		}
	}
	constants.Contents = []ebpf.MapKV{{Key: uint32(0), Value: data}}
	if c.rodata, err = ebpf.NewMap(constants); err != nil {
		return fmt.Errorf("%s: %w", rodataMapName, err)
	}
	return nil
}

// readLayout finds the offsets of the members that gpurec reads, in the types of the profiler's BPF
// object.
func (c *chain) readLayout(full, spec *ebpf.CollectionSpec) error {
	var record, trace, state *btf.Struct
	if err := errors.Join(
		findTypedefStruct(full.Types, "PerCPURecord", &record),
		findTypedefStruct(full.Types, "Trace", &trace),
		findTypedefStruct(full.Types, "UnwindState", &state),
	); err != nil {
		return err
	}
	var errs []error
	member := func(s *btf.Struct, name string) uint32 {
		at, err := memberOffset(s.Members, name)
		errs = append(errs, err)
		return at
	}
	traceAt, stateAt := member(record, "trace"), member(record, "state")
	c.layout = Layout{
		Error: stateAt + member(state, "unwind_error"), PC: stateAt + member(state, "pc"),
		Words:       traceAt + member(trace, "frame_data_len"),
		KernelWords: traceAt + member(trace, "num_kernel_frames"), Data: traceAt + member(trace, "frame_data"),
	}
	var threadPointer uint64
	errs = append(errs, spec.Variables["tpbase_offset"].Get(&threadPointer))
	c.layout.ThreadPointer = uint32(threadPointer)
	if c.layout.Data%8 != 0 || c.layout.Data < 32 || record.Size < c.layout.Data+8*maxFrameWords {
		errs = append(errs, errors.New("the unwinder's stack record has an unexpected layout"))
	}
	return errors.Join(errs...)
}

// findTypedefStruct finds the structure of a typedef.
func findTypedefStruct(types *btf.Spec, name string, to **btf.Struct) error {
	var t *btf.Typedef
	if err := types.TypeByName(name, &t); err != nil {
		return fmt.Errorf("layout of the unwinder's %s: %w", name, err)
	}
	s, ok := btf.UnderlyingType(t).(*btf.Struct)
	if !ok {
		return fmt.Errorf("layout of the unwinder's %s: not a structure", name)
	}
	*to = s
	return nil
}

// memberOffset returns the offset of a member in bytes. It searches anonymous members too.
func memberOffset(members []btf.Member, name string) (uint32, error) {
	for _, m := range members {
		if m.Name == name {
			return uint32(m.Offset / 8), nil
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if at, err := memberOffset(inner, name); err == nil {
			return uint32(m.Offset/8) + at, nil
		}
	}
	return 0, fmt.Errorf("the unwinder's structures have no member %s", name)
}

// close closes the BPF programs and maps of the chain.
func (c *chain) close() {
	if c.loading != nil {
		<-c.loading
	}
	for _, p := range c.loaded {
		p.Close()
	}
	for _, m := range []*ebpf.Map{c.programs, c.record, c.rodata, c.pythons} {
		if m != nil {
			m.Close()
		}
	}
}
