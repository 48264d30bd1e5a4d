package analyze

import (
	"errors"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/ledger"
)

// replayAll runs memory calls and allocators' events together in order of time, and
// hands the changes of both to their consumers.
func (t *Timeline) replayAll(consume func(*ledger.Ledger, *ledger.Change), consumeAllocator caching.Consumer) (*ledger.Ledger, *caching.Set, error) {
	return t.replayTogether(false, consume, consumeAllocator)
}

// replayTogether is replayAll with all events of allocators, or only those that tell of segments.
func (t *Timeline) replayTogether(onlySegments bool, consume func(*ledger.Ledger, *ledger.Change), consumeAllocator caching.Consumer) (*ledger.Ledger, *caching.Set, error) {
	s := caching.NewSet(&t.allocators, t.facts.allocatorRules)
	r := ledger.Replay{Ledger: ledger.New(&t.origins, t.endedWith), Events: t.events, Consume: consume}
	r.Exit = func(pid int32, atNs int64) { s.Exit(pid, atNs, consumeAllocator) }
	allCalls, allEvents := newOrdered(t.memory, t.streamMemory()), newOrdered(t.allocations, t.streamAllocators(onlySegments))
	defer allCalls.close()
	defer allEvents.close()
	var calls []ledger.Call
	var events []caching.Event
	var callErr, err error
	for {
		if len(calls) == 0 && callErr == nil {
			calls, callErr = allCalls.next()
		}
		if len(events) == 0 && err == nil {
			events, err = allEvents.next()
		}
		switch {
		case len(calls) > 0 && (len(events) == 0 || calls[0].AtNs <= events[0].AtNs):
			r.Call(&calls[0])
			calls = calls[1:]
		case len(events) > 0:
			r.EventsBefore(events[0].AtNs)
			s.Apply(&events[0], consumeAllocator)
			events = events[1:]
		default:
			r.Finish()
			return r.Ledger, s, t.wrap(errors.Join(err, callErr))
		}
	}
}
