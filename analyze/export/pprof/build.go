package pprof

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Names of synthetic modules, for frames that are in no ELF file.
const (
	pythonModule = "[python]"  // Python code
	gpuModule    = "[gpu]"     // kernels, graphs and copies
	gpurecModule = "[gpurec]"  // frames that gpurec adds: root frames and missing stacks
	offCPUModule = "[off-cpu]" // reasons of waits
	onCPUModule  = "[on-cpu]"  // CPU samples in profiles that also have waits
)

// profileSample has the stack and the labels of a sample.
type profileSample struct {
	stack            int32  // stack id
	api              string // CUDA driver function
	kind             string // kind of call or of memory
	copyKind         string // direction of a copy; "" for other calls
	leaf             string // kernel, graph, copy, or reason of a wait; "" for other calls
	leafModule       string // synthetic module of the leaf; "" means gpuModule
	reason           string // reason of a wait; "" for calls
	host             bool   // the sample is of class host: it has no device and no stream
	pid, tid, device int32
	stream           int64
	bytes            int64 // size of one allocation or copy; 0 if none
	open             bool  // the call had not returned
	// sizeClass and pool are set for blocks from before the recording: see earlier.SizeClass, and the name of the pool.
	// They have one frame that says so.
	sizeClass, pool string
	isUnseen        bool // a block whose allocation was not recorded. It has one frame that says so
	// waitedFor is the thread that has the stack, if the sample is a wait for it; zero: the thread itself has it.
	waitedFor origin.Thread
}

// addSample adds a sample with its stack frames, labels and values to the profile.
func (b *profileBuilder) addSample(s *profileSample, values ...int64) {
	stack := b.addStackLocations(s.stack)
	list := make([]*profile.Location, 0, len(stack)+3)
	if s.leaf != "" {
		module := cmp.Or(s.leafModule, gpuModule)
		list = append(list, b.addSyntheticLocation(module, module+" "+units.ReplaceInvalidUTF8(s.leaf)))
	}
	switch list = append(list, stack...); {
	case s.sizeClass != "":
		list = append(list, b.addSyntheticLocation(gpurecModule, "[before the recording]"))
	case s.isUnseen:
		list = append(list, b.addSyntheticLocation(gpurecModule, "[site not seen]"))
	case len(stack) == 0:
		if s.api != "" || !s.host {
			list = append(list, b.addSyntheticLocation(gpurecModule, s.api))
		}
		list = append(list, b.addSyntheticLocation(gpurecModule, timeline.NoStackSite))
	}
	if b.rootBy != "" {
		list = append(list, b.addSyntheticLocation(gpurecModule, b.rootFrameName(s)))
	}
	sample := &profile.Sample{
		Location: list,
		Value:    values,
		Label:    map[string][]string{"kind": {units.ReplaceInvalidUTF8(s.kind)}},
		NumLabel: map[string][]int64{"pid": {int64(s.pid)}, "tid": {int64(s.tid)}},
		NumUnit:  map[string][]string{"pid": {"process"}, "tid": {"thread"}},
	}
	if !s.host {
		if s.sizeClass == "" && !s.isUnseen {
			sample.Label["api"] = []string{units.ReplaceInvalidUTF8(s.api)}
		}
		sample.Label["stream"] = []string{query.StreamName(s.stream)}
		sample.NumLabel["device"], sample.NumUnit["device"] = []int64{int64(s.device)}, []string{"gpu"}
	}
	text := map[string]string{
		"thread":      b.t.Facts.Threads[origin.Thread{Pid: s.pid, Tid: s.tid}],
		"device_name": b.t.Facts.Devices[s.device].Name,
		"copy_kind":   s.copyKind,
		"reason":      s.reason,
		"size_class":  s.sizeClass,
		"pool":        s.pool,
	}
	if s.waitedFor.Tid != 0 {
		text["waited_for"] = b.t.ThreadLabel(s.waitedFor)
	}
	if s.host {
		text["api"] = s.api
	}
	if s.open {
		text["state"] = "open"
	}
	for key, v := range text {
		if v != "" {
			sample.Label[key] = []string{units.ReplaceInvalidUTF8(v)}
		}
	}
	if s.sizeClass != "" || s.isUnseen { // the thread is unknown
		delete(sample.NumLabel, "tid")
		delete(sample.NumUnit, "tid")
	}
	if s.bytes != 0 {
		sample.NumLabel["bytes"], sample.NumUnit["bytes"] = []int64{s.bytes}, []string{"bytes"}
	}
	b.p.Sample = append(b.p.Sample, sample)
}

