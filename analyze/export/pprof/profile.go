package pprof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Options are the options of BuildProfile.
type Options struct {
	query.Options
	// Type is one of ListProfileTypes; "" means the first.
	Type string
	// At is the moment of the in-use values of memory profiles. query.MomentGivenTime means AtNs.
	// At query.MomentEnd memory that a process had not freed when it ended is in use; at other
	// moments it is not.
	At query.ReportMoment
	// AtNs is the moment for query.MomentGivenTime, Unix ns.
	AtNs int64
	// RootBy is one of ListRootKinds: each stack gets a root frame with the name of its thread,
	// stream, device, process or rank. "" adds no frame.
	RootBy string
}

// ListProfileTypes returns the types of profiles, the default first.
func ListProfileTypes() []string {
	var list []string
	for i := range profileTypes {
		list = append(list, profileTypes[i].name)
	}
	return list
}

// ListRootKinds returns the possible values of Options.RootBy.
func ListRootKinds() []string { return []string{"thread", "stream", "device", "pid", "rank"} }

// profileType describes a type of profile. Its sample types are columns; pprof shows the one with
// the index defaultIndex first.
type profileType struct {
	name, about  string
	columns      []report.Column
	defaultIndex int
	calls        *callProfileType // nil for profiles of memory and of class host
	host         *hostProfileType // nil for profiles of memory and of calls
}

// isMemory reports whether the profile is one of memory.
func (t *profileType) isMemory() bool { return t.calls == nil && t.host == nil }

var profileTypes = []profileType{
	{"heap", "GPU and pinned host memory", heapProfileColumns, 3, nil, nil},
	{"allocs", "GPU and pinned host memory", heapProfileColumns, 1, nil, nil},
	{"launches", "kernel and graph launches", launchProfileColumns, 0, &launchProfileType, nil},
	{"gpu-time", "time of kernels and graphs on the GPU", gpuProfileColumns, 1, &gpuProfileType, nil},
	{"api-time", "time of threads in calls of the CUDA driver", apiProfileColumns, 1, &apiProfileType, nil},
	{"sync-time", "time of threads in calls that wait for the GPU", waitProfileColumns, 1, &waitProfileType, nil},
	{"copies", "memory copies", copyProfileColumns, 1, &copyProfileType, nil},
	{
		"cpu", "time of threads on a processor, estimated",
		[]report.Column{cpuSamplesColumn, cpuTimeColumn},
		1,
		nil, &hostProfileType{onCPU: true},
	},
	{
		"off-cpu", "time of threads in waits",
		[]report.Column{offCPUWaitsColumn, offCPUTimeColumn},
		1,
		nil, &hostProfileType{offCPU: true},
	},
	{
		"host", "time of threads on a processor and in waits",
		[]report.Column{cpuTimeColumn, offCPUTimeColumn, hostTimeColumn},
		2,
		nil, &hostProfileType{onCPU: true, offCPU: true},
	},
}

// BuildProfile returns a profile of the calls or allocations that pass the filter, by call stack,
// and the quality of the recording.
//
// Samples have the text labels api, kind, stream, thread, device_name and copy_kind, and the
// numeric labels device, pid, tid and bytes, the size of one allocation or copy. Calls that had not
// returned have the label state with the value open. Stacks lack the frames that opt.Hide hides.
// Kernels, graphs and copies are leaf frames whose names begin with [gpu].
//
// Values of GPU time are estimates, and a comment has their error. Launches of unknown GPU time count as 0.
//
// Samples of class host have the kind running or the state of a wait, and waits have the label reason. They have
// no stream and no device. CPU samples are estimates, waits are measured. The reason of a wait is a leaf frame
// whose name begins with [off-cpu].
//
// none is not nil if no call passes the filter. BuildProfile returns an error for an unknown type
// or root, a NoGPUTimesError, a NoHostRowsError, or an error of reading the recording.
func BuildProfile(
	t *timeline.Timeline,
	opt Options,
) (p *profile.Profile, q report.Quality, none *query.NoMatchError, err error) {
	t = t.NewView()
	i := slices.IndexFunc(profileTypes, func(k profileType) bool { return k.name == cmp.Or(opt.Type, "heap") })
	if i < 0 {
		return nil, q, nil, fmt.Errorf(
			"unknown profile type %q; the types are %s",
			opt.Type,
			strings.Join(ListProfileTypes(), ", "),
		)
	}
	if opt.RootBy != "" && !slices.Contains(ListRootKinds(), opt.RootBy) {
		return nil, q, nil, fmt.Errorf(
			"unknown root %q; the roots are %s",
			opt.RootBy,
			strings.Join(ListRootKinds(), ", "),
		)
	}
	kind := &profileTypes[i]
	b := newProfileBuilder(t, kind, &opt)
	switch {
	case kind.calls != nil:
		q, none, err = addCallSamples(t, b, kind.calls, &opt)
	case kind.host != nil:
		q, none, err = addHostSamples(t, b, kind.host, &opt)
	default:
		q, none, err = addHeapSamples(t, b, &opt)
	}
	if err != nil {
		return nil, q, nil, err
	}
	b.p.Comments = append(b.p.Comments, "quality: "+q.String())
	if err := b.p.CheckValid(); err != nil {
		return nil, q, nil, fmt.Errorf("build profile: %w", err)
	}
	return b.p, q, none, nil
}

// BuildHeapProfile returns the profile of memory at the end of the window. It is BuildProfile with
// the default type.
func BuildHeapProfile(
	t *timeline.Timeline,
	opt query.Options,
) (p *profile.Profile, q report.Quality, none *query.NoMatchError, err error) {
	return BuildProfile(t, Options{Options: opt, At: query.MomentEnd})
}

// newProfileBuilder returns a builder of a profile without samples.
func newProfileBuilder(t *timeline.Timeline, kind *profileType, opt *Options) *profileBuilder {
	window := opt.NarrowWindow(t.RecordingWindow())
	if kind.isMemory() {
		window = t.ActivityWindow(&opt.Filter)
	}
	p := &profile.Profile{
		TimeNanos:     window.FromNs,
		DurationNanos: window.DurNs(),
		// No doc URL: trace_processor would mistake the profile for another format.
		Comments: []string{kind.about + ", recorded by gpurec " + t.Rec.Meta.GpurecVersion},
	}
	for _, c := range kind.columns {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: c.Key, Unit: pprofUnit(c.Unit)})
	}
	p.DefaultSampleType = kind.columns[kind.defaultIndex].Key
	p.PeriodType, p.Period = p.SampleType[kind.defaultIndex], 1
	if kind.isMemory() {
		p.PeriodType = &profile.ValueType{Type: "space", Unit: "bytes"}
	}
	b := &profileBuilder{t: t, hide: cmp.Or(opt.Hide, new(query.FrameRules)), rootBy: opt.RootBy, p: p}
	b.addFirstMapping()
	return b
}

// pprofUnit returns pprof's name of the unit of a sample type.
func pprofUnit(u report.Unit) string {
	switch u {
	case report.UnitBytes:
		return "bytes"
	case report.UnitNs:
		return "nanoseconds"
	}
	return "count"
}

// listSampleTypeColumns returns the sample types of all profiles, for --explain.
func listSampleTypeColumns() []report.Column {
	var list []report.Column
	for i := range profileTypes {
		k := &profileTypes[i]
		for _, c := range k.columns {
			if !slices.ContainsFunc(list, func(o report.Column) bool { return o.Key == c.Key }) {
				list = append(list, c)
			}
		}
	}
	return list
}
