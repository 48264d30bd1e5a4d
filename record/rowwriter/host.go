//go:build linux

package rowwriter

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// maxWaitingHostBatches is the largest number of batches of rows of class host that wait for the row
// writer.
const maxWaitingHostBatches = 256

// hostQueue passes rows of class host to the row writer, and counts them.
type hostQueue struct {
	rowCounter
	waiting chan []format.Row
}

func newHostQueue() hostQueue {
	return hostQueue{waiting: make(chan []format.Row, maxWaitingHostBatches)}
}

// SendHost passes rows of class host to the row writer, which takes over their memory. Frames of a row
// are its stack, and StackStatus and Site are set from them; without frames, these columns stay as they are.
// It never blocks: if too many batches
// wait, it drops the rows and counts them as lost. Safe for concurrent use; not to be called after Wait.
func (w *Writer) SendHost(rows []format.Row) {
	if len(rows) == 0 {
		return
	}
	select {
	case w.host.waiting <- rows:
	default:
		w.host.lost.Add(int64(len(rows)))
	}
}

// CountLostHost counts rows of class host that could not be sent. Safe for concurrent use; not to be
// called after Wait.
func (w *Writer) CountLostHost(n int64) { w.host.lost.Add(n) }

// writeWaitingHost writes all batches that wait.
func (w *Writer) writeWaitingHost() {
	for {
		select {
		case rows := <-w.host.waiting:
			w.writeHost(rows)
		default:
			return
		}
	}
}

// writeHost writes rows with their stacks, and counts them as recorded or lost. It leaves out rows after
// the end of a recording that has reached its size limit.
func (w *Writer) writeHost(rows []format.Row) {
	if end := w.bounds.endNs; end != 0 {
		rows = slices.DeleteFunc(rows, func(r format.Row) bool { return r.StartNs >= end })
	}
	if w.failed != nil {
		w.host.lost.Add(int64(len(rows)))
		return
	}
	for i := range rows {
		r := &rows[i]
		r.Device = -1
		if _, isKnown := w.threads[r.Tid]; !isKnown && r.Kind == format.KindWait {
			w.addThread(r.Pid, r.Tid)
		}
		if len(r.Frames) == 0 {
			r.StackStatus = cmp.Or(r.StackStatus, format.StackNone)
			continue
		}
		why := ""
		if r.StackStatus == format.StackTruncated {
			why = format.TruncationOther
		}
		status := cmp.Or(r.StackStatus, format.StackComplete)
		isInferred := status == format.StackInferred
		if isInferred {
			status = format.StackComplete // the stack itself is that of another row
		}
		known, added := w.stacks.AddFrames(r.Pid, status, why, r.Frames)
		w.writeStackRows(added)
		r.StackID, r.StackStatus, r.Site, r.Frames = known.ID, known.Status, known.Site, nil
		if isInferred && known.ID != 0 {
			r.StackStatus = format.StackInferred
		}
	}
	w.host.countRecorded(len(rows))
	w.writeRows(format.ClassHost, rows)
}
