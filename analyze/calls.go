package analyze

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// CUDA results that mean no failure: work is not done yet, and the driver is
// shutting down because the process ends.
const (
	resultOutOfMemory   = 2
	resultDeinitialized = 4
	resultNotReady      = 600
)

func isError(result int32) bool {
	return result != 0 && result != resultDeinitialized && result != resultNotReady
}

// callStats sums up calls of one kind and name.
type callStats struct {
	calls, errors, open int64
	captured            int64 // put into a graph, not run
	timed               int64 // calls whose duration is known: of these are
	hostNs, maxNs       int64
	scaled              int64 // calls in thousandths, with launches that were not recorded
}

func (s *callStats) add(o *callStats) {
	s.calls += o.calls
	s.errors += o.errors
	s.open += o.open
	s.captured += o.captured
	s.timed += o.timed
	s.hostNs += o.hostNs
	s.maxNs = max(s.maxNs, o.maxNs)
	s.scaled += o.scaled
}

type callName struct{ kind, name string }

// callUse counts calls and kernels.
type callUse struct {
	t           *Timeline
	filter      *query.Filter
	window      query.Window
	calls       map[callName]*callStats
	kernels     map[string]*callStats
	work        kernelWork
	seen        *query.Callers
	outOfMemory int64
	weights     *sampling.Weights // nil if all launches are recorded

	start, dur, stream, bytes       []int64
	context                         []int64
	pid, tid, device, result, flags []int32
	value                           []float64
	kind, name, kernel              format.Strings
}

func (t *Timeline) newCallUse(f *query.Filter) *callUse {
	window := f.Window(t.Recording())
	return &callUse{t: t, filter: f, window: window, seen: query.NewCallers(), weights: t.launchWeights(window),
		calls: make(map[callName]*callStats), kernels: make(map[string]*callStats)}
}

// scan reads all calls, of memory and others.
func (u *callUse) scan() error {
	for _, spans := range [][]span{u.t.memory, u.t.calls} {
		for _, s := range spans {
			u.group(s.group)
			if err := s.group.Err(); err != nil {
				return u.t.wrap(err)
			}
		}
	}
	return nil
}

func (u *callUse) group(g *format.Group) {
	u.kind, u.name, u.kernel = g.StringsInto("kind", u.kind), g.StringsInto("name", u.name), g.StringsInto("kernel", u.kernel)
	kind, name, kernel := u.kind, u.name, u.kernel
	launch, graph := u.launches(g)
	u.start, u.dur = g.Int64("start_ns", u.start), g.Int64("dur_ns", u.dur)
	u.result, u.flags = g.Int32("result", u.result), g.Int32("flags", u.flags)
	pass := u.passes(g, kind, kernel)
	byName := make([]callStats, len(kind.Dict)*len(name.Dict))
	byKernel, isKernel := make([]callStats, len(kernel.Dict)), make([]bool, len(kernel.Dict))
	for i, name := range kernel.Dict {
		isKernel[i] = name != ""
	}
	for i, start := range u.start {
		if start < u.window.FromNs || start > u.window.ToNs || !pass(i) {
			continue
		}
		one := callStats{calls: 1, scaled: sampling.Thousandth}
		if u.flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0 {
			one.open = 1
		} else if isError(u.result[i]) {
			one.errors = 1
			if u.result[i] == resultOutOfMemory {
				u.outOfMemory++
			}
		}
		if launch[kind.Index[i]] {
			if u.flags[i]&format.FlagCaptured != 0 {
				one.captured = 1
			}
			if graph[name.Index[i]] {
				u.work.add(true, u.value[i], u.result[i], u.flags[i])
			} else {
				u.work.add(false, 0, u.result[i], u.flags[i])
				if u.weights != nil && one.captured == 0 {
					one.scaled = u.weights.At(start)
				}
			}
		}
		if u.flags[i]&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
			one.timed = 1
			one.hostNs = max(0, u.dur[i])
			one.maxNs = one.hostNs
		}
		byName[int(kind.Index[i])*len(name.Dict)+int(name.Index[i])].add(&one)
		if k := kernel.Index[i]; isKernel[k] {
			byKernel[k].add(&one)
		}
	}
	for i := range byName {
		merge(u.calls, callName{kind.Dict[i/len(name.Dict)], name.Dict[i%len(name.Dict)]}, &byName[i])
	}
	for i := range byKernel {
		if isKernel[i] {
			merge(u.kernels, kernel.Dict[i], &byKernel[i])
		}
	}
}

