//go:build linux

package rowwriter

import (
	"fmt"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// followLiveMemory applies rows of calls to the live memory. They are written in the current rotation.
func (w *Writer) followLiveMemory(c format.Class, rows []format.Row) {
	if w.live == nil {
		return
	}
	switch c {
	case format.ClassMemory:
		w.live.AddMemory(rows, w.writer.Rotation())
	case format.ClassCall:
		w.live.AddCalls(rows)
	}
}

// forgetLiveMemory forgets the live memory of a process that has ended or called exec.
func (w *Writer) forgetLiveMemory(pid int32) {
	if w.live != nil {
		w.live.ForgetProcess(pid)
	}
}

// takeEarlierMemory returns the rows of the memory that was live when the capture began, and that was allocated in
// rotations that the capture does not have. They count as recorded instead of dropped from now on.
func (c *Capture) takeEarlierMemory() []format.Row {
	if c.live == nil || c.bounds.gone < 0 {
		return nil
	}
	rows := c.live.RowsUntil(c.bounds.gone, c.bounds.fromNs)
	c.dropped.written[bpf.CudaCallClassCLASS_MEMORY] -= int64(len(rows))
	c.bounds.rows[format.ClassMemory.String()] -= int64(len(rows))
	return rows
}

// earlierMemoryNotes adds a note if live memory from before the capture is missing.
func (c *Capture) earlierMemoryNotes(facts []format.Row, nowNs int64) []format.Row {
	if c.live == nil || c.live.Missing() == 0 {
		return facts
	}
	return append(facts, format.Row{
		Kind: format.KindNote, Name: "live_memory", StartNs: nowNs, Device: -1,
		Message: fmt.Sprintf("memory from before the capture is missing: %d allocations did not fit into the "+
			"recorder's table", c.live.Missing()),
	})
}
