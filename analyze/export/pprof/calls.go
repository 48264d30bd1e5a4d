package pprof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

var launchProfileColumns = []report.Column{
	{
		Key: "launches", Title: "", Unit: report.UnitCount,
		About: "kernel and graph launches in the window that succeeded and were not captured",
	},
	{
		Key: "launch_cpu", Title: "", Unit: report.UnitNs,
		About: "sum of the known durations of launches on the CPU. It is not GPU time",
	},
}

var apiProfileColumns = []report.Column{
	{
		Key: "calls", Title: "", Unit: report.UnitCount,
		About: "calls that began in the window. Calls inside of another recorded call do not count",
	},
	{
		Key:   "api_time",
		Title: "",
		Unit:  report.UnitNs,
		About: "sum of the known durations of calls, working or waiting. A call that had not returned counts until " +
			"the end of the recording",
	},
}

var waitProfileColumns = []report.Column{
	{
		Key: "waits", Title: "", Unit: report.UnitCount,
		About: "calls in the window that wait for the GPU. Queries (cuStreamQuery, cuEventQuery) do not count",
	},
	{
		Key: "wait_time", Title: "", Unit: report.UnitNs,
		About: "sum of the durations of waits. A call that had not returned counts until the end of the recording",
	},
}

var copyProfileColumns = []report.Column{
	{
		Key: "copies", Title: "", Unit: report.UnitCount,
		About: "copies in the window that succeeded and were not captured",
	},
	{Key: "copied", Title: "", Unit: report.UnitBytes, About: "bytes of copies"},
	{
		Key: "copy_cpu", Title: "", Unit: report.UnitNs,
		About: "sum of the known durations of copies on the CPU. It is not GPU time",
	},
}

// callProfileType selects the calls of a profile.
type callProfileType struct {
	kind  string // kind of the calls; "" selects all kinds
	bytes bool   // the profile has a value in bytes
	gpu   bool   // the duration is that on the GPU
	ran   bool   // only calls that succeeded and were not captured
	// wants selects calls by the name of the function, and by whether another recorded call made
	// the call. nil selects all.
	wants func(name string, nested bool) bool
	leaf  func(c *callLeafData) string // returns the name of the leaf frame; nil adds no leaf frame
}

var (
	launchProfileType = callProfileType{kind: format.KindLaunch, ran: true, leaf: launchLeafName}
	gpuProfileType    = callProfileType{kind: format.KindLaunch, ran: true, gpu: true, leaf: launchLeafName}
	apiProfileType    = callProfileType{wants: func(_ string, nested bool) bool { return !nested }}
	waitProfileType   = callProfileType{
		kind:  format.KindSync,
		wants: func(name string, _ bool) bool { return !strings.Contains(name, "Query") },
	}
	copyProfileType = callProfileType{
		kind:  format.KindMemcpy,
		ran:   true,
		bytes: true,
		leaf: func(c *callLeafData) string {
			return "copy " + cmp.Or(c.copyKind, "of unknown direction")
		},
	}
)

// launchLeafName returns the name of a kernel, or of a graph with its number of kernels.
func launchLeafName(c *callLeafData) string {
	switch {
	case c.graph && c.kernels > 0:
		return "graph of " + units.CountWithNoun(c.kernels, "kernel")
	case c.graph:
		return "graph"
	}
	return cmp.Or(c.kernel, catalog.UnknownKernelName)
}

// callSampleKey identifies a sample: calls that are equal in all these fields. kind, name, kernel
// and copyKind are numbers of callProfile.names.
type callSampleKey struct {
	stream, bytes, kernels       int64
	stack, pid, tid, device      int32
	kind, name, kernel, copyKind int32
	graph, open                  bool
	operation                    gpuOperation // only in profiles of GPU time
}

// callLeafData has the data of a sample from which callProfileType.leaf makes a leaf frame.
type callLeafData struct {
	kernel   string
	copyKind string
	kernels  int64 // number of kernels in a graph; 0 if unknown
	graph    bool  // the call launches a graph
}

// callSampleValue has the values of a sample: number of calls, their bytes and their known
// durations. weight counts the calls in thousandths, including an estimate of unrecorded launches.
type callSampleValue struct{ calls, bytes, ns, weight int64 }

// callProfile sums up calls by callSampleKey.
type callProfile struct {
	*calls.CallCounter
	kind    *callProfileType
	names   origin.StringNumbers
	samples map[callSampleKey]*callSampleValue
	sizes   map[callSampleKey]int // number of distinct sizes of calls, by key without bytes
	timed   int64                 // calls with a known duration
	all     int64                 // all calls, also those whose duration is unknown

	gpu gpuTimes // only in profiles of GPU time

	stack    []int32
	parent   []int64
	copyKind format.Strings
}

