package activity

// deliver passes a finished operation to the results. The operations of a graph launch become one.
func (s *streamChain) deliver(w *chainOperation) {
	switch {
	case w.parts <= 1:
		s.deliverGraph()
		w.channel.out.addOperation(w.channel, &w.Operation)
	case w.part == 0:
		s.deliverGraph()
		s.graph, s.hasGraph = *w, true
	case s.hasGraph && s.graph.Call.ID == w.Call.ID && s.graph.Call.StartNs == w.Call.StartNs:
		s.graph.extendTo(w)
		if w.part == w.parts-1 {
			s.graph.part = w.part
			s.deliverGraph()
		}
	}
}

// deliverGraph passes the last graph launch to the results.
func (s *streamChain) deliverGraph() {
	if !s.hasGraph {
		return
	}
	s.hasGraph = false
	g := &s.graph
	if g.part != g.parts-1 { // its last operations are missing
		g.EndQuality, g.DurationQuality = Unknown, Unknown
	}
	g.channel.out.addOperation(g.channel, &g.Operation)
}

// extendTo sets the end of a graph launch to that of a later operation of it.
func (w *chainOperation) extendTo(last *chainOperation) {
	w.End, w.EndQuality, w.doneNs, w.last = last.End, last.EndQuality, last.doneNs, last.last
	w.boundDuration()
}