// rootFrameName returns the name of the root frame of a sample, for Options.RootBy.
func (b *profileBuilder) rootFrameName(s *profileSample) string {
	switch b.rootBy {
	case "thread":
		if s.sizeClass != "" || s.isUnseen {
			return "thread unknown"
		}
		return "thread " + b.t.ThreadLabel(origin.Thread{Pid: s.pid, Tid: s.tid})
	case "stream":
		if len(b.t.Facts.Processes) > 1 {
			return fmt.Sprintf("stream %s of process %d", query.StreamName(s.stream), s.pid)
		}
		return "stream " + query.StreamName(s.stream)
	case "device":
		return "GPU " + b.t.DeviceLabel(s.device)
	case "rank":
		if rank, ok := b.t.Facts.RankOfProcess(s.pid); ok {
			return fmt.Sprintf("rank %d", rank)
		}
		return "(no rank)"
	}
	return "process " + b.t.PidLabel(s.pid)
}

// profileBuilder adds samples to a profile. It adds each mapping, function and location once.
type profileBuilder struct {
	t         *timeline.Timeline
	p         *profile.Profile
	hide      *query.FrameRules
	rootBy    string
	mappings  map[stack.ModuleKey]*profile.Mapping
	functions map[functionKey]*profile.Function
	locations map[int32]*profile.Location   // by id of the innermost frame in stack.StackTable
	stacks    map[int32][]*profile.Location // by stack id
	synthetic map[syntheticFrameKey]*profile.Location
}

// syntheticFrameKey identifies a frame without address.
type syntheticFrameKey struct{ module, name string }

// functionKey identifies a function by its demangled name, its mangled name and its source file.
type functionKey struct{ name, system, file string }

// addFirstMapping prepares the builder and adds the first mapping, which pprof shows as the main
// program.
func (b *profileBuilder) addFirstMapping() {
	b.mappings = make(map[stack.ModuleKey]*profile.Mapping)
	b.functions = make(map[functionKey]*profile.Function)
	b.locations = make(map[int32]*profile.Location)
	b.stacks = make(map[int32][]*profile.Location)
	b.synthetic = make(map[syntheticFrameKey]*profile.Location)
	b.addMapping(findProgramModule(b.t))
}

