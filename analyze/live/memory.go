package live

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// MaxDelayNs is how much later than a call's end its row may come. Calls of several processors come in the
// order in which the recorder reads their buffers.
const MaxDelayNs = int64(500e6)

// memory replays the memory calls of all processes, MaxDelayNs after the latest of them.
type memory struct {
	origins    origin.OriginTable
	replay     livemem.MemoryReplay
	numbers    caching.AllocatorNumbers
	rules      map[int32]caching.AllocatorRules
	allocators *caching.AllocatorSet
	calls      []livemem.MemoryCall
	events     []caching.AllocatorEvent
	totals     []caching.OwnTotals
	gaps       []query.Window // times without allocator events
	latestNs   int64          // latest time of a call or of an event
	// live are the live bytes of driver memory, by process and kind.
	live map[liveKey]int64
	// bySite is the live driver memory on GPUs, by pid and number of the call site in origins.Strings.
	bySite map[int32]map[int32]siteMemory
	// changed is called for each change of driver memory on GPUs, with the change of live bytes.
	changed func(pid int32, atNs, bytes int64)
	// created has the contexts that programs created, with their devices.
	created map[contextKey]bool
}

// liveKey identifies memory of one kind in a process.
type liveKey struct {
	pid  int32
	kind string
}

// siteMemory is the live memory of a call site.
type siteMemory struct{ bytes, blocks int64 }

// contextKey identifies a context. Handles are unique within a process.
type contextKey struct {
	pid     int32
	context int64
}

func newMemory() memory {
	m := memory{
		origins: origin.NewOriginTable(),
		numbers: caching.NewAllocatorNumbers(),
		rules:   make(map[int32]caching.AllocatorRules),
		live:    make(map[liveKey]int64),
		bySite:  make(map[int32]map[int32]siteMemory),
		created: make(map[contextKey]bool),
	}
	return m
}

// begin makes the replays. They refer to m, which must not move afterwards.
func (m *memory) begin() {
	if m.allocators != nil {
		return
	}
	m.allocators = caching.NewAllocatorSet(&m.numbers, m.rules)
	m.replay = livemem.MemoryReplay{Live: livemem.New(&m.origins, m.contextEndFrees), Consume: m.countChange}
	m.replay.Exit = func(pid int32, atNs int64) { m.allocators.EndProcess(pid, atNs, ignoreChange) }
}

func ignoreChange(*caching.Allocator, *caching.AllocatorChange) {}

// contextEndFrees reports whether the end of a context frees the memory of an origin. Without a handle,
// the event ends the primary context of a device.
func (m *memory) contextEndFrees(id int32, e *livemem.MemoryEvent) bool {
	o := &m.origins.List[id]
	if e.Context != 0 || o.Context == 0 {
		return o.Context != 0 && o.Context == e.Context
	}
	return o.Device == e.Device && !m.created[contextKey{o.Pid, o.Context}]
}

// countChange adds a change of driver memory to the live bytes of its process.
func (m *memory) countChange(_ *livemem.Set, c *livemem.Change) {
	if c.Kind == livemem.ChangeAllocFailed || c.Block.Origin == origin.NoOrigin {
		return
	}
	o, bytes := &m.origins.List[c.Block.Origin], livemem.LiveBytesChange(c)
	kind := m.origins.MemoryKindOf(c.Block.Origin)
	if key := (liveKey{o.Pid, kind}); m.live[key]+bytes == 0 {
		delete(m.live, key)
	} else {
		m.live[key] += bytes
	}
	if livemem.IsHostKind(kind) {
		return
	}
	m.changed(o.Pid, c.AtNs, bytes)
	sites := m.bySite[o.Pid]
	if sites == nil {
		sites = make(map[int32]siteMemory)
		m.bySite[o.Pid] = sites
	}
	s := sites[o.Site]
	s.bytes += bytes
	if c.Kind == livemem.ChangeAllocated {
		s.blocks++
	} else {
		s.blocks--
	}
	if sites[o.Site] = s; s == (siteMemory{}) {
		delete(sites, o.Site)
	}
}

// addCall adds a row of class memory.
func (m *memory) addCall(row *format.Row) {
	m.begin()
	op, known := livemem.OpsByKind[row.Kind]
	if !known {
		return
	}
	if op, known = op.Outcome(row.Flags, row.Result, row.Ptr, row.Bytes); !known {
		return
	}
	c := livemem.MemoryCall{
		AtNs: row.StartNs, DurNs: max(0, row.DurNs), Ptr: row.Ptr, Bytes: max(0, row.Bytes), Op: op,
		Space: livemem.SpacesByMemoryKind[row.MemoryKind],
	}
	switch op {
	case livemem.OpAlloc:
		c.Bytes = min(c.Bytes, livemem.MaxAllocBytes)
	case livemem.OpMapHandle:
		c.Handle = row.SrcPtr
	case livemem.OpAllocFailed:
		c.Handle = int64(row.Result)
	}
	if !op.TakesEffectAtStart() {
		c.AtNs = units.EndOfRange(row.StartNs, row.DurNs)
		c.DurNs = c.AtNs - row.StartNs
	}
	c.Origin = m.originOf(row)
	m.calls = append(m.calls, c)
	m.latestNs = max(m.latestNs, c.AtNs)
}

