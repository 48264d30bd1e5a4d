package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"path"
	"slices"

	"github.com/google/pprof/profile"
)

var heapColumns = []Column{
	{"alloc_objects", "", UnitCount, "allocations in the window"},
	{"alloc_space", "", UnitBytes, "bytes of those"},
	{"inuse_objects", "", UnitCount, "allocations of the window that the program had not freed at its end, or when its process ended"},
	{"inuse_space", "", UnitBytes, "bytes of those"},
}

// exactSizes is how many different sizes a place may allocate before further ones
// are put together by powers of two: a sample per size of a program that allocates
// random sizes would make the profile as long as the recording.
const exactSizes = 256

// HeapProfile returns the memory of the window as a pprof profile, by the stacks
// that allocated it (blocks of a caching allocator in place of its segments), and the quality of the recording it is made from. Samples have
// the labels bytes (numeric, size of one allocation), device, pid and tid (numeric),
// api, kind, stream and thread. All frames are in it but for those that opt.Hide
// hides. NoMatch is set if the filter left nothing over.
func (t *Timeline) HeapProfile(opt Options) (p *profile.Profile, q Quality, none *NoMatch, err error) {
	h, err := t.newHeap(&opt)
	if err != nil {
		return nil, q, nil, err
	}
	memory, err := t.replayProgram(h.consume, nil, nil)
	if err != nil {
		return nil, q, nil, err
	}
	q = t.programQuality(memory)
	if len(h.samples) == 0 && t.hasMemory() {
		none = h.grouping.seen.explain(&opt.Filter)
	}
	p = h.profile(&q)
	if err := p.CheckValid(); err != nil {
		return nil, q, nil, fmt.Errorf("build profile: %w", err)
	}
	return p, q, none, nil
}

// heapKey is what one sample of the profile stands for.
type heapKey struct {
	origin int32
	bytes  int64
}

type heapValue struct{ allocs, allocBytes, frees, freedBytes int64 }

type heap struct {
	t        *Timeline
	grouping *grouping
	window   Window
	samples  map[heapKey]*heapValue
	hide     *FrameRules
	sizes    []int // distinct sizes by origin
}

func (t *Timeline) newHeap(opt *Options) (*heap, error) {
	f := &opt.Filter
	by, err := t.groupBy("site", f)
	return &heap{t: t, grouping: by, window: t.activity(f), samples: make(map[heapKey]*heapValue), hide: cmp.Or(opt.Hide, new(FrameRules))}, err
}

func (h *heap) consume(_ *programMemory, c *change) {
	if c.atNs > h.window.ToNs || c.block.sinceNs < h.window.FromNs || c.what == allocFailed || c.what == freedByExit {
		return
	}
	if _, ok := h.grouping.of(c.block.origin, c.block.bytes); !ok {
		return
	}
	v := h.sample(heapKey{c.block.origin, c.block.bytes})
	if c.what == allocated {
		v.allocs++
		v.allocBytes += c.block.bytes
	} else {
		v.frees++
		v.freedBytes += c.block.bytes
	}
}

func (h *heap) sample(key heapKey) *heapValue {
	if v, ok := h.samples[key]; ok {
		return v
	}
	for int(key.origin) >= len(h.sizes) {
		h.sizes = append(h.sizes, 0)
	}
	if h.sizes[key.origin] >= exactSizes {
		key.bytes = 1 << bits.Len64(uint64(key.bytes-1)) & (1<<62 - 1)
		if v, ok := h.samples[key]; ok {
			return v
		}
	}
	h.sizes[key.origin]++
	v := new(heapValue)
	h.samples[key] = v
	return v
}

func (h *heap) profile(q *Quality) *profile.Profile {
	m := &h.t.rec.Meta
	b := profileBuilder{t: h.t, hide: h.hide, p: &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"},
			{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"},
		},
		DefaultSampleType: "inuse_space",
		PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
		Period:            1,
		TimeNanos:         h.window.FromNs,
		DurationNanos:     h.window.DurNs(),
		// No doc URL: trace_processor takes a profile with one for another format.
		Comments: []string{"GPU and pinned host memory, recorded by gpurec " + m.GpurecVersion, "quality: " + q.String()},
	}}
	b.begin()
	keys := make([]heapKey, 0, len(h.samples))
	for k := range h.samples {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b heapKey) int {
		return cmp.Or(cmp.Compare(a.origin, b.origin), cmp.Compare(a.bytes, b.bytes))
	})
	for _, k := range keys {
		v := h.samples[k]
		b.p.Sample = append(b.p.Sample, b.sample(k, []int64{v.allocs, v.allocBytes, v.allocs - v.frees, v.allocBytes - v.freedBytes}))
	}
	return b.p
}

func (b *profileBuilder) sample(k heapKey, values []int64) *profile.Sample {
	t, o := b.t, &b.t.origins.list[k.origin]
	s := &profile.Sample{
		Location: b.stack(k.origin),
		Value:    values,
		Label: map[string][]string{
			"api": {validUTF8(t.origins.name(k.origin))}, "kind": {validUTF8(t.origins.memory(k.origin))}, "stream": {streamName(o.stream)},
		},
		NumLabel: map[string][]int64{"bytes": {k.bytes}, "device": {int64(o.device)}, "pid": {int64(o.pid)}, "tid": {int64(o.tid)}},
		NumUnit:  map[string][]string{"bytes": {"bytes"}, "device": {"gpu"}, "pid": {"process"}, "tid": {"thread"}},
	}
	if name := t.facts.threads[thread{o.pid, o.tid}]; name != "" {
		s.Label["thread"] = []string{validUTF8(name)}
	}
	return s
}