// addCallSamples adds the samples of the calls in the window to the profile.
func addCallSamples(
	t *timeline.Timeline,
	b *profileBuilder,
	kind *callProfileType,
	opt *Options,
) (q report.Quality, none *query.NoMatchError, err error) {
	p := &callProfile{
		CallCounter: calls.NewCallCounter(t, &opt.Filter),
		kind:        kind,
		samples:     make(map[callSampleKey]*callSampleValue),
		sizes:       make(map[callSampleKey]int),
	}
	counts, err := calls.CountReplayWhile(t, func() error { return p.countSpans(t.Calls) })
	if err == nil && kind.kind == "" {
		err = p.countSpans(t.Memory)
	}
	if err == nil && kind.gpu {
		err = p.gpu.read(t, p.Window)
	}
	if err != nil {
		return q, nil, err
	}
	if len(p.samples) == 0 && len(p.Seen.Pids) > 0 {
		none = p.Seen.ExplainNoMatch(&opt.Filter)
	}
	if p.timed < p.all && !kind.gpu {
		b.p.Comments = append(b.p.Comments, fmt.Sprintf("durations are known of %s of %s calls: the return of the "+
			"others was not recorded", units.FormatCount(p.timed), units.FormatCount(p.all)))
	}
	p.addSamplesTo(b)
	if kind.gpu {
		b.p.Comments = append(b.p.Comments, p.gpu.comment(p.Window))
	}
	return quality.OfRecording(t, counts), none, nil
}

// countSpans counts the calls in the row groups of spans.
func (p *callProfile) countSpans(spans []timeline.Span) error {
	for _, s := range spans {
		p.countRowGroup(s.Group)
		if err := s.Group.Err(); err != nil {
			return p.T.WrapReadError(err)
		}
	}
	return nil
}

// countRowGroup counts the calls of a row group.
func (p *callProfile) countRowGroup(g *format.Group) {
	if p.kind.kind != "" && !slices.Contains(g.Kinds(), p.kind.kind) {
		return
	}
	p.readColumns(g)
	if g.Err() != nil {
		return
	}
	_, graph := p.FindLaunches(g)
	pass := p.NewRowFilter(g, p.Kind, p.Kernel)
	kinds, apis, kernels, copies := p.names.NumbersOf(
		p.Kind.Dict,
	), p.names.NumbersOf(
		p.Name.Dict,
	), p.names.NumbersOf(
		p.Kernel.Dict,
	), p.names.NumbersOf(
		p.copyKind.Dict,
	)
	var last callSampleKey
	var value *callSampleValue
	for i, start := range p.Start {
		if start < p.Window.FromNs || start > p.Window.ToNs || !p.isOfType(i) || !pass(i) {
			continue
		}
		name := p.Name.Index[i]
		key := callSampleKey{
			stack:  p.stack[i],
			pid:    p.Pid[i],
			tid:    p.Tid[i],
			device: p.T.DeviceOfCall(p.Pid[i], p.Context[i], p.Device[i]),
			stream: p.Stream[i],
			kind:   kinds[p.Kind.Index[i]],
			name:   apis[name],
			open:   p.Flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0,
		}
		if p.kind.kind == format.KindLaunch {
			key.kernel = kernels[p.Kernel.Index[i]]
		}
		if p.kind.bytes {
			key.copyKind, key.bytes = copies[p.copyKind.Index[i]], max(0, p.Bytes[i])
		}
		if key.graph = p.kind.kind == format.KindLaunch && graph[name]; key.graph {
			key.kernels = int64(p.Value[i])
		}
		if p.kind.gpu {
			key.operation = p.gpu.operationOfRow(i, key.graph)
		}
		if value == nil || key != last {
			last, value = key, p.findSample(key)
		}
		p.addRow(value, i)
	}
}

// readColumns reads the columns of a row group of calls.
func (p *callProfile) readColumns(g *format.Group) {
	p.Kind, p.Name = g.StringsInto("kind", p.Kind), g.StringsInto("name", p.Name)
	p.Start, p.Dur = g.Int64("start_ns", p.Start), g.Int64("dur_ns", p.Dur)
	p.Result, p.Flags = g.Int32("result", p.Result), g.Int32("flags", p.Flags)
	p.Pid, p.Tid, p.Device = g.Int32("pid", p.Pid), g.Int32("tid", p.Tid), g.Int32("device", p.Device)
	p.Context, p.Stream, p.parent = g.Int64(
		"context",
		p.Context,
	), g.Int64(
		"stream",
		p.Stream,
	), p.T.DriverParents(g.Int64(
		"parent_start_ns",
		p.parent,
	))
	p.stack = g.Int32("stack_id", p.stack)
	p.Kernel, p.copyKind = format.Strings{}, format.Strings{}
	if p.kind.kind == format.KindLaunch || p.Filter.Kernel != nil {
		p.Kernel = g.StringsInto("kernel", p.Kernel)
	}
	if p.kind.gpu {
		p.gpu.readColumns(g)
	}
	if p.kind.bytes {
		p.Bytes, p.copyKind = g.Int64("bytes", p.Bytes), g.StringsInto("copy_kind", p.copyKind)
	}
}

