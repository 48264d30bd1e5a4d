package activity

// assumption decides what calls leave open.
type assumption struct {
	timed bool // all events of unknown timing have timing
	// timedEvents are the events of unknown timing that have timing, if not all have. nil: those that probably have it.
	timedEvents map[handleKey]bool
	place       Place // of copies that run at AnyPlace. There, they have no channel
}

// isTimed reports whether the event of a record has timing, if it is unknown.
func (a *assumption) isTimed(c *Call) bool {
	switch {
	case a.timed:
		return true
	case a.timedEvents == nil:
		return c.LikelyTiming
	}
	return a.timedEvents[handleKey{c.Pid, c.Event}]
}

// search finds the best assumption.
type search struct {
	source   Source
	channels []Channel
	opt      Options
	best     *attempt
}

// findBest numbers the operations under the best assumption.
func findBest(source Source, channels []Channel, opt Options) (*attempt, error) {
	if opt.Window == (Window{}) {
		opt.Window = Window{0, UnknownNs}
	}
	first, err := try(source, channels, opt, assumption{place: OnStream})
	if err != nil {
		return nil, err
	}
	s := search{source, channels, opt, first}
	for _, place := range []Place{OnEngine, AnyPlace} {
		if !s.best.unknownPlace || s.best.isConsistent() {
			break
		}
		if err := s.try(assumption{place: place}); err != nil {
			return nil, err
		}
	}
	if s.best.unknownTiming && !s.best.isConsistent() {
		if err := s.tryTimings(); err != nil {
			return nil, err
		}
	}
	if err := s.best.pairByExtra(); err != nil {
		return nil, err
	}
	return s.best, s.best.hide()
}

// try tries an assumption.
func (s *search) try(to assumption) error {
	other, err := try(s.source, s.channels, s.opt, to)
	if err == nil {
		s.best = s.best.orBetter(other)
	}
	return err
}

// tryTimings tries which events of unknown timing have timing: those that the equations name, first with those that
// probably have timing and then with none, or all.
func (s *search) tryTimings() error {
	isSure, err := s.solveTimings()
	if err != nil || s.best.isConsistent() {
		return err
	}
	place := s.best.assumed.place
	if s.best.likelyTiming && s.best.assumed.timedEvents == nil {
		before := s.best
		if err := s.try(assumption{timedEvents: map[handleKey]bool{}, place: place}); err != nil {
			return err
		}
		if s.best != before {
			if isSure, err = s.solveTimings(); err != nil {
				return err
			}
		}
	}
	if isSure || s.best.isConsistent() {
		return nil
	}
	return s.try(assumption{timed: true, place: place})
}

// solveTimings tries the events that the equations of the best attempt name. With the right operations there may be
// other pairs. isSure reports that the equations decide it for all events.
func (s *search) solveTimings() (isSure bool, err error) {
	if s.best.reader.timings == nil {
		return false, nil
	}
	timed, isNew, isSure := s.best.reader.timings.solve()
	if !isNew {
		return isSure, nil
	}
	other, err := s.best.withTimedEvents(s.source, timed)
	if err != nil {
		return isSure, err
	}
	if s.best = s.best.orBetter(other); s.best.isConsistent() {
		return isSure, nil
	}
	return isSure, s.try(assumption{timedEvents: timed, place: s.best.assumed.place})
}