// launches tells which kinds and names of the group are launches, and of graphs.
func (u *callUse) launches(g *format.Group) (kinds, graphs []bool) {
	for _, k := range u.kind.Dict {
		kinds = append(kinds, k == format.KindLaunch)
	}
	for _, n := range u.name.Dict {
		graphs = append(graphs, catalog.BaseName(n) == "cuGraphLaunch")
	}
	if slices.Contains(graphs, true) {
		u.value = g.Float64("value", u.value)
	}
	return kinds, graphs
}

func merge[K comparable](into map[K]*callStats, key K, s *callStats) {
	if s.calls == 0 {
		return
	}
	if into[key] == nil {
		into[key] = new(callStats)
	}
	into[key].add(s)
}

// passes returns the filter for rows of the group; it reads only the columns that
// the filter looks at. Without a filter by kernel it needs no names of kernels.
func (u *callUse) passes(g *format.Group, kind, kernel format.Strings) func(i int) bool {
	f := u.filter
	byCaller := f.Callers()
	if !byCaller && f.Kernel == nil && f.MinBytes == 0 {
		return func(int) bool { return true }
	}
	kernels := make([]bool, len(kind.Dict)*len(kernel.Dict))
	for i := range kernels {
		kernels[i] = f.PassesKernel(kind.Dict[i/len(kernel.Dict)], kernel.Dict[i%len(kernel.Dict)])
	}
	if f.MinBytes > 0 {
		u.bytes = g.Int64("bytes", u.bytes)
	}
	if byCaller {
		u.pid, u.tid = g.Int32("pid", u.pid), g.Int32("tid", u.tid)
		u.device, u.stream = g.Int32("device", u.device), g.Int64("stream", u.stream)
		u.context = g.Int64("context", u.context)
	}
	return func(i int) bool {
		if byCaller {
			device := u.t.deviceOf(u.pid[i], u.context[i], u.device[i])
			u.seen.Add(u.pid[i], u.tid[i], device, u.stream[i])
			if !f.PassesCaller(u.pid[i], u.tid[i], device, u.stream[i]) {
				return false
			}
		}
		return (f.Kernel == nil || kernels[int(kind.Index[i])*len(kernel.Dict)+int(kernel.Index[i])]) && (f.MinBytes == 0 || f.PassesSize(kind.At(i), u.bytes[i]))
	}
}

// total sums up all calls that passed.
func (u *callUse) total() callStats {
	var sum callStats
	for _, s := range u.calls {
		sum.add(s)
	}
	return sum
}

var callColumns = []Column{
	{"name", "CALL", UnitText, "function of the CUDA driver"},
	{"kind", "KIND", UnitText, "alloc, free, launch, memcpy, memset, sync or api"},
	{"calls", "CALLS", UnitCount, "calls that began in the window"},
	{"errors", "ERRORS", UnitCount, "calls that returned an error (not ready and shutting down are none)"},
	{"unfinished", "OPEN", UnitCount, "calls that were not seen to return"},
	{"timed", "TIMED", UnitCount, "calls whose duration is known: at high rates the returns of kernel launches are probed for a share of the time only; the times are of these calls"},
	{"host_sum_ns", "HOST SUM", UnitNs, "sum of the time threads spent in these calls; it is CPU time waiting or working, not GPU time, and threads add up"},
	{"host_max_ns", "HOST MAX", UnitNs, "longest of these calls"},
}

func (u *callUse) callTable() Table {
	table := Table{Name: "calls", Title: "calls by time spent in them on the CPU", Columns: slices.Clone(callColumns), Spare: []string{"host_max_ns", "timed"}}
	spared := false
	for n, s := range u.calls {
		table.Rows = append(table.Rows, Row{Cells: []any{n.name, n.kind, s.calls, s.errors, s.open, s.timed, s.hostNs, s.maxNs}})
		if u.weights != nil {
			row := &table.Rows[len(table.Rows)-1]
			row.Cells = append(row.Cells, sampling.Whole(s.scaled))
		}
		spared = spared || s.timed+s.open < s.calls
	}
	if !spared {
		hide(table.Columns, "timed")
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[6], b.Cells[6]), compareCells(a.Cells[2], b.Cells[2]),
			strings.Compare(a.Cells[0].(string), b.Cells[0].(string)), strings.Compare(a.Cells[1].(string), b.Cells[1].(string)))
	})
	if u.weights != nil {
		table.moveLast(estimatedCalls, 3)
	}
	return table
}
