package pprof

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

var (
	cpuSamplesColumn = report.Column{
		Key: "cpu_samples", Title: "", Unit: report.UnitCount, About: "CPU samples in the window",
	}
	cpuTimeColumn = report.Column{
		Key: "cpu_time", Title: "", Unit: report.UnitNs,
		About: "estimated time of threads on a processor: the sum of the time that each CPU sample represents. A " +
			"comment of the profile has the standard error",
	}
	offCPUWaitsColumn = report.Column{
		Key: "off_cpu_waits", Title: "", Unit: report.UnitCount,
		About: "recorded waits of threads that launch work or wait for it",
	}
	offCPUTimeColumn = report.Column{
		Key: "off_cpu_time", Title: "", Unit: report.UnitNs,
		About: "measured duration of these waits in the window, by the stack of the wait. Shorter waits than the " +
			"recorder's limit do not count",
	}
	hostTimeColumn = report.Column{
		Key: "host_time", Title: "", Unit: report.UnitNs, About: "cpu_time + off_cpu_time",
	}
)

// hostProfileType selects rows of class host, and the values of a sample.
type hostProfileType struct {
	onCPU, offCPU bool
}

// valuesOf returns the values of a sample in the order of the sample types.
func (t *hostProfileType) valuesOf(v *hostSampleValue) []int64 {
	switch {
	case !t.offCPU:
		return []int64{v.count, v.cpuNs}
	case !t.onCPU:
		return []int64{v.count, v.offNs}
	}
	return []int64{v.cpuNs, v.offNs, units.EndOfRange(v.cpuNs, v.offNs)}
}

// NoHostRowsError says that a recording does not have what threads did outside of CUDA.
type NoHostRowsError struct{}

// Error says how to record it.
func (NoHostRowsError) Error() string {
	return "the recording does not have what threads did outside of CUDA; record with --host auto"
}

// hostSampleKey identifies a sample: waits or CPU samples that are equal in all these fields.
type hostSampleKey struct {
	origin.Thread
	stack               int32
	waits               bool
	reason, state, call string
	// end is the thread that had stack and did what reason says, so that the other one waited; zero: the thread itself.
	end origin.Thread
}

// compare orders samples.
func (k *hostSampleKey) compare(o *hostSampleKey) int {
	return cmp.Or(cmp.Compare(k.Pid, o.Pid), cmp.Compare(k.Tid, o.Tid), report.CompareBools(k.waits, o.waits),
		cmp.Compare(k.stack, o.stack), strings.Compare(k.reason, o.reason), strings.Compare(k.state, o.state),
		strings.Compare(k.call, o.call), cmp.Compare(k.end.Pid, o.end.Pid), cmp.Compare(k.end.Tid, o.end.Tid))
}

// hostSampleValue has the values of a sample, times in ns.
type hostSampleValue struct{ count, cpuNs, offNs int64 }

// hostProfile sums up rows of class host.
type hostProfile struct {
	samples        map[hostSampleKey]*hostSampleValue
	squares        float64 // sum of the squares of the time that each CPU sample represents, ns²
	offNs, stackNs int64   // time in waits, and its part with a stack
	t              *timeline.Timeline
	history        *hosttime.History // nil if the recording does not say who ended waits
}

// addHostSamples adds the samples of class host in the window to the profile. It returns a NoHostRowsError if
// the recording has none.
func addHostSamples(
	t *timeline.Timeline, b *profileBuilder, kind *hostProfileType, opt *Options,
) (q report.Quality, none *query.NoMatchError, err error) {
	if !hosttime.HasTimes(t) {
		return q, nil, NoHostRowsError{}
	}
	p := &hostProfile{samples: make(map[hostSampleKey]*hostSampleValue), t: t}
	if hosttime.HasWakers(t) {
		if p.history, err = hosttime.Of(t); err != nil {
			return q, nil, err
		}
	}
	selection := hosttime.NewSelection(t, &opt.Filter)
	var yield hosttime.Yield
	if kind.onCPU {
		yield.Sample = p.addSample
	}
	if kind.offCPU {
		yield.Wait = p.addWait
	}
	counts, err := calls.CountReplayWhile(t, func() error { return selection.Each(t, yield) })
	if err == nil && p.history != nil {
		err = p.history.Err()
	}
	if err != nil {
		return q, nil, err
	}
	if len(p.samples) == 0 && len(selection.Pids) > 0 {
		none = opt.ExplainNoProcess(selection.Pids)
	}
	keys := slices.SortedFunc(maps.Keys(p.samples), func(a, b hostSampleKey) int { return a.compare(&b) })
	for i := range keys {
		b.addSample(kind.sampleOf(&keys[i]), kind.valuesOf(p.samples[keys[i]])...)
	}
	b.p.Comments = append(b.p.Comments, p.comments(kind)...)
	return quality.OfRecording(t, counts), none, nil
}

