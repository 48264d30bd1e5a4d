package rows

import (
	"bufio"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// rowWriter writes the rows of one row group after the other.
type rowWriter struct {
	t          *timeline.Timeline
	out        *bufio.Writer
	columns    []column
	opt        *Options
	omitsEmpty bool // leaves out columns that are 0 or empty
	stacks     map[int32][]byte
	seen       *query.SeenCallers
	rows       int64
	line       []byte
}

// writeHeader writes the names of the columns.
func (w *rowWriter) writeHeader() {
	for i, c := range w.columns {
		if i > 0 {
			w.line = append(w.line, ',')
		}
		w.line = append(w.line, c.name...)
	}
	_, _ = w.out.Write(append(w.line, "\n"...)) // Flush returns errors of the writer
}

// writeGroup writes the selected rows of a group.
func (w *rowWriter) writeGroup(g *format.Group) error {
	kind := g.Strings("kind")
	wanted := make([]bool, len(kind.Dict))
	for i, k := range kind.Dict {
		wanted[i] = len(w.opt.Kinds) == 0 || slices.Contains(w.opt.Kinds, k)
	}
	if !slices.Contains(wanted, true) {
		return g.Err()
	}
	pass := w.newFilter(g, kind)
	cells := make([]cellColumn, len(w.columns))
	for i, c := range w.columns {
		cells[i] = w.loadColumn(g, c, kind)
	}
	if err := g.Err(); err != nil {
		return err
	}
	for i := range g.NumRows() {
		if !wanted[kind.Index[i]] || !pass(i) {
			continue
		}
		w.rows++
		w.line = w.appendRow(w.line[:0], cells, i)
		if _, err := w.out.Write(w.line); err != nil {
			return err
		}
	}
	return nil
}

// appendRow appends row i as a line.
func (w *rowWriter) appendRow(b []byte, cells []cellColumn, i int) []byte {
	if w.opt.Format == CSV {
		for k := range cells {
			if k > 0 {
				b = append(b, ',')
			}
			b = cells[k].appendCell(b, i, CSV)
		}
		return append(b, "\n"...)
	}
	b = append(b, '{')
	for k := range cells {
		if w.omitsEmpty && cells[k].isEmpty(i) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, cells[k].key...)
		b = cells[k].appendCell(b, i, JSONL)
	}
	return append(b, "}\n"...)
}

// newFilter returns a function that reports whether row i passes the filter. Facts have no place in time.
// Stacks belong to any row. A condition on a process, thread or device applies to rows that have one.
func (w *rowWriter) newFilter(g *format.Group, kind format.Strings) func(i int) bool {
	f := &w.opt.Filter
	class := g.Class()
	if class == format.ClassStack {
		return func(int) bool { return true }
	}
	isTimed := class != format.ClassFact
	isCall := class == format.ClassMemory || class == format.ClassCall || class == format.ClassCollective ||
		class == format.ClassAllocator || class == format.ClassArguments
	start, bytes := g.Int64("start_ns", nil), g.Int64("bytes", nil)
	kernel := g.Strings("kernel")
	var pid, tid, device []int32
	var stream, context []int64
	if f.SelectsCallers() {
		pid, tid, device = g.Int32("pid", nil), g.Int32("tid", nil), g.Int32("device", nil)
		stream, context = g.Int64("stream", nil), g.Int64("context", nil)
	}
	return func(i int) bool {
		if isTimed && (f.FromNs != 0 && start[i] < f.FromNs || f.ToNs != 0 && start[i] > f.ToNs) {
			return false
		}
		if isCall && !(f.PassesKernel(kind.At(i), kernel.At(i)) && f.PassesSize(kind.At(i), bytes[i])) {
			return false
		}
		if pid == nil {
			return true
		}
		if !isCall {
			return (pid[i] == 0 || len(f.Pids) == 0 || slices.Contains(f.Pids, pid[i])) &&
				(tid[i] == 0 || len(f.Tids) == 0 || slices.Contains(f.Tids, tid[i])) &&
				(device[i] < 0 || kind.At(i) != format.KindNVML || len(f.Devices) == 0 ||
					slices.Contains(f.Devices, device[i]))
		}
		of := device[i]
		if class != format.ClassAllocator {
			of = w.t.DeviceOfCall(pid[i], context[i], of)
		}
		w.seen.AddCaller(pid[i], tid[i], of, stream[i])
		return f.PassesCaller(pid[i], tid[i], of, stream[i])
	}
}