// profileBuilder adds mappings, functions and locations to a profile, each once.
type profileBuilder struct {
	t         *Timeline
	p         *profile.Profile
	hide      *FrameRules
	mappings  map[moduleKey]*profile.Mapping
	functions map[functionKey]*profile.Function
	locations map[int32]*profile.Location // by innermost frame of stackTable
	stacks    map[int32][]*profile.Location
	synthetic map[string]*profile.Location
}

type moduleKey struct{ file, buildID string }

type functionKey struct{ name, system, file string }

// begin makes the first mapping, which pprof takes for the program itself.
func (b *profileBuilder) begin() {
	b.mappings = make(map[moduleKey]*profile.Mapping)
	b.functions = make(map[functionKey]*profile.Function)
	b.locations = make(map[int32]*profile.Location)
	b.stacks = make(map[int32][]*profile.Location)
	b.synthetic = make(map[string]*profile.Location)
	b.mapping(b.t.program())
}

// program is the module that the recorded program started in.
func (t *Timeline) program() moduleKey {
	for i := range t.stacks.frames {
		if f := &t.stacks.frames[i]; f.Func == "_start" && f.Module != "" {
			return moduleKey{f.Module, f.BuildID}
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(t.facts.processes)) {
		if exe := t.facts.processes[pid].Exe; exe != "" {
			return moduleKey{exe, ""}
		}
	}
	return moduleKey{"[program]", ""}
}

// mapping returns the mapping of a module. Recorded addresses are those of the ELF
// file, which overlap between modules, so every mapping gets 2^48 bytes of its own.
func (b *profileBuilder) mapping(key moduleKey) *profile.Mapping {
	if m, ok := b.mappings[key]; ok {
		return m
	}
	id := uint64(len(b.p.Mapping) + 1)
	m := &profile.Mapping{
		ID: id, Start: id << 48, Limit: id<<48 + 1<<48, File: validUTF8(key.file), BuildID: validUTF8(key.buildID),
		// Everything was named when it was recorded; pprof must not try again with
		// what files lie on this machine.
		HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true,
	}
	b.mappings[key] = m
	b.p.Mapping = append(b.p.Mapping, m)
	return m
}

// stack returns the locations of the stack that an origin was called from.
func (b *profileBuilder) stack(origin int32) []*profile.Location {
	stack := b.t.origins.list[origin].stack
	list, ok := b.stacks[stack]
	if !ok {
		for ids := b.t.stacks.kept(stack, b.hide); len(ids) > 0; {
			n := b.t.stacks.sameCode(ids)
			list = append(list, b.code(ids[:n]))
			ids = ids[n:]
		}
		b.stacks[stack] = list
	}
	if len(list) == 0 {
		return []*profile.Location{b.named(b.t.origins.name(origin)), b.named(noStack)}
	}
	return list
}

// code returns the location of one address, with the functions inlined there.
func (b *profileBuilder) code(ids []int32) *profile.Location {
	if l, ok := b.locations[ids[0]]; ok {
		return l
	}
	f := &b.t.stacks.frames[ids[0]]
	module := moduleKey{f.Module, f.BuildID}
	if f.Type == "python" {
		module = moduleKey{"[python]", ""}
	} else if f.Module == "" {
		module = moduleKey{"[" + cmp.Or(f.Type, "unknown") + "]", ""}
	}
	m := b.mapping(module)
	l := b.location(m, m.Start+uint64(f.Addr)&(1<<48-1))
	for _, id := range ids {
		l.Line = append(l.Line, b.frame(id))
	}
	b.locations[ids[0]] = l
	return l
}

func (b *profileBuilder) frame(id int32) profile.Line {
	f := &b.t.stacks.frames[id]
	name, system := frameName(f), f.SystemName
	if f.Type == "python" {
		system = f.Func
		if f.File != "" {
			name = fmt.Sprintf("%s (%s)", name, path.Base(f.File))
		}
	}
	return profile.Line{Function: b.function(functionKey{name, system, f.File}), Line: int64(f.Line)}
}

// named returns a location for what has no address.
func (b *profileBuilder) named(name string) *profile.Location {
	if l, ok := b.synthetic[name]; ok {
		return l
	}
	m := b.mapping(moduleKey{"[gpurec]", ""})
	l := b.location(m, m.Start+uint64(len(b.synthetic))+1)
	l.Line = []profile.Line{{Function: b.function(functionKey{name: name})}}
	b.synthetic[name] = l
	return l
}

func (b *profileBuilder) location(m *profile.Mapping, addr uint64) *profile.Location {
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Mapping: m, Address: addr}
	b.p.Location = append(b.p.Location, l)
	return l
}

func (b *profileBuilder) function(key functionKey) *profile.Function {
	// With both names equal pprof takes the name for mangled and shortens it, until
	// instances of one kernel template are all the same.
	if key.system == key.name {
		key.system = ""
	}
	fn, ok := b.functions[key]
	if !ok {
		fn = &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: validUTF8(key.name), SystemName: validUTF8(key.system), Filename: validUTF8(key.file)}
		b.functions[key] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	return fn
}