// findProgramModule returns the module of the recorded program: the module with the function
// _start, or the executable of a process.
func findProgramModule(t *timeline.Timeline) stack.ModuleKey {
	for i := range t.Stacks.Frames {
		if f := &t.Stacks.Frames[i]; f.Func == "_start" && f.Module != "" {
			return stack.ModuleKey{File: f.Module, BuildID: f.BuildID}
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		if exe := t.Facts.Processes[pid].Exe; exe != "" {
			return stack.ModuleKey{File: exe, BuildID: ""}
		}
	}
	return stack.ModuleKey{File: "[program]", BuildID: ""}
}

// addMapping returns the mapping of a module. Recorded addresses are offsets in ELF files, which
// overlap between modules. So every mapping gets its own range of 2^48 bytes.
func (b *profileBuilder) addMapping(key stack.ModuleKey) *profile.Mapping {
	if m, ok := b.mappings[key]; ok {
		return m
	}
	id := uint64(len(b.p.Mapping) + 1)
	m := &profile.Mapping{
		ID:      id,
		Start:   id << 48,
		Limit:   id<<48 + 1<<48,
		File:    units.ReplaceInvalidUTF8(key.File),
		BuildID: units.ReplaceInvalidUTF8(key.BuildID),
		// The recording has the symbols. pprof must not look for them in files of another machine.
		HasFunctions:    true,
		HasFilenames:    true,
		HasLineNumbers:  true,
		HasInlineFrames: true,
	}
	b.mappings[key] = m
	b.p.Mapping = append(b.p.Mapping, m)
	return m
}

// addStackLocations returns the locations of a stack, leaf first. It returns none if the stack was
// not recorded.
func (b *profileBuilder) addStackLocations(stack int32) []*profile.Location {
	list, ok := b.stacks[stack]
	if !ok {
		for ids := b.t.Stacks.VisibleFrames(stack, b.hide); len(ids) > 0; {
			n := b.t.Stacks.CountSameAddress(ids)
			list = append(list, b.addAddressLocation(ids[:n]))
			ids = ids[n:]
		}
		b.stacks[stack] = list
	}
	return list
}

// addAddressLocation returns the location of one address. ids are the frames at the address: a
// function, and the functions into which it is inlined.
func (b *profileBuilder) addAddressLocation(ids []int32) *profile.Location {
	if l, ok := b.locations[ids[0]]; ok {
		return l
	}
	f := &b.t.Stacks.Frames[ids[0]]
	module := stack.ModuleKey{File: f.Module, BuildID: f.BuildID}
	if f.Type == query.FrameTypePython {
		module = stack.ModuleKey{File: pythonModule, BuildID: ""}
	} else if f.Module == "" {
		module = stack.ModuleKey{File: "[" + cmp.Or(f.Type, "unknown") + "]", BuildID: ""}
	}
	m := b.addMapping(module)
	addr := uint64(f.Addr) & (1<<48 - 1)
	if f.Type == query.FrameTypePython {
		addr = uint64(len(b.p.Location) + 1) // a unique number, because Python code has no address
	}
	l := b.addLocation(m, m.Start+addr)
	for _, id := range ids {
		l.Line = append(l.Line, b.newFrameLine(id))
	}
	b.locations[ids[0]] = l
	return l
}

// newFrameLine returns the function and the source line of a frame.
func (b *profileBuilder) newFrameLine(id int32) profile.Line {
	f := &b.t.Stacks.Frames[id]
	name, system := query.FrameName(f), f.SystemName
	if f.Type == query.FrameTypePython {
		system = f.Func
		if f.File != "" {
			name = fmt.Sprintf("%s (%s)", name, path.Base(f.File))
		}
	}
	return profile.Line{Function: b.addFunction(functionKey{name, system, f.File}), Line: int64(f.Line)}
}

// addSyntheticLocation returns the location of a frame without address, in a synthetic module.
func (b *profileBuilder) addSyntheticLocation(module, name string) *profile.Location {
	key := syntheticFrameKey{module, name}
	if l, ok := b.synthetic[key]; ok {
		return l
	}
	m := b.addMapping(stack.ModuleKey{File: module, BuildID: ""})
	l := b.addLocation(m, m.Start+uint64(len(b.synthetic))+1)
	l.Line = []profile.Line{{Function: b.addFunction(functionKey{name: name})}}
	b.synthetic[key] = l
	return l
}

// addLocation adds a location without functions to the profile.
func (b *profileBuilder) addLocation(m *profile.Mapping, addr uint64) *profile.Location {
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Mapping: m, Address: addr}
	b.p.Location = append(b.p.Location, l)
	return l
}

// addFunction returns the function of the profile with a key, and adds it if it is new.
func (b *profileBuilder) addFunction(key functionKey) *profile.Function {
	// If both names are equal, pprof treats the name as mangled and removes template arguments.
	// Then all instances of a kernel template would have the same name.
	if key.system == key.name {
		key.system = ""
	}
	fn, ok := b.functions[key]
	if !ok {
		fn = &profile.Function{
			ID:         uint64(len(b.p.Function) + 1),
			Name:       units.ReplaceInvalidUTF8(key.name),
			SystemName: units.ReplaceInvalidUTF8(key.system),
			Filename:   units.ReplaceInvalidUTF8(key.file),
		}
		b.functions[key] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	return fn
}
