package idle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// maxPendingGaps is the number of gaps that wait for the calls of the host.
const maxPendingGaps = 1 << 15

// Of is Compute with DefaultMaxGaps. It computes the result of a filter once for all views of the Timeline.
// maxCalls is Options.MaxCalls. Several goroutines may call it.
func Of(t *timeline.Timeline, f *query.Filter, maxCalls int64) (*Result, error) {
	key := idleOf{f.FromNs, f.ToNs, maxCalls, fmt.Sprint(f.Pids, f.Tids, f.Devices, f.Streams, f.Kernel)}
	filter := *f
	return timeline.Remember(t, key, func() (*Result, error) {
		return Compute(t, Options{Filter: &filter, MaxCalls: maxCalls})
	})
}

// idleOf is the key of the result of a filter in the memo of a Timeline. operations has the parts of the filter
// that select operations.
type idleOf struct {
	fromNs, toNs, maxCalls int64
	operations             string
}

// Compute computes the idle time of the devices of a recording. It reads the operations twice, and the calls once. Its
// memory does not grow with the number of operations. Without GPU times there are no devices. It returns errors of
// reading the recording.
func Compute(t *timeline.Timeline, opt Options) (*Result, error) {
	t = t.NewView()
	opt.MaxGaps = cmp.Or(opt.MaxGaps, DefaultMaxGaps)
	window := opt.Filter.NarrowWindow(t.RecordingWindow())
	a, err := activity.OfPart(t, window, opt.MaxCalls)
	if err != nil {
		return nil, err
	}
	window.ToNs = cmp.Or(a.UntilNs, window.ToNs)
	r := &run{
		t: t, opt: opt, activity: a, classes: newClasses(a.Labels), devices: make(map[deviceKey]*track),
		causes: make(map[*track]*causes), sites: make(map[int32]string),
		endsBy: make(map[callKey]waiterStart), unknownOperations: make(map[deviceKey]int64),
		gaps: timeline.NewPipe[pendingGap](),
	}
	result := &Result{UntimedOperations: a.UnpairedOperations, Activity: a}
	if len(a.Streams) == 0 {
		return result, nil
	}
	if hosttime.HasRows(t) {
		if r.history, err = hosttime.Of(t); err != nil {
			return nil, err
		}
	}
	if err := r.findWindows(window); err != nil || len(r.devices) == 0 {
		return result, err
	}
	r.host = newHost(t, r.addWait)
	if err := r.sweep(window); err != nil {
		return nil, err
	}
	for _, d := range r.devices {
		r.causes[d].finish(d.device)
		result.Devices = append(result.Devices, d.device)
	}
	slices.SortFunc(result.Devices, func(a, b *Device) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	if r.history != nil {
		return result, r.history.Err()
	}
	return result, nil
}

type deviceKey struct{ pid, device int32 }

// run computes a Result.
type run struct {
	t                 *timeline.Timeline
	opt               Options
	activity          *activity.Activity
	classes           *classes
	devices           map[deviceKey]*track
	causes            map[*track]*causes
	sites             map[int32]string // by stack
	endsBy            map[callKey]waiterStart
	unknownOperations map[deviceKey]int64
	host              *host
	gaps              *timeline.Pipe[pendingGap] // from the devices to addGap
	history           *hosttime.History          // nil without rows of class host
	pending           []*pendingGap
	spare             []*pendingGap // memory of explained ones
	err               error
}

// passes reports whether an operation passes the filter.
func (r *run) passes(w *activity.Operation) bool {
	f, c := r.opt.Filter, &w.Call
	if f.SelectsCallers() {
		if !f.PassesCaller(c.Pid, c.Tid, c.Device, activity.RecordedHandle(c.Stream)) {
			return false
		}
	}
	if f.Kernel == nil || w.Call.Op != activity.OpKernel {
		return true
	}
	return w.Call.Label >= 0 && f.PassesKernel(format.KindLaunch, r.activity.Labels[w.Call.Label].Kernel)
}

// eachPlaced calls yield for each operation that passes the filter, with its probable time, and unknown for
// the times in which operations without a known start may have run. With keeps, yield may keep placed.call.
func (r *run) eachPlaced(
	keeps bool, yield func(at *placed), unknown func(key deviceKey, i activity.Interval),
) error {
	p := placer{classes: r.classes, labels: r.activity.Labels, queues: make(map[queueKey]*queue), endsBy: r.endsBy}
	p.residualsNs = make(map[int32]int64)
	for i := range r.activity.Channels {
		p.residualsNs[r.activity.Channels[i].Number] = r.activity.Channels[i].ClockResidualNs
	}
	devices := make(map[*queue]deviceKey)
	give := func(at *placed) {
		p.noteWaiter(at)
		yield(at)
		if !keeps {
			p.spare = append(p.spare, at.call)
		}
	}
	err := r.activity.EachOperationOrSpan(func(w *activity.Operation) {
		if !r.passes(w) {
			return
		}
		q := p.queueOf(queueKey{w.Stream, w.Channel})
		at, ok := p.place(w, q)
		if !ok {
			q.unknownNs = cmp.Or(q.unknownNs, w.Call.StartNs)
			devices[q] = deviceKey{w.Call.Pid, w.Call.Device}
			r.unknownOperations[devices[q]]++
			return
		}
		if q.unknownNs != 0 {
			unknown(devices[q], activity.Interval{LoNs: q.unknownNs, HiNs: w.Start.HiNs})
			q.unknownNs = 0
		}
		q.add(&at, give)
	}, func(pid, device int32, span activity.Interval) {
		unknown(deviceKey{pid, device}, span)
	})
	for _, q := range p.queuesInOrder() {
		if n := len(q.run); n > 0 && !q.run[n-1].hasEnd {
			q.run[n-1].possible.HiNs = activity.UnknownNs
		}
		q.flush(give)
		if q.unknownNs != 0 {
			unknown(devices[q], activity.Interval{LoNs: q.unknownNs, HiNs: activity.UnknownNs})
		}
	}
	return err
}

// foundStream has the times of the operations of a stream.
type foundStream struct {
	window   query.Window // from the first start to the last end
	kernelNs int64
}

// streamKey identifies a stream of a device.
type streamKey struct {
	deviceKey
	stream int32
}

// findStreams returns the streams with operations in a window.
func (r *run) findStreams(window query.Window) (map[streamKey]*foundStream, error) {
	found := make(map[streamKey]*foundStream)
	var lastKey streamKey
	var last *foundStream
	err := r.eachPlaced(false, func(at *placed) {
		if at.class == classNone || at.endNs <= window.FromNs || at.startNs >= window.ToNs {
			return
		}
		key := streamKey{deviceKey{at.call.pid, at.call.device}, at.call.stream}
		if last == nil || key != lastKey {
			lastKey, last = key, found[key]
		}
		if last == nil {
			last = &foundStream{window: query.Window{FromNs: at.startNs, ToNs: at.endNs}}
			found[key] = last
		}
		last.window.FromNs, last.window.ToNs = min(last.window.FromNs, at.startNs), max(last.window.ToNs, at.endNs)
		if at.class == classKernel {
			last.kernelNs += at.endNs - at.startNs
		}
	}, func(deviceKey, activity.Interval) {})
	return found, err
}

// findWindows finds the devices, their windows and their main streams.
func (r *run) findWindows(window query.Window) error {
	streams, err := r.findStreams(window)
	if err != nil {
		return err
	}
	windows := make(map[deviceKey]query.Window)
	for key, s := range streams {
		w, ok := windows[key.deviceKey]
		if !ok {
			w = s.window
		}
		windows[key.deviceKey] = query.Window{
			FromNs: min(w.FromNs, s.window.FromNs), ToNs: max(w.ToNs, s.window.ToNs),
		}
	}
	clear(r.unknownOperations)
	for key, found := range windows {
		d := &Device{
			Pid: key.pid, Device: key.device, MainStream: -1, cells: make([]cell, numCells),
			Window: query.Window{FromNs: max(found.FromNs, window.FromNs), ToNs: min(found.ToNs, window.ToNs)},
		}
		t := newTrack(d, r.gaps)
		r.devices[key] = t
		r.causes[t] = &causes{siteOf: r.siteOf, sums: make(map[causeKey]*Cause), most: r.opt.MaxGaps}
		if r.history != nil {
			r.causes[t].host = hosttime.NewBreakdown(r.history, r.siteOf)
		}
	}
	longest := make(map[deviceKey]int64)
	for key, s := range streams {
		d, ns := r.devices[key.deviceKey].device, s.kernelNs
		if most := longest[key.deviceKey]; ns > most || ns == most && key.stream < d.MainStream {
			longest[key.deviceKey], d.MainStream = ns, key.stream
		}
	}
	return nil
}

// siteOf returns the line of a stack.
func (r *run) siteOf(stack int32) string {
	site, ok := r.sites[stack]
	if !ok {
		site = r.t.SiteOfStack(stack)
		r.sites[stack] = site
	}
	return site
}

// sweptOperation is a placed operation, or a span of time in which operations without a known start may have run.
type sweptOperation struct {
	placed
	isSpan bool
	key    deviceKey
	span   activity.Interval
}

// sweep reads the operations in order of time. Three goroutines place the operations, follow the devices, and explain
// the gaps.
func (r *run) sweep(window query.Window) error {
	operations := timeline.NewPipe[sweptOperation]()
	explained := make(chan struct{})
	go func() {
		r.followDevices(operations)
		r.gaps.End()
	}()
	go func() {
		r.gaps.Receive(r.addGap)
		r.explain(len(r.pending), 0)
		r.explain(0, window.ToNs)
		close(explained)
	}()
	err := r.eachPlaced(true, func(at *placed) {
		to := operations.Next()
		to.placed, to.isSpan, to.key = *at, false, deviceKey{at.call.pid, at.call.device}
	}, func(key deviceKey, i activity.Interval) {
		to := operations.Next()
		to.isSpan, to.key, to.span = true, key, i
	})
	operations.End()
	<-explained
	for key, t := range r.devices {
		t.device.UnknownOperations = r.unknownOperations[key]
	}
	return cmp.Or(err, r.err)
}

// followDevices adds the operations to their devices.
func (r *run) followDevices(operations *timeline.Pipe[sweptOperation]) {
	for _, t := range r.sortedTracks() {
		for _, w := range unrecordedTimes(r.t) {
			t.addSpan(edgeUnrecorded, w, 0)
		}
	}
	var lastKey deviceKey
	var last *track
	operations.Receive(func(w *sweptOperation) {
		if last == nil || w.key != lastKey {
			lastKey, last = w.key, r.devices[w.key]
		}
		switch {
		case last == nil:
		case w.isSpan:
			last.addSpan(edgePossible, w.span, 0)
		default:
			last.addOperation(&w.placed)
		}
	})
	for _, t := range r.sortedTracks() {
		t.finish()
	}
}

// sortedTracks returns the devices by process and number, so that the order of gaps does not differ.
func (r *run) sortedTracks() []*track {
	return slices.SortedFunc(maps.Values(r.devices), func(a, b *track) int {
		return cmp.Or(cmp.Compare(a.device.Pid, b.device.Pid), cmp.Compare(a.device.Device, b.device.Device))
	})
}

// unrecordedTimes returns the times in which unrecorded operations may have run.
func unrecordedTimes(t *timeline.Timeline) (list []activity.Interval) {
	const slackNs = 20_000_000 // for operations that still run
	for _, w := range t.Facts.Sampling.NoLaunches {
		list = append(list, activity.Interval{LoNs: w.FromNs, HiNs: w.ToNs + slackNs})
	}
	for _, l := range t.Facts.Lost {
		list = append(list, activity.Interval{LoNs: l.StartNs, HiNs: l.StartNs + l.DurNs + slackNs})
	}
	return list
}

// addGap explains a gap, or lets a copy of it wait for the calls of the host.
func (r *run) addGap(g *pendingGap) {
	if !g.needsHost() {
		r.addExplained(g)
		return
	}
	kept := r.newGap()
	*kept = *g
	r.pending = append(r.pending, kept)
	if len(r.pending) >= maxPendingGaps {
		r.explain(maxPendingGaps/2, 0)
	}
}

// newGap returns memory for a gap.
func (r *run) newGap() *pendingGap {
	n := len(r.spare)
	if n == 0 {
		return new(pendingGap)
	}
	g := r.spare[n-1]
	r.spare = r.spare[:n-1]
	return g
}

// explain explains the first n pending gaps, by the call of the next operation.
func (r *run) explain(n int, untilNs int64) {
	slices.SortFunc(r.pending, func(a, b *pendingGap) int { return cmp.Compare(a.next.callNs, b.next.callNs) })
	if r.err == nil {
		r.err = r.host.explain(r.pending[:n], untilNs)
	}
	for _, g := range r.pending[:n] {
		g.setHostCause(func(name int32) string { return r.host.names.List[name] })
		r.addExplained(g)
	}
	r.spare = append(r.spare, r.pending[:n]...)
	r.pending = append(r.pending[:0], r.pending[n:]...)
}

// addExplained adds a gap with its cause. If the host was late, it adds what the launching thread did.
func (r *run) addExplained(g *pendingGap) {
	c := r.causes[g.track]
	g.sum = c.sumOf(&g.Cause)
	if c.host != nil && g.Cause.Reason.IsHost() {
		certain := float64(g.MinNs) / float64(max(1, g.LengthNs()))
		thread := origin.Thread{Pid: g.next.pid, Tid: g.next.tid}
		g.Host = c.host.Add(g.sum, thread, g.FromNs, g.ToNs, certain)
	}
	c.add(&g.Gap)
}

// addWait adds the time of a call that waits for the GPU.
func (r *run) addWait(c *hostCall) {
	for key, t := range r.devices {
		if key.pid == c.pid {
			t.device.spread(c.startNs, c.endNs, func(cell *cell, ns float64) { cell.waitNs += ns })
		}
	}
}
