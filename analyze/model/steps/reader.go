package steps

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// CallKind is the role of a call in a step.
type CallKind uint8

// Kinds of CallKind.
const (
	KindOther  CallKind = iota // adds no work and waits for none
	KindLaunch                 // launches a kernel or a graph
	KindCopy                   // copies or fills memory
	KindWait                   // waits for the GPU
)

// Call is one call of the program, without calls inside of calls. EndNs is StartNs if the return is
// unknown. Times are Unix ns.
type Call struct {
	StartNs, EndNs     int64
	Pid, Tid           int32
	Stack              int32
	Label, Grid        int32 // of KindLaunch and KindCopy: index in Reader.Labels, without and with the grid
	Name               int32 // function, index in Reader.Names
	Kind               CallKind
	Graph, TouchesHost bool // launches a graph; copies from or to the host
}

// IsOperation reports whether the call adds work to the GPU.
func (c *Call) IsOperation() bool { return c.Kind == KindLaunch || c.Kind == KindCopy }

func (c *Call) startsBefore(o *Call) bool {
	if c.StartNs != o.StartNs {
		return c.StartNs < o.StartNs
	}
	return cmp.Or(cmp.Compare(c.Pid, o.Pid), cmp.Compare(c.Tid, o.Tid), cmp.Compare(c.EndNs, o.EndNs)) < 0
}

// Reader reads the calls of a recording that pass a filter, in the order of their start. It is not
// safe for concurrent use, and must not run during a replay of memory calls.
type Reader struct {
	T      *timeline.Timeline
	Filter *query.Filter
	Window query.Window
	Labels origin.StringNumbers // kernels, graphs and kinds of copies
	Names  origin.StringNumbers // functions
	Seen   *query.SeenCallers

	grids  map[gridKey]int32
	recent [1 << 12]recentGrid // entries of grids, by a hash

	kind, name, kernel, copyKind    format.Strings
	start, dur, context, stream     []int64
	ptr, parent                     []int64
	pid, tid, device, result, flags []int32
	stack                           []int32
	axes                            [3][]int32
}

type gridKey struct{ label, x, y, z int32 }

// recentGrid is the number of a grid.
type recentGrid struct {
	key    gridKey
	number int32
	known  bool
}

// maxGrids bounds the distinct pairs of kernel and grid. Further grids of a kernel count as one.
const maxGrids = 1 << 14

// NewReader returns a Reader for the calls that pass the filter.
func NewReader(t *timeline.Timeline, f *query.Filter) *Reader {
	return &Reader{
		T: t, Filter: f, Window: f.NarrowWindow(t.RecordingWindow()), Seen: query.NewSeenCallers(),
		grids: make(map[gridKey]int32),
	}
}

// EachCall calls yield for every call. The pointer is valid until yield returns. It returns errors of
// reading the recording.
func (r *Reader) EachCall(yield func(*Call)) error {
	var spare [][]Call
	return r.T.WrapReadError(timeline.EachRowInOrder(slices.Concat(r.T.Calls, r.T.Memory), timeline.RowStream[Call]{
		Load: func(s timeline.Span) ([]Call, error) {
			var rows []Call
			if n := len(spare); n > 0 {
				rows, spare = spare[n-1][:0], spare[:n-1]
			}
			return r.loadGroup(s.Group, rows)
		},
		Release: func(_ timeline.Span, rows []Call) { spare = append(spare, rows) },
		At:      func(c *Call) int64 { return c.StartNs },
		Less:    (*Call).startsBefore,
	}, func(c *Call) error {
		yield(c)
		return nil
	}))
}

