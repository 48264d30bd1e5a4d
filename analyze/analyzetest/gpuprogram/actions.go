package gpuprogram

import "github.com/gpurec/gpurec/analyze/model/activity"

// act makes one call of a thread.
func (g *Program) act(t *simThread) {
	p := t.process
	s := t.on
	if t.burst > 0 {
		t.burst--
	} else if g.random.Float64() < 0.3 {
		t.burst, t.burstOn = g.random.IntN(60), s
	}
	draw := g.random.Float64()
	switch {
	case g.Events > 0 && g.random.Float64() < g.Events:
		g.recordEvent(t, s)
	case g.Brief && g.random.Float64() < 0.0003:
		g.useBriefStream(t)
	case t.burst == 0 && draw < g.Waits:
		g.waitSomehow(t, s)
	case draw < g.Waits+0.02:
		g.submit(t, s, s.channel, activity.OpFill, -1, 1500)
	case draw < g.Waits+0.04:
		g.submit(t, s, s.channel, activity.OpCopyOnDevice, -1, 2500)
	case draw < g.Waits+0.08:
		g.recordEvent(t, s)
	case draw < g.Waits+0.11:
		place := activity.OnEngine
		if g.Short > 0 && g.random.Float64() < g.Short {
			place = activity.OnStream
		}
		c := g.copyToDevice(t, s, place)
		if c.Place = place; g.AnyPlace {
			c.Place = activity.AnyPlace
		}
	case draw < g.Waits+0.13:
		g.submit(t, s, g.enginesOf(s).toHost, activity.OpCopyToHost, -1, 9000)
	case draw < g.Waits+0.16:
		g.submit(t, s, s.channel, activity.OpGraph, int32(g.random.IntN(2)), 50_000)
	case draw < g.Waits+0.1602 && s.handle > 2 && len(t.streams) == len(p.streams)+1 && g.Threads == 1:
		g.replaceStream(t, s)
	default:
		label := int(float64(g.Kernels) * g.random.Float64() * g.random.Float64())
		g.submit(t, s, s.channel, activity.OpKernel, int32(label), p.kernelMean[label])
	}
	g.prepare(t)
}

// recordEvent records one of eight events.
func (g *Program) recordEvent(t *simThread, s *simStream) {
	event := int64(0x9000) + g.random.Int64N(8)
	var c *activity.Call
	if g.Untimed || g.HalfTimed && event%2 == 1 {
		c = g.record(t, s)
	} else {
		c = g.submit(t, s, s.channel, activity.OpRecordEvent, -1, 300)
	}
	c.Event, c.AnyTiming, c.LikelyTiming = event, g.Untimed || g.HalfTimed, g.Misled
	t.process.events[event] = s.doneNs
}

// useBriefStream uses a new stream on the channel of another one, waits for it, and destroys it.
func (g *Program) useBriefStream(t *simThread) {
	p := t.process
	s := &simStream{handle: p.handles, process: p, channel: p.streams[g.random.IntN(len(p.streams))].channel}
	p.handles += 0x100
	for range 5 + g.random.IntN(40) {
		label := g.random.IntN(g.Kernels)
		g.submit(t, s, s.channel, activity.OpKernel, int32(label), p.kernelMean[label])
		t.submitNs = t.nowNs + 300 + g.random.Int64N(1500)
	}
	g.wait(t, activity.Call{Op: activity.OpWaitStream, Stream: s.handle}, s.doneNs)
	t.submitNs = t.nowNs + 500
	g.wait(t, activity.Call{Op: activity.OpEndStream, Stream: s.handle}, 0)
}

// copyToDevice copies on the channel of a stream or of its copy engine.
func (g *Program) copyToDevice(t *simThread, s *simStream, place activity.Place) *activity.Call {
	if place == activity.OnStream {
		return g.submit(t, s, s.channel, activity.OpCopyToDevice, 0, 1500)
	}
	return g.submit(t, s, g.enginesOf(s).toDevice, activity.OpCopyToDevice, -1, 9000)
}

// submit makes the call of one operation, and runs it on a channel.
func (g *Program) submit(
	t *simThread,
	s *simStream,
	on *gpuChannel,
	op activity.Op,
	label int32,
	mean float64,
) *activity.Call {
	t.process.left--
	if op == activity.OpGraph && g.Parts > 0 {
		s.endNs += graphGapNs
	}
	fills := g.Fills && (op == activity.OpKernel || op == activity.OpGraph)
	run := func() (from, to int64) { return g.runOperation(s, on, t.submitNs, mean, fills) }
	if (op == activity.OpFill || op == activity.OpCopyOnDevice) && g.random.Float64() < g.Extra {
		run()
	}
	from, to := run()
	number := on.base + int64(len(on.words))
	for i := 1; op == activity.OpGraph && i < g.Parts+int(label); i++ {
		_, to = run()
	}
	if op == activity.OpKernel && g.Hidden > 0 && g.random.Float64() < g.Hidden {
		others := t.process.streams
		g.runOperation(s, others[g.random.IntN(len(others))].channel, t.submitNs, 1500, fills)
	}
	early := g.Early > 0 && op == activity.OpKernel && g.random.Float64() < g.Early
	if early && on.lastKernelOf == s {
		on.showEarly(t.submitNs)
	}
	on.lastKernelOf = nil
	if op == activity.OpKernel {
		on.launches = append(on.launches, t.nowNs)
		on.lastKernelOf = s
	}
	g.Truth = append(g.Truth, Truth{from, to, on.number, number})
	end := t.submitNs + 200 + g.random.Int64N(1500)
	g.Calls = append(g.Calls, activity.Call{
		StartNs: t.nowNs, EndNs: end, Pid: t.process.pid, Tid: t.tid, Device: t.process.device, Context: 0xc0,
		Stream: s.handle, ID: int64(len(g.Truth) - 1), Label: label, Op: op, StartsEarly: early, Blocks: g.blocks(),
	})
	t.nowNs, s.returnNs = end, end
	return &g.Calls[len(g.Calls)-1]
}

