package survey

import (
	"errors"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Observer has a function for each part of a recording that it needs; the others are nil. Functions for memory run in
// one goroutine, those for calls and host rows in another, each one call at a time. What they get is valid until they
// return.
type Observer struct {
	// MemoryGroup gets the row groups of calls that allocate or free memory, in the order of their first call.
	// CallGroup gets those of all other calls. Columns of a group are read once for all observers.
	MemoryGroup, CallGroup func(timeline.Span, *format.Group)

	// Call gets the calls of Kinds that pass the filter, in the order of their start. Their names are numbers of
	// Survey.Reader. Kinds are values of the column kind. NeedsHostMemory delays the calls until Survey.HostMemory is
	// complete.
	Call            func(*calls.Call) error
	Kinds           []string
	NeedsHostMemory bool

	// Driver gets the changes of driver memory, Allocator those of caching allocators, and Program those of memory as
	// the program sees it: see timeline.ProgramMemory. All are in the order of their effect.
	Driver    func(*livemem.Change)
	Allocator caching.ChangeConsumer
	Program   func(*timeline.ProgramMemory, *livemem.Change)

	// Host gets the rows of class host.
	Host func(*hosttime.Rows) error
	// Alongside is work that reads the recording itself, such as GPU times. It runs next to the passes.
	Alongside func() error
}

// Survey is one reading of a recording for many observers. Add observers, call Read once, and use the results. While a
// recording grows, call Advance many times and Finish once instead. A Survey is not safe for concurrent use.
type Survey struct {
	// Timeline is a view that no other goroutine uses. Filter selects the calls of Observer.Call.
	Timeline *timeline.Timeline
	Filter   *query.Filter
	// Reader reads the calls of Observer.Call. Its Names are complete after Read.
	Reader *calls.CallReader

	// HostMemory is the host memory that the GPU can access, over time. It is complete after Read.
	HostMemory *hostmem.HostBlocks
	// Memory has the driver memory and the caching allocators at the end. Read sets it, its Driver only if an observer
	// follows changes of memory, and its Allocators only if one has Allocator or Program.
	Memory timeline.ProgramMemory
	// Counts are those of the replay of memory. Read sets them.
	Counts *livemem.ReplayCounts

	observers []Observer
	shared    map[any]any
	cache     format.ColumnCache // of the current row group
	feed      *feed              // nil before Advance
}

// New returns a Survey without observers.
func New(t *timeline.Timeline, f *query.Filter) *Survey {
	return &Survey{
		Timeline: t, Filter: f, Reader: calls.NewCallReader(t, f), HostMemory: hostmem.NewHostBlocks(),
		shared: make(map[any]any),
	}
}

// Add adds observers. They get the same parts of the recording in the order in which they were added.
func (s *Survey) Add(list ...Observer) {
	s.observers = append(s.observers, list...)
	for _, o := range list {
		for _, kind := range o.Kinds {
			if !slices.Contains(s.Reader.Kinds, kind) {
				s.Reader.Kinds = append(s.Reader.Kinds, kind)
			}
		}
	}
}

// Share returns what observers of several reports use together. It calls create, which may add observers, at the
// first call with a key. The type of the key should be private to its package.
func Share[T any](s *Survey, key any, create func() T) T {
	if known, ok := s.shared[key].(T); ok {
		return known
	}
	made := create()
	s.shared[key] = made
	return made
}

// has reports whether an observer needs a part.
func (s *Survey) has(needs func(*Observer) bool) bool {
	return slices.ContainsFunc(s.observers, func(o Observer) bool { return needs(&o) })
}

func needsCalls(o *Observer) bool      { return o.Call != nil && !o.NeedsHostMemory }
func needsLateCalls(o *Observer) bool  { return o.Call != nil && o.NeedsHostMemory }
func needsDriver(o *Observer) bool     { return o.Driver != nil || o.NeedsHostMemory }
func needsProgram(o *Observer) bool    { return o.Program != nil }
func needsAllocators(o *Observer) bool { return o.Allocator != nil }

// Read reads the recording for all observers. After an error, results are not complete and must not be used.
func (s *Survey) Read() error { return s.readAlongside(s.readRecording) }

// readAlongside calls read and, at the same time, Alongside of all observers.
func (s *Survey) readAlongside(read func() error) error {
	for i := range s.observers {
		if alongside := s.observers[i].Alongside; alongside != nil {
			before := read
			read = func() error { return timeline.RunParallel(before, alongside) }
		}
	}
	return read()
}

// readRecording makes the passes of the observers. Functions that run in parallel share no mutable state.
func (s *Survey) readRecording() error {
	if s.has(needsProgram) && len(s.Timeline.Allocations) > 0 {
		search := func() error { return s.Timeline.FindSegments(s.addHostMemory) }
		if err := timeline.RunParallel(search, s.readMemoryGroups); err != nil {
			return err
		}
		all := func(o *Observer) bool { return o.Call != nil }
		return timeline.RunParallel(func() error { return s.replayMemory(nil) }, func() error {
			return runUntilError(func() error { return s.readCalls(all) }, s.readHostRows)
		})
	}
	scan := func() error {
		return runUntilError(func() error { return s.readCalls(needsCalls) }, s.readMemoryGroups, s.readHostRows)
	}
	replay := func() error { return s.replayMemory(s.addHostMemory) }
	return runUntilError(func() error { return timeline.RunParallel(replay, scan) }, s.readLateCalls)
}

// readLateCalls passes calls to the observers that need host memory.
func (s *Survey) readLateCalls() error {
	if !s.has(needsLateCalls) {
		return nil
	}
	return s.readOrderedCalls(needsLateCalls, func(sp timeline.Span) *format.Group { return sp.Group })
}

// runUntilError runs functions in order until one fails, and returns its error.
func runUntilError(list ...func() error) error {
	for _, f := range list {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Survey) addHostMemory(c *livemem.Change) { s.HostMemory.AddChange(s.Timeline, c) }

// readMemoryGroups passes the row groups of memory calls to the observers.
func (s *Survey) readMemoryGroups() error {
	return s.observeGroups(
		objects.SpansInOrder(s.Timeline.Memory),
		func(o *Observer) groupFunction { return o.MemoryGroup },
	)
}

// observeGroups passes row groups to the functions that of selects.
func (s *Survey) observeGroups(spans []timeline.Span, of func(*Observer) groupFunction) error {
	observe := s.groupFunctions(of)
	if len(observe) == 0 {
		return nil
	}
	var cache format.ColumnCache
	for _, sp := range spans {
		g := cache.Wrap(sp.Group)
		for _, f := range observe {
			f(sp, g)
		}
		if err := g.Err(); err != nil {
			return s.Timeline.WrapReadError(err)
		}
	}
	return nil
}

// groupFunction gets a row group. It reads columns of the Group, which may cache them, and not those of the Span.
type groupFunction = func(timeline.Span, *format.Group)

// groupFunctions returns the functions for row groups of all observers that have one.
func (s *Survey) groupFunctions(of func(*Observer) groupFunction) (list []groupFunction) {
	for i := range s.observers {
		if f := of(&s.observers[i]); f != nil {
			list = append(list, f)
		}
	}
	return list
}

// readCalls passes the row groups of calls to the observers, and single calls to those that isIn selects.
func (s *Survey) readCalls(isIn func(*Observer) bool) error {
	observe := s.groupFunctions(func(o *Observer) groupFunction { return o.CallGroup })
	if len(observe) == 0 && !s.has(isIn) {
		return nil
	}
	return s.readOrderedCalls(isIn, func(sp timeline.Span) *format.Group {
		g := s.cache.Wrap(sp.Group)
		for _, f := range observe {
			f(sp, g)
		}
		return g
	})
}

// readOrderedCalls passes calls to the observers that isIn selects, in the order of their start.
func (s *Survey) readOrderedCalls(isIn func(*Observer) bool, open func(timeline.Span) *format.Group) error {
	return s.Reader.EachCallFrom(open, s.callFunction(isIn))
}

// callFunction returns a function that passes a call to the observers that isIn selects. It makes the Reader read only
// their calls.
func (s *Survey) callFunction(isIn func(*Observer) bool) func(*calls.Call) error {
	observe := make([][]func(*calls.Call) error, len(s.Reader.Kinds)) // by Call.Kind
	var kinds []string
	for i := range s.observers {
		o := &s.observers[i]
		if !isIn(o) {
			continue
		}
		kinds = append(kinds, o.Kinds...)
		for _, kind := range o.Kinds {
			k := slices.Index(s.Reader.Kinds, kind)
			observe[k] = append(observe[k], o.Call)
		}
	}
	s.Reader.SelectKinds(kinds)
	return func(c *calls.Call) error {
		for _, f := range observe[c.Kind] {
			if err := f(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// readHostRows passes the rows of class host to the observers.
func (s *Survey) readHostRows() error {
	if !s.has(func(o *Observer) bool { return o.Host != nil }) {
		return nil
	}
	return hosttime.EachGroup(s.Timeline, func(rows *hosttime.Rows) error {
		var failed error
		for i := range s.observers {
			if f := s.observers[i].Host; f != nil {
				failed = errors.Join(failed, f(rows))
			}
		}
		return failed
	})
}

// Shared returns what Share has kept for a key, or the zero value.
func Shared[T any](s *Survey, key any) T {
	known, _ := s.shared[key].(T)
	return known
}
