package timeline_test

import (
	"slices"

	"github.com/gpurec/gpurec/format"
)

// makeContext retains a primary context or creates a context.
func (w *world) makeContext() bool {
	p := w.proc()
	w.ctx = nil
	i := w.r.IntN(3)
	if i < 2 {
		c := p.contexts[i]
		if c.endedNs >= w.start {
			return false
		}
		row := w.call(format.KindAPI, "cuDevicePrimaryCtxRetain", "", c.handle, 0)
		row.Device = c.device
		c.refs++
		if !c.alive {
			c.alive, c.endedNs = true, w.end // no other thread knows the context before
		}
		c.usedNs = max(c.usedNs, w.end)
		return true
	}
	c := &worldContext{
		handle:  w.name("context", 0x7000, 16).ptr,
		device:  w.r.Int32N(2),
		alive:   true,
		endedNs: w.end,
		usedNs:  w.end,
	}
	p.contexts = append(p.contexts, c)
	w.call(format.KindAPI, "cuCtxCreate_v4", "", c.handle, 0).Device = c.device
	return true
}

// endContext releases, resets or destroys a context.
func (w *world) endContext() bool {
	p := w.proc()
	i := w.r.IntN(len(p.contexts))
	c := p.contexts[i]
	if !c.alive || c.usedNs >= w.start || c.endedNs >= w.start || w.r.IntN(2) == 0 {
		return false
	}
	w.ctx = nil
	if i < 2 && w.r.IntN(4) > 0 {
		c.refs--
		w.call(format.KindAPI, "cuDevicePrimaryCtxRelease_v2", "", 0, 0).Device = c.device
		c.usedNs = w.end
		if c.refs > 0 {
			return true
		}
	} else if i < 2 {
		w.call(format.KindAPI, "cuDevicePrimaryCtxReset_v2", "", 0, 0).Device = c.device
	} else {
		w.call(format.KindAPI, "cuCtxDestroy_v2", "", c.handle, 0)
		w.giveName(worldName{"context", c.handle})
		p.contexts = slices.Delete(p.contexts, i, i+1)
	}
	c.alive, c.endedNs = false, w.end
	p.blocks = slices.DeleteFunc(p.blocks, func(b *worldBlock) bool {
		if b.ctx == c {
			w.giveName(b.name)
		}
		return b.ctx == c
	})
	return true
}