// blocks returns the size of the grid of kernels.
func (g *Program) blocks() int64 {
	if g.Fills {
		return 1024
	}
	return 8
}

// runOperation runs an operation. It begins when the operation before it on its stream has ended, and the operations
// before it on the channel have begun. A copy engine runs one operation at a time. A kernel that needs the whole GPU
// begins to run when most blocks of the one before have ended; until then, it waits outside of its queue.
func (g *Program) runOperation(
	s *simStream, on *gpuChannel, submitNs int64, mean float64, fills bool,
) (from, to int64) {
	latency := 1400 + g.random.Int64N(1100)
	if g.random.IntN(100) == 0 {
		latency += g.random.Int64N(12_000)
	}
	from = max(s.endNs+300+g.random.Int64N(1400), on.freeNs+100+g.random.Int64N(400), submitNs+latency)
	run := from
	if fills {
		run = max(from, g.filledNs-int64(mean/8))
	}
	to = run + max(200, int64(mean*(0.9+0.2*g.random.Float64())))
	on.freeNs = from
	word := from
	if g.EndWords || on.runsCopies(s.process) { // its word belongs to the end
		on.freeNs = to
		word = to + 100 + to%1300
	}
	s.endNs = to
	shown := word + 100 + int64(30_000*g.random.Float64()*g.random.Float64()*g.random.Float64())
	if n := len(on.shown); n > 0 {
		shown = max(shown, on.shown[n-1])
	}
	s.doneNs = max(s.doneNs, shown, to)
	on.shown, on.words = append(on.shown, shown), append(on.words, word)
	on.operations = append(on.operations, [2]int64{from, to})
	if fills {
		g.filledNs = max(g.filledNs, to)
	}
	return from, to
}

// showEarly moves the word of the last operation to the start of the operation before it, or to its own call.
func (c *gpuChannel) showEarly(submitNs int64) {
	last := len(c.words) - 1
	c.words[last] = min(c.words[last], max(submitNs+1400, c.words[last-1]+300))
	c.shown[last] = max(c.words[last]+200, c.shown[last-1])
}

// record records an event without timing, which is no operation.
func (g *Program) record(t *simThread, s *simStream) *activity.Call {
	end := t.submitNs + 200 + g.random.Int64N(1500)
	g.Calls = append(g.Calls, activity.Call{
		StartNs: t.nowNs, EndNs: end, Pid: t.process.pid, Tid: t.tid, Device: t.process.device, Context: 0xc0,
		Stream: s.handle, ID: -1, Label: -1, Op: activity.OpRecordEvent, AnyTiming: true,
	})
	t.nowNs, s.returnNs = end, end
	return &g.Calls[len(g.Calls)-1]
}

// waitSomehow waits for a stream, for the context or for an event.
func (g *Program) waitSomehow(t *simThread, s *simStream) {
	switch g.random.IntN(8) {
	case 0:
		g.waitContext(t)
	case 1:
		event := int64(0x9000) + g.random.Int64N(8)
		g.wait(t, activity.Call{Op: activity.OpWaitEvent, Event: event}, t.process.events[event])
	default:
		g.wait(t, activity.Call{Op: activity.OpWaitStream, Stream: s.handle}, s.doneNs)
	}
}

func (g *Program) waitContext(t *simThread) {
	done := t.process.legacy.doneNs
	for _, s := range t.process.streams {
		done = max(done, s.doneNs)
	}
	g.wait(t, activity.Call{Op: activity.OpWaitContext}, done)
}

func (g *Program) wait(t *simThread, c activity.Call, doneNs int64) {
	c.StartNs, c.EndNs = t.nowNs, max(t.submitNs, doneNs)+1000+g.random.Int64N(6000)
	c.Pid, c.Tid, c.Context, c.ID, c.Label = t.process.pid, t.tid, 0xc0, -1, -1
	g.Calls = append(g.Calls, c)
	t.nowNs = c.EndNs
}

// replaceStream destroys a stream and creates another one with the same handle.
func (g *Program) replaceStream(t *simThread, s *simStream) {
	if g.Shared {
		return
	}
	g.wait(t, activity.Call{Op: activity.OpWaitStream, Stream: s.handle}, s.doneNs)
	t.submitNs = t.nowNs + 500
	c := activity.Call{Op: activity.OpEndStream, Stream: s.handle}
	g.wait(t, c, 0)
	s.channel.toNs = t.nowNs
	old := s.channel
	s.channel = g.newChannel(t.process.pid, t.process.device, t.nowNs)
	s.channel.base = old.base + int64(len(old.words)) // the slot keeps its counter
}