// sampleOf returns the stack and the labels of a sample. A wait has a leaf frame with its reason. If another thread is
// the reason, the stack is that thread's.
func (t *hostProfileType) sampleOf(key *hostSampleKey) *profileSample {
	s := &profileSample{
		stack: key.stack, pid: key.Pid, tid: key.Tid, host: true, kind: "running", api: key.call, device: -1,
		waitedFor: key.end,
	}
	if key.waits {
		s.kind, s.reason = key.state, key.reason
		s.leaf, s.leafModule = key.reason, offCPUModule
		if key.end.Tid != 0 {
			s.leaf = "another thread " + key.reason
		}
	} else if t.offCPU {
		s.leaf, s.leafModule = "running", onCPUModule
	}
	return s
}

// valueOf returns the values of a sample, and adds them if there are none.
func (p *hostProfile) valueOf(key hostSampleKey) *hostSampleValue {
	v := p.samples[key]
	if v == nil {
		v = new(hostSampleValue)
		p.samples[key] = v
	}
	return v
}

// addWait adds a wait: the parts in which another thread at the end of a chain of wakers did something, and the rest. The
// longest part counts as the wait.
func (p *hostProfile) addWait(w *hosttime.Wait) {
	ns := w.ToNs - w.FromNs
	p.offNs = units.EndOfRange(p.offNs, ns)
	own := hostSampleKey{
		Thread: w.Thread, stack: w.Stack, waits: true, reason: cmp.Or(w.Fact.Reason, "unknown"), state: w.State,
		call: cmp.Or(w.Fact.CUDACall, w.Fact.SystemCall),
	}
	longest, longestNs, restNs := own, int64(0), ns
	if p.history != nil {
		for _, part := range p.history.Explain(w.Pid, w.Tid, w.FromNs, w.ToNs) {
			if !part.Chain.IsOther() {
				continue
			}
			key := own
			key.stack, key.reason, key.end = part.Stack, part.Cause.String(), part.Chain.End
			restNs -= part.Ns
			p.addOff(key, part.Ns)
			if part.Ns > longestNs {
				longest, longestNs = key, part.Ns
			}
		}
	}
	if restNs > 0 || longestNs == 0 {
		p.addOff(own, restNs)
	}
	if restNs >= longestNs {
		longest = own
	}
	p.valueOf(longest).count++
}

// addOff adds time in waits to a sample.
func (p *hostProfile) addOff(key hostSampleKey, ns int64) {
	v := p.valueOf(key)
	v.offNs = units.EndOfRange(v.offNs, ns)
	if len(p.t.Stacks.Stacks[key.stack]) > 0 {
		p.stackNs = units.EndOfRange(p.stackNs, ns)
	}
}

// addSample adds a CPU sample.
func (p *hostProfile) addSample(s *hosttime.CPUSample) {
	v := p.valueOf(hostSampleKey{Thread: s.Thread, stack: s.Stack})
	v.count++
	v.cpuNs = units.EndOfRange(v.cpuNs, s.ForNs)
	p.squares += float64(s.ForNs) * float64(s.ForNs)
}

// comments describe the certainty of the values.
func (p *hostProfile) comments(kind *hostProfileType) (list []string) {
	if kind.onCPU {
		list = append(list, fmt.Sprintf("CPU time: estimated from samples, ±%s (standard error)",
			units.FormatDuration(units.RoundInt(math.Sqrt(p.squares)))))
	}
	if kind.offCPU {
		list = append(list, fmt.Sprintf("time in waits: measured; %.0f%% of it has a stack",
			units.Percent(p.stackNs, p.offNs)))
	}
	return list
}