// originOf returns the number of a row's origin.
func (m *memory) originOf(row *format.Row) int32 {
	return m.origins.NumberOf(origin.CallOrigin{
		Context: row.Context, Pid: row.Pid, Tid: row.Tid, Device: row.Device, Stack: row.StackID, Stream: row.Stream,
		Name: m.origins.Strings.NumberOf(row.Name), Site: m.origins.Strings.NumberOf(row.Site),
		Memory: m.origins.Strings.NumberOf(row.MemoryKind),
	})
}

// noteContext adds the event of a call that ends a context.
func (m *memory) noteContext(row *format.Row) {
	if row.Kind != format.KindAPI || row.Result != 0 {
		return
	}
	e := livemem.MemoryEvent{AtNs: row.StartNs, Pid: row.Pid, Kind: livemem.EventContextEnd}
	switch timeline.APIKindsByFunction[catalog.BaseFunctionName(row.Name)] {
	case timeline.APICreateContext:
		m.created[contextKey{row.Pid, row.Ptr}] = true
		return
	case timeline.APIDestroyContext:
		e.Context = row.Ptr
	case timeline.APIResetPrimary:
		e.Device = row.Device
	default:
		return
	}
	m.addMemoryEvent(e)
}

// endProcess adds the end of a process.
func (m *memory) endProcess(pid int32, atNs int64) {
	m.addMemoryEvent(livemem.MemoryEvent{AtNs: atNs, Pid: pid, Kind: livemem.EventProcessExit})
}

// forget removes the memory of a process that has ended.
func (m *memory) forget(pid int32) {
	maps.DeleteFunc(m.live, func(k liveKey, _ int64) bool { return k.pid == pid })
	delete(m.bySite, pid)
	m.allocators.Ended = slices.DeleteFunc(m.allocators.Ended, func(a *caching.Allocator) bool { return a.Pid == pid })
}

func (m *memory) addMemoryEvent(e livemem.MemoryEvent) {
	m.begin()
	m.replay.Events = append(m.replay.Events, e)
	slices.SortStableFunc(m.replay.Events, func(a, b livemem.MemoryEvent) int { return cmp.Compare(a.AtNs, b.AtNs) })
}

// addNote applies the configuration of a caching allocator.
func (m *memory) addNote(row *format.Row) {
	var fact format.AllocatorFact
	if row.Name == format.NoteAllocator && json.Unmarshal([]byte(row.Message), &fact) == nil {
		m.rules[row.Pid] = caching.ParseAllocatorRules(fact.Conf)
	}
	if row.Name == format.NoteSampling {
		m.addSwitch(row)
	}
}

// addEvent adds a row of class allocator.
func (m *memory) addEvent(row *format.Row) {
	m.begin()
	op, ok := caching.OpsByEventName[row.Name]
	if !ok {
		return
	}
	e := caching.AllocatorEvent{
		AtNs:   row.StartNs,
		Ptr:    row.Ptr & (1<<56 - 1),
		Bytes:  min(max(0, row.Bytes), livemem.MaxAllocBytes),
		Pool:   row.SrcPtr,
		Stream: row.Stream,
		Op:     op,
		Origin: origin.NoOrigin,
		Allocated: min(
			row.AllocatedBytes,
			livemem.MaxAllocBytes,
		),
		Reserved:  min(row.ReservedBytes, livemem.MaxAllocBytes),
		Allocator: m.numbers.NumberOf(caching.AllocatorKey{Pid: row.Pid, Device: row.Device}),
	}
	if op.RequestsMemory() {
		e.Origin = m.originOf(row)
	}
	if op == caching.OpOutOfMemory {
		e.Ptr = int64(min(max(0, row.Value), livemem.MaxAllocBytes))
	}
	m.events = append(m.events, e)
	m.latestNs = max(m.latestNs, e.AtNs)
}

// apply applies the calls and events before a time, Unix ns.
func (m *memory) apply(beforeNs int64) {
	m.begin()
	timeline.SortNearlySorted(m.calls, (*livemem.MemoryCall).ComesBefore)
	timeline.SortNearlySorted(m.events, func(a, b *caching.AllocatorEvent) bool { return a.AtNs < b.AtNs })
	timeline.SortNearlySorted(m.totals, func(a, b *caching.OwnTotals) bool { return a.AtNs < b.AtNs })
	calls, events, totals := m.calls, m.events, m.totals
	for {
		isCall := len(calls) > 0 && calls[0].AtNs < beforeNs
		isEvent := len(events) > 0 && events[0].AtNs < beforeNs
		isTotal := len(totals) > 0 && totals[0].AtNs < beforeNs
		switch {
		case isTotal && (!isCall || totals[0].AtNs <= calls[0].AtNs) && (!isEvent || totals[0].AtNs <= events[0].AtNs):
			m.replay.ApplyEventsBefore(totals[0].AtNs)
			m.allocators.ApplyTotals(&totals[0], ignoreChange)
			totals = totals[1:]
		case isCall && (!isEvent || calls[0].AtNs <= events[0].AtNs):
			m.replay.ApplyCall(&calls[0])
			calls = calls[1:]
		case isEvent:
			m.replay.ApplyEventsBefore(events[0].AtNs)
			m.allocators.ApplyEvent(&events[0], ignoreChange)
			events = events[1:]
		default:
			m.replay.ApplyEventsBefore(beforeNs)
			m.calls = m.calls[:copy(m.calls, calls)]
			m.events = m.events[:copy(m.events, events)]
			m.totals = m.totals[:copy(m.totals, totals)]
			return
		}
	}
}