// loadGroup returns the calls of a row group in the order of their start.
func (r *Reader) loadGroup(g *format.Group, rows []Call) ([]Call, error) {
	r.readColumns(g)
	if g.Err() != nil {
		return rows, g.Err()
	}
	names, kernels := r.Names.NumbersOf(r.name.Dict), make([]int32, len(r.kernel.Dict))
	for i := range kernels {
		kernels[i] = -1
	}
	isGraph := make([]bool, len(r.name.Dict))
	for i, name := range r.name.Dict {
		isGraph[i] = catalog.BaseFunctionName(name) == "cuGraphLaunch"
	}
	kinds, copies := r.callKinds(), r.Labels.NumbersOf(copyLabels(r.copyKind.Dict))
	fill := r.Labels.NumberOf(FillLabel)
	for i, start := range r.start {
		if r.parent[i] != 0 || start < r.Window.FromNs || start > r.Window.ToNs || !r.passes(i) {
			continue
		}
		c := Call{
			StartNs: start,
			EndNs:   units.EndOfRange(start, max(0, r.dur[i])),
			Pid:     r.pid[i],
			Tid:     r.tid[i],
			Stack:   r.stack[i],
			Label:   -1,
			Grid:    -1,
			Name:    names[r.name.Index[i]],
			Kind:    kinds[r.kind.Index[i]],
		}
		if r.flags[i]&format.FlagNoReturn != 0 {
			c.EndNs = start
		}
		if c.IsOperation() && (r.result[i] != 0 || r.flags[i]&(format.FlagCaptured|format.FlagAbandoned) != 0) {
			c.Kind = KindOther
		}
		switch {
		case c.Kind == KindCopy && r.kind.At(i) == format.KindMemset:
			c.Label = fill
		case c.Kind == KindCopy:
			c.Label = copies[r.copyKind.Index[i]]
			c.TouchesHost = r.copyKind.At(i) != "DtoD"
		case c.Kind == KindLaunch && isGraph[r.name.Index[i]]:
			c.Label, c.Graph = r.Labels.NumberOf(GraphLabel), true
			c.Grid = r.gridOf(gridKey{c.Label, int32(r.ptr[i] >> 4), int32(r.ptr[i] >> 36), 0})
		case c.Kind == KindLaunch:
			k := r.kernel.Index[i]
			if kernels[k] < 0 {
				kernels[k] = r.Labels.NumberOf(r.kernel.Dict[k])
			}
			c.Label = kernels[k]
			c.Grid = r.gridOf(gridKey{c.Label, r.axes[0][i], r.axes[1][i], r.axes[2][i]})
		}
		if c.Grid < 0 && c.Label >= 0 {
			c.Grid = r.gridOf(gridKey{label: c.Label})
		}
		rows = append(rows, c)
	}
	timeline.SortNearlySorted(rows, (*Call).startsBefore)
	return rows, nil
}

// Labels of launches that are no kernels and no copies.
const (
	GraphLabel = "CUDA graph"
	FillLabel  = "memset"
)

// LabelOf returns the number of a label.
func (r *Reader) LabelOf(label string) int32 { return r.Labels.NumberOf(label) }

// copyLabels returns the labels of copies.
func copyLabels(kinds []string) []string {
	list := make([]string, len(kinds))
	for i, k := range kinds {
		list[i] = "copy " + k
	}
	return list
}

// gridOf returns the number of a kernel with a grid.
func (r *Reader) gridOf(key gridKey) int32 {
	mixed := uint32(key.label)*0x9e3779b1 ^ uint32(key.x+key.y<<8+key.z<<16)*0x85ebca6b
	recent := &r.recent[mixed>>20]
	if !recent.known || recent.key != key {
		*recent = recentGrid{key, r.numberOfGrid(key), true}
	}
	return recent.number
}

func (r *Reader) numberOfGrid(key gridKey) int32 {
	n, ok := r.grids[key]
	if ok {
		return n
	}
	if len(r.grids) >= maxGrids {
		return key.label
	}
	n = int32(len(r.grids))
	r.grids[key] = n
	return n
}

// callKinds returns the kind of call for each kind of row.
func (r *Reader) callKinds() []CallKind {
	list := make([]CallKind, len(r.kind.Dict))
	for i, k := range r.kind.Dict {
		switch k {
		case format.KindLaunch:
			list[i] = KindLaunch
		case format.KindMemcpy, format.KindMemset:
			list[i] = KindCopy
		case format.KindSync:
			list[i] = KindWait
		}
	}
	return list
}

// passes reports whether row i passes the filter.
func (r *Reader) passes(i int) bool {
	if !r.Filter.SelectsCallers() {
		return true
	}
	device := r.T.DeviceOfCall(r.pid[i], r.context[i], r.device[i])
	r.Seen.AddCaller(r.pid[i], r.tid[i], device, r.stream[i])
	return r.Filter.PassesCaller(r.pid[i], r.tid[i], device, r.stream[i])
}

func (r *Reader) readColumns(g *format.Group) {
	r.kind, r.name = g.StringsInto("kind", r.kind), g.StringsInto("name", r.name)
	r.kernel, r.copyKind = g.StringsInto("kernel", r.kernel), g.StringsInto("copy_kind", r.copyKind)
	r.start, r.dur = g.Int64("start_ns", r.start), g.Int64("dur_ns", r.dur)
	r.ptr, r.parent = g.Int64("ptr", r.ptr), r.T.DriverParents(g.Int64("parent_start_ns", r.parent))
	r.pid, r.tid = g.Int32("pid", r.pid), g.Int32("tid", r.tid)
	r.result, r.flags, r.stack = g.Int32("result", r.result), g.Int32("flags", r.flags), g.Int32("stack_id", r.stack)
	if r.Filter.SelectsCallers() {
		r.device, r.context, r.stream = g.Int32(
			"device",
			r.device,
		), g.Int64(
			"context",
			r.context,
		), g.Int64(
			"stream",
			r.stream,
		)
	}
	for i, axis := range []string{"x", "y", "z"} {
		r.axes[i] = g.Int32("grid_"+axis, r.axes[i])
	}
}
