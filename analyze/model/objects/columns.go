package objects

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// step is a call that creates or destroys an object.
type step struct {
	atNs   int64 // when the call takes effect, Unix ns
	durNs  int64 // duration of the call
	handle int64
	origin int32 // only of a call that creates an object
	// process and thread are the numbers of the caller, as in origin.OriginTable.
	process, thread int32
	callEffect
	unknown bool // the call creates an object, and its handle is unknown
}

// comesBefore orders steps by time, and frees handles before they are used again.
func (s *step) comesBefore(o *step) bool {
	if s.atNs != o.atNs {
		return s.atNs < o.atNs
	}
	return s.op < o.op
}

// columns holds the columns of one row group. The slices are reused for the next group.
type columns struct {
	name, site                             format.Strings
	start, dur, ptr, context               []int64
	pid, tid, device, result, flags, stack []int32

	effects []callEffect // by entry of the dictionary of names
	known   []bool       // whether the entry has an effect
	names   []int32      // number in Timeline.Origins, by entry
	sites   []int32
	caller  caller // of the latest step
}

// caller is a thread that calls, with its numbers in Timeline.Origins. Most calls have the caller of the
// call before.
type caller struct {
	pid, tid, process, thread int32
	known                     bool
}

// callerOf returns the caller of row i.
func (c *columns) callerOf(t *timeline.Timeline, i int) *caller {
	if pid, tid := c.pid[i], c.tid[i]; !c.caller.known || c.caller.pid != pid || c.caller.tid != tid {
		process, thread := t.Origins.NumbersOfThread(pid, tid)
		c.caller = caller{pid, tid, process, thread, true}
	}
	return &c.caller
}

// appendSteps appends the steps of a row group. It decodes only the column of names if the group has
// no call that creates or destroys an object.
func (c *columns) appendSteps(steps []step, t *timeline.Timeline, g *format.Group) []step {
	c.name = g.StringsInto("name", c.name)
	c.effects, c.known = c.effects[:0], c.known[:0]
	for _, name := range c.name.Dict {
		effect, known := effects[catalog.BaseFunctionName(name)]
		c.effects, c.known = append(c.effects, effect), append(c.known, known)
	}
	if !slices.Contains(c.known, true) {
		return steps
	}
	c.read(t, g)
	if g.Err() != nil {
		return steps
	}
	n := 0
	for _, entry := range c.name.Index {
		if c.known[entry] {
			n++
		}
	}
	steps = slices.Grow(steps, n)
	for i, entry := range c.name.Index {
		if !c.known[entry] {
			continue
		}
		steps = steps[:len(steps)+1]
		if !c.setStep(&steps[len(steps)-1], t, i, c.effects[entry]) {
			steps = steps[:len(steps)-1]
		}
	}
	return steps
}

func (c *columns) read(t *timeline.Timeline, g *format.Group) {
	c.site = g.StringsInto("site", c.site)
	c.start, c.dur = g.Int64("start_ns", c.start), g.Int64("dur_ns", c.dur)
	c.ptr, c.context = g.Int64("ptr", c.ptr), g.Int64("context", c.context)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.result, c.flags, c.stack = g.Int32("result", c.result), g.Int32("flags", c.flags), g.Int32("stack_id", c.stack)
	strings := &t.Origins.Strings
	c.names, c.sites = strings.NumbersOf(c.name.Dict), strings.NumbersOf(c.site.Dict)
}

// setStep sets s to the step of row i. It returns false for failed calls, and for calls that had not
// returned and would destroy an object.
func (c *columns) setStep(s *step, t *timeline.Timeline, i int, effect callEffect) bool {
	unfinished := c.flags[i]&(format.FlagOpen|format.FlagAbandoned|format.FlagNoReturn) != 0
	creates := effect.op == opCreate || effect.op == opEndCapture
	if !unfinished && c.result[i] != 0 || unfinished && !creates {
		return false
	}
	*s = step{atNs: c.start[i], durNs: max(0, c.dur[i]), handle: c.ptr[i], callEffect: effect}
	if effect.kind == KindPrimaryContext {
		s.handle = int64(c.device[i])
	}
	if !effect.op.takesEffectAtStart() {
		s.atNs = units.EndOfRange(c.start[i], c.dur[i])
	}
	hasHandle := s.handle != 0 || effect.kind == KindPrimaryContext
	s.unknown = creates && (unfinished || !hasHandle)
	if !hasHandle && !creates {
		return false // destroying a null handle has no effect
	}
	by := c.callerOf(t, i)
	s.process, s.thread = by.process, by.thread
	if !creates {
		return true
	}
	s.origin = t.Origins.NumberOf(origin.CallOrigin{
		Context: c.context[i],
		Pid:     c.pid[i],
		Tid:     c.tid[i],
		Device:  t.DeviceOfCall(c.pid[i], c.context[i], c.device[i]),
		Stack:   c.stack[i],
		Name:    c.names[c.name.Index[i]],
		Site:    c.sites[c.site.Index[i]],
	})
	return true
}
