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

// Options shape a profile.
type Options struct {
	query.Options
	// Type is one of ProfileTypes; "" is the first.
	Type string
	// At is the moment of which profiles of memory tell what is in use, MemoryAtTime that of AtNs
	// (Unix ns). MemoryAtEnd counts what processes had not freed when they ended; at other moments
	// what has ended is not in use.
	At   query.Moment
	AtNs int64
	// RootBy is one of ProfileRoots: a frame that says this is put below all others. "" is none.
	RootBy string
}

// Types lists what a profile may be of, the default first.
func Types() []string {
	var list []string
	for i := range profileTypes {
		list = append(list, profileTypes[i].name)
	}
	return list
}

// Roots lists what stacks of a profile may be put under.
func Roots() []string { return []string{"thread", "stream", "device", "pid", "rank"} }

// profileType is a kind of profile: its sample types, of which pprof shows that with the number shown first.
type profileType struct {
	name, about string
	columns     []report.Column
	shown       int
	calls       *callProfileType // nil: of memory
}

var profileTypes = []profileType{
	{"heap", "GPU and pinned host memory", heapColumns, 3, nil},
	{"allocs", "GPU and pinned host memory", heapColumns, 1, nil},
	{"launches", "kernel and graph launches", launchProfileColumns, 0, &launchProfile},
	{"api-time", "time of threads in calls of the CUDA driver", apiProfileColumns, 1, &apiProfile},
	{"sync-time", "time of threads waiting for the GPU", waitProfileColumns, 1, &waitProfile},
	{"copies", "copies", copyProfileColumns, 1, &copyProfile},
}

// Build returns a profile for pprof, by the stacks that made the calls, and the quality of the
// recording it is made from. Samples have the labels api, kind, stream, thread, device_name and
// copy_kind (text), device, pid, tid and bytes (numbers; bytes is the size of one allocation or
// copy); the label state is open for calls that had not returned. All frames are in it but for
// those that opt.Hide hides; kernels, graphs and copies are leaf frames that begin with [gpu].
// NoMatch is set if the filter left nothing over.
func Build(t *timeline.Timeline, opt Options) (p *profile.Profile, q report.Quality, none *query.NoMatch, err error) {
	t = t.View()
	i := slices.IndexFunc(profileTypes, func(k profileType) bool { return k.name == cmp.Or(opt.Type, "heap") })
	if i < 0 {
		return nil, q, nil, fmt.Errorf("no profile of %q; there are %s", opt.Type, strings.Join(Types(), ", "))
	}
	if opt.RootBy != "" && !slices.Contains(Roots(), opt.RootBy) {
		return nil, q, nil, fmt.Errorf("no root frames by %q; there are %s", opt.RootBy, strings.Join(Roots(), ", "))
	}
	kind := &profileTypes[i]
	b := newProfile(t, kind, &opt)
	if kind.calls != nil {
		q, none, err = profileCalls(t, b, kind.calls, &opt)
	} else {
		q, none, err = profileHeap(t, b, &opt)
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

// BuildHeap returns the profile of memory at the end of the window.
func BuildHeap(
	t *timeline.Timeline,
	opt query.Options,
) (p *profile.Profile, q report.Quality, none *query.NoMatch, err error) {
	return Build(t, Options{Options: opt, At: query.AtEnd})
}

// newProfile begins a profile without samples.
func newProfile(t *timeline.Timeline, kind *profileType, opt *Options) *profileBuilder {
	window := opt.Window(t.Recording())
	if kind.calls == nil {
		window = t.Activity(&opt.Filter)
	}
	p := &profile.Profile{
		TimeNanos:     window.FromNs,
		DurationNanos: window.DurNs(),
		// No doc URL: trace_processor takes a profile with one for another format.
		Comments: []string{kind.about + ", recorded by gpurec " + t.Rec.Meta.GpurecVersion},
	}
	for _, c := range kind.columns {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: c.Key, Unit: profileUnit(c.Unit)})
	}
	p.DefaultSampleType = kind.columns[kind.shown].Key
	p.PeriodType, p.Period = p.SampleType[kind.shown], 1
	if kind.calls == nil {
		p.PeriodType = &profile.ValueType{Type: "space", Unit: "bytes"}
	}
	b := &profileBuilder{t: t, hide: cmp.Or(opt.Hide, new(query.FrameRules)), rootBy: opt.RootBy, p: p}
	b.begin()
	return b
}

// profileUnit is pprof's name of a unit.
func profileUnit(u report.Unit) string {
	switch u {
	case report.UnitBytes:
		return "bytes"
	case report.UnitNs:
		return "nanoseconds"
	}
	return "count"
}

// ProfileColumns are the sample types of all profiles, for Explain.
func ProfileColumns() []report.Column {
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