// isOfType reports whether row i is a call of the profile's type. It does not check the filter.
func (p *callProfile) isOfType(i int) bool {
	if p.kind.kind != "" && p.Kind.At(i) != p.kind.kind ||
		p.kind.wants != nil && !p.kind.wants(p.Name.At(i), p.parent[i] != 0) {
		return false
	}
	failed := p.Flags[i]&timeline.NoResultFlags == 0 && calls.IsErrorResult(p.Result[i])
	return !p.kind.ran || !failed && p.Flags[i]&format.FlagCaptured == 0
}

// addRow adds the call in row i to the values of its sample.
func (p *callProfile) addRow(v *callSampleValue, i int) {
	v.calls++
	p.all++
	v.weight += p.Weights.WeightAt(p.Start[i])
	if p.kind.bytes {
		v.bytes = units.EndOfRange(v.bytes, p.Bytes[i])
	}
	if p.Flags[i]&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
		p.timed++
		v.ns = units.EndOfRange(v.ns, p.Dur[i])
	}
}

// findSample returns the values of the sample with a key. If a call site has too many sizes of
// copies, it rounds the size up.
func (p *callProfile) findSample(key callSampleKey) *callSampleValue {
	if v, ok := p.samples[key]; ok {
		return v
	}
	if p.kind.bytes {
		place := key
		place.bytes = 0
		if p.sizes[place] >= maxExactSizes {
			key.bytes = roundUpSize(key.bytes)
			if v, ok := p.samples[key]; ok {
				return v
			}
		}
		p.sizes[place]++
	}
	v := new(callSampleValue)
	p.samples[key] = v
	return v
}

// addSamplesTo adds the samples of calls to the profile, always in the same order.
func (p *callProfile) addSamplesTo(b *profileBuilder) {
	keys := make([]callSampleKey, 0, len(p.samples))
	for k := range p.samples {
		keys = append(keys, k)
	}
	names := p.names.List
	slices.SortFunc(keys, func(a, b callSampleKey) int {
		return cmp.Or(
			cmp.Compare(a.pid, b.pid),
			cmp.Compare(a.tid, b.tid),
			cmp.Compare(a.stack, b.stack),
			cmp.Compare(a.stream, b.stream),
			cmp.Compare(a.device, b.device),
			strings.Compare(
				names[a.kind],
				names[b.kind],
			),
			strings.Compare(names[a.name], names[b.name]),
			p.compareNames(a.kernel, b.kernel),
			p.compareNames(a.copyKind, b.copyKind),
			cmp.Compare(a.kernels, b.kernels),
			cmp.Compare(a.bytes, b.bytes),
			compareBool(a.open, b.open),
			a.operation.compare(&b.operation),
		)
	})
	for _, k := range keys {
		s := profileSample{
			stack:  k.stack,
			api:    names[k.name],
			kind:   names[k.kind],
			pid:    k.pid,
			tid:    k.tid,
			device: k.device,
			stream: k.stream,
			bytes:  k.bytes,
			open:   k.open,
		}
		words := callLeafData{kernels: k.kernels, graph: k.graph}
		if p.kind.kind == format.KindLaunch {
			words.kernel = names[k.kernel]
		}
		if p.kind.bytes {
			words.copyKind = names[k.copyKind]
			s.copyKind = words.copyKind
		}
		if p.kind.leaf != nil {
			s.leaf = p.kind.leaf(&words)
		}
		v := p.samples[k]
		switch {
		case p.kind.gpu:
			b.addSample(&s, v.calls, p.gpu.addTime(&k, v, words.kernel))
		case p.kind.bytes:
			b.addSample(&s, v.calls, v.bytes, v.ns)
		default:
			b.addSample(&s, v.calls, v.ns)
		}
	}
}

// compareNames compares two strings that are given by their numbers in names.
func (p *callProfile) compareNames(a, b int32) int {
	return strings.Compare(p.names.List[a], p.names.List[b])
}

// compareBool compares two booleans; false is less than true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
