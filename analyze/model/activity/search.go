package activity

// assumption decides what calls leave open.
type assumption struct {
	timed bool // all events of unknown timing have timing
	// timedEvents are the events of unknown timing that have timing, if not all have.
	timedEvents map[handleKey]bool
	place       Place // of copies that run at AnyPlace. There, they have no channel
}

// search finds the best assumption.
type search struct {
	source   Source
	channels []Channel
	opt      Options
	best     *attempt
}

// findBest numbers the works under the best assumption.
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

// tryTimings takes events of unknown timing for events with timing: those with a 1 in the equations, or all. With the
// right works there may be other pairs.
func (s *search) tryTimings() error {
	place, isSure := s.best.assumed.place, false
	if s.best.reader.timings != nil {
		var timed map[handleKey]bool
		if timed, isSure = s.best.reader.timings.solve(); len(timed) > 0 {
			other, err := s.best.withTimedEvents(s.source, timed)
			if err != nil {
				return err
			}
			if s.best = s.best.orBetter(other); s.best.isConsistent() {
				return nil
			}
			if err := s.try(assumption{timedEvents: timed, place: place}); err != nil {
				return err
			}
		}
	}
	if isSure || s.best.isConsistent() {
		return nil
	}
	return s.try(assumption{timed: true, place: place})
}
