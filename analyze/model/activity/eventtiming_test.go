package activity

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestTimingOfReusedHandles gives the handle of a destroyed event to the next one, as the driver does.
func TestTimingOfReusedHandles(t *testing.T) {
	testclass.Unit(t)
	reused, asked, unknown := handleKey{1, 0x10}, handleKey{1, 0x20}, handleKey{1, 0x30}
	e := &eventTiming{lives: map[handleKey][]eventLife{
		// rows of several threads are not quite in order
		reused: {newEventLife(300, false), newEventLife(100, true), newEventLife(200, true), newEventLife(400, true)},
		asked:  {newEventLife(200, false)},
	}, asked: make(map[handleKey]int64)}
	e.ask(asked, 150)
	e.ask(asked, 120)
	e.ask(reused, 250)
	e.finish()
	if n := len(e.lives[reused]); n != 3 {
		t.Errorf("%d lives of an event that changed its timing twice: %v", n, e.lives[reused])
	}
	for _, c := range []struct {
		event       handleKey
		ns          int64
		op          Op
		any, likely bool
	}{
		{reused, 50, OpRecordEvent, true, true},
		{reused, 100, OpRecordEvent, false, false},
		{reused, 299, OpRecordEvent, false, false},
		{reused, 300, OpMarkEvent, false, false},
		{reused, 500, OpRecordEvent, false, false},
		{asked, 10, OpRecordEvent, false, false},
		{asked, 200, OpMarkEvent, false, false},
		{unknown, 100, OpRecordEvent, true, false},
	} {
		call := Call{Pid: c.event.pid, Event: c.event.handle, StartNs: c.ns}
		e.setOp(&call)
		if call.Op != c.op || call.AnyTiming != c.any || call.LikelyTiming != c.likely {
			t.Errorf("event %#x at %d: %v, any %t, likely %t; want %+v", c.event.handle, c.ns, call.Op, call.AnyTiming,
				call.LikelyTiming, c)
		}
	}
}
