package survey

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// replayMemory replays memory for the observers, as the program sees it only if one of them needs that. onDriver, if
// not nil, gets the changes of driver memory before the observers.
func (s *Survey) replayMemory(onDriver func(*livemem.Change)) (err error) {
	t, driver, allocator := s.Timeline, s.driverFunction(onDriver), s.allocatorFunction()
	switch {
	case s.has(needsProgram):
		var p *timeline.ProgramMemory
		p, err = t.ReplayProgram(s.programFunction(), driver, allocator)
		if err == nil {
			s.Memory = *p
		}
	case s.has(needsAllocators):
		s.Memory.T = t
		s.Memory.Driver, s.Memory.Allocators, err = t.ReplayMemoryAndAllocators(
			func(_ *livemem.Set, c *livemem.Change) { driver(c) },
			allocator,
		)
	default:
		return s.replayDriver(driver)
	}
	if err != nil {
		return err
	}
	s.Counts = s.Memory.DriverCounts()
	t.SetReplayCounts(s.Counts)
	return nil
}

// replayDriver replays driver memory, or only takes the counts of an earlier replay if no observer needs more.
func (s *Survey) replayDriver(driver func(*livemem.Change)) (err error) {
	if !s.has(needsDriver) {
		s.Counts, err = s.Timeline.ReplayCounts()
		return err
	}
	s.Memory.T = s.Timeline
	s.Memory.Driver, err = s.Timeline.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) { driver(c) })
	if err != nil {
		return err
	}
	s.Counts = s.Memory.DriverCounts()
	s.Timeline.SetReplayCounts(s.Counts)
	return nil
}

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
