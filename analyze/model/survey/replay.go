package survey

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// memoryReplay is the replay of memory that the observers need. It is the zero value if none of them follows memory.
type memoryReplay struct {
	program *timeline.ProgramReplay // if an observer has Program
	memory  *timeline.MemoryReplay  // if none has Program, but one has Allocator, Driver or NeedsHostMemory
}

// beginReplay returns the replay of memory. first, if not nil, gets the changes of driver memory before the observers.
func (s *Survey) beginReplay(first func(*livemem.Change)) (r memoryReplay) {
	t, driver, allocator := s.Timeline, s.driverFunction(first), s.allocatorFunction()
	onDriver := func(_ *livemem.Set, c *livemem.Change) { driver(c) }
	switch {
	case s.has(needsProgram):
		r.program = t.NewProgramReplay(s.programFunction(), driver, allocator)
	case s.has(needsAllocators):
		r.memory = t.NewMemoryAndAllocatorReplay(onDriver, allocator)
	case s.has(needsDriver):
		r.memory = t.NewMemoryReplay(onDriver)
	}
	return r
}

// advance replays the changes before untilNs, Unix ns.
func (r *memoryReplay) advance(untilNs int64) error {
	switch {
	case r.program != nil:
		return r.program.Advance(untilNs)
	case r.memory != nil:
		return r.memory.Advance(untilNs)
	}
	return nil
}

// finishReplay replays the rest, and sets Memory and Counts. If no observer follows memory, it takes the counts of an
// earlier replay.
func (s *Survey) finishReplay(r *memoryReplay) (err error) {
	t := s.Timeline
	switch {
	case r.program != nil:
		p, err := r.program.Finish()
		if err != nil {
			return err
		}
		s.Memory = *p
	case r.memory != nil:
		if err := r.memory.Finish(); err != nil {
			return err
		}
		s.Memory = timeline.ProgramMemory{T: t, Driver: r.memory.Live(), Allocators: r.memory.Allocators}
	default:
		s.Counts, err = t.ReplayCounts()
		return err
	}
	s.Counts = s.Memory.DriverCounts()
	t.SetReplayCounts(s.Counts)
	return nil
}

// replayMemory replays all memory for the observers. first has the meaning of beginReplay.
func (s *Survey) replayMemory(first func(*livemem.Change)) error {
	r := s.beginReplay(first)
	return s.finishReplay(&r)
}

// driverFunction returns a function that passes a change of driver memory to first, if it is not nil, and then to the
// observers.
func (s *Survey) driverFunction(first func(*livemem.Change)) func(*livemem.Change) {
	var list []func(*livemem.Change)
	if first != nil {
		list = append(list, first)
	}
	for i := range s.observers {
		if f := s.observers[i].Driver; f != nil {
			list = append(list, f)
		}
	}
	return func(c *livemem.Change) {
		for _, f := range list {
			f(c)
		}
	}
}

// allocatorFunction returns a function that passes a change of a caching allocator to the observers.
func (s *Survey) allocatorFunction() caching.ChangeConsumer {
	var list []caching.ChangeConsumer
	for i := range s.observers {
		if f := s.observers[i].Allocator; f != nil {
			list = append(list, f)
		}
	}
	return func(a *caching.Allocator, c *caching.AllocatorChange) {
		for _, f := range list {
			f(a, c)
		}
	}
}

// programFunction returns a function that passes a change of the program's memory to the observers.
func (s *Survey) programFunction() func(*timeline.ProgramMemory, *livemem.Change) {
	var list []func(*timeline.ProgramMemory, *livemem.Change)
	for i := range s.observers {
		if f := s.observers[i].Program; f != nil {
			list = append(list, f)
		}
	}
	return func(p *timeline.ProgramMemory, c *livemem.Change) {
		for _, f := range list {
			f(p, c)
		}
	}
}
