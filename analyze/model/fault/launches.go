package fault

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// A fault on the GPU is noticed after the call that caused it has returned. What can have caused it
// are the launches before, without those that a successful synchronization has proved to be done.

// Moment is a time of a process before which launches are looked for; context 0 stands for any.
type Moment struct {
	AtNs    int64
	Pid     int32
	Context int64
}

// Launch is a kernel or graph launch that worked, or of which that is not known.
type Launch struct {
	StartNs, endNs int64
	Stream         int64
	pid, Tid       int32
	Stack          int32
	flags          int32
	Name, Kernel   string
	Site           string
}

func (l *Launch) later(o *Launch) int {
	return cmp.Or(cmp.Compare(o.StartNs, l.StartNs), cmp.Compare(l.Tid, o.Tid))
}

// launchesPerMoment is how many launches are told of each moment.
const launchesPerMoment = 5

// launchWatch are the moments of one process and context, in order of time, and what was found in
// the intervals that end with them.
type launchWatch struct {
	context  int64
	moments  []int64
	launches [][]Launch // the last ones of each interval
	syncs    []map[syncKey]synced
}

// syncKey is what a synchronization waits for: a stream, or all of them.
type syncKey struct {
	stream int64
	all    bool
}

// synced is the latest synchronization that worked: what its thread, and what anybody had launched
// when it began, is done.
type synced struct {
	startNs int64
	tid     int32
}

// launchScan looks for launches before moments.
type launchScan struct {
	filter  *query.Filter
	watches map[int32][]*launchWatch // by process
	untilNs int64

	start, dur, context, stream     []int64
	ptr                             []int64
	pid, tid, result, flags, stack  []int32
	kind, name, kernel, site        format.Strings
	isLaunch, isSync, isContextSync []bool
}

// LaunchesBefore returns, for each moment, the last launches of its process and context that can
// still have been running, the last one first. Of the filter it follows tid, stream and kernel.
func LaunchesBefore(t *timeline.Timeline, moments []Moment, f *query.Filter) ([][]Launch, error) {
	s := launchScan{filter: f, watches: make(map[int32][]*launchWatch)}
	for _, m := range moments {
		s.watch(m)
	}
	for _, watches := range s.watches {
		for _, w := range watches {
			slices.Sort(w.moments)
			w.moments = slices.Compact(w.moments)
			w.launches, w.syncs = make([][]Launch, len(w.moments)), make([]map[syncKey]synced, len(w.moments))
			s.untilNs = max(s.untilNs, w.moments[len(w.moments)-1])
		}
	}
	for _, sp := range t.Calls {
		if len(moments) == 0 || sp.FirstNs > s.untilNs {
			continue
		}
		s.group(sp.Group)
		if err := sp.Group.Err(); err != nil {
			return nil, t.Wrap(err)
		}
	}
	found := make(map[Moment][]Launch)
	for pid, watches := range s.watches {
		for _, w := range watches {
			w.collect(pid, found)
		}
	}
	list := make([][]Launch, len(moments))
	for i, m := range moments {
		list[i] = found[m]
	}
	return list, nil
}

func (s *launchScan) watch(m Moment) {
	for _, w := range s.watches[m.Pid] {
		if w.context == m.Context {
			w.moments = append(w.moments, m.AtNs)
			return
		}
	}
	s.watches[m.Pid] = append(s.watches[m.Pid], &launchWatch{context: m.Context, moments: []int64{m.AtNs}})
}

func (s *launchScan) group(g *format.Group) {
	if !slices.Contains(g.Kinds(), format.KindLaunch) && !slices.Contains(g.Kinds(), format.KindSync) {
		return
	}
	s.read(g)
	for i, start := range s.start {
		kind := s.kind.Index[i]
		watches := s.watches[s.pid[i]]
		if len(watches) == 0 || start > s.untilNs || !s.isLaunch[kind] && !s.isSync[kind] {
			continue
		}
		for _, w := range watches {
			if here := w.context == 0 || s.context[i] == 0 || w.context == s.context[i]; s.isSync[kind] {
				s.sync(w, i, here)
			} else if here {
				s.launch(w, i)
			}
		}
	}
}

func (s *launchScan) read(g *format.Group) {
	s.start, s.dur = g.Int64("start_ns", s.start), g.Int64("dur_ns", s.dur)
	s.context, s.stream = g.Int64("context", s.context), g.Int64("stream", s.stream)
	s.ptr = g.Int64("ptr", s.ptr)
	s.pid, s.tid = g.Int32("pid", s.pid), g.Int32("tid", s.tid)
	s.result, s.flags, s.stack = g.Int32("result", s.result), g.Int32("flags", s.flags), g.Int32("stack_id", s.stack)
	s.kind, s.name = g.StringsInto("kind", s.kind), g.StringsInto("name", s.name)
	s.kernel, s.site = g.StringsInto("kernel", s.kernel), g.StringsInto("site", s.site)
	s.isLaunch, s.isSync, s.isContextSync = s.isLaunch[:0], s.isSync[:0], s.isContextSync[:0]
	for _, k := range s.kind.Dict {
		s.isLaunch, s.isSync = append(s.isLaunch, k == format.KindLaunch), append(s.isSync, k == format.KindSync)
	}
	for _, n := range s.name.Dict {
		s.isContextSync = append(s.isContextSync, strings.HasPrefix(n, "cuCtxSynchronize"))
	}
}

// launch notes row i, a launch, if it is among the last of its interval.
func (s *launchScan) launch(w *launchWatch, i int) {
	flags := s.flags[i]
	bin, _ := slices.BinarySearch(w.moments, s.start[i])
	if bin == len(w.moments) || flags&format.FlagCaptured != 0 || flags&timeline.NoResult == 0 && s.result[i] != 0 ||
		!s.passes(i) {
		return
	}
	heap := w.launches[bin]
	full := len(heap) == launchesPerMoment
	if full && s.start[i] < heap[0].StartNs {
		return
	}
	l := Launch{
		StartNs: s.start[i],
		endNs:   units.EndOf(s.start[i], s.dur[i]),
		Stream:  s.stream[i],
		pid:     s.pid[i],
		Tid:     s.tid[i],
		Stack:   s.stack[i],
		flags:   flags,
		Name:    s.name.At(i),
		Kernel:  s.kernel.At(i),
		Site:    s.site.At(i),
	}
	earlier := func(a, b Launch) bool { return a.later(&b) > 0 }
	if full {
		if !earlier(heap[0], l) {
			return
		}
		heap[0] = l
		stats.HeapFix(heap, earlier)
		return
	}
	w.launches[bin] = stats.HeapPush(heap, l, earlier)
}

// passes is what of the filter is about launches.
func (s *launchScan) passes(i int) bool {
	f := s.filter
	return f.PassesKernel(format.KindLaunch, s.kernel.At(i)) &&
		(len(f.Tids) == 0 || slices.Contains(f.Tids, s.tid[i])) &&
		(len(f.Streams) == 0 || slices.Contains(f.Streams, s.stream[i]))
}

// sync notes row i, a synchronization that worked, at the interval in which it returned. Which work
// stream 0 of a thread's own is, and an event stands for, is not followed.
func (s *launchScan) sync(w *launchWatch, i int, here bool) {
	name := s.name.Index[i]
	// _v2 names the context
	all := s.isContextSync[name] && w.context != 0 && cmp.Or(s.ptr[i], s.context[i]) == w.context
	ofStream := here && catalog.BaseName(s.name.Dict[name]) == "cuStreamSynchronize" &&
		s.flags[i]&format.FlagPerThreadStream == 0
	if s.result[i] != 0 || s.flags[i]&timeline.NoResult != 0 || !all && !ofStream {
		return
	}
	bin, _ := slices.BinarySearch(w.moments, units.EndOf(s.start[i], s.dur[i]))
	if bin == len(w.moments) {
		return
	}
	if w.syncs[bin] == nil {
		w.syncs[bin] = make(map[syncKey]synced)
	}
	key := syncKey{s.stream[i], false}
	if all {
		key = syncKey{0, true}
	}
	if last, ok := w.syncs[bin][key]; !ok || s.start[i] > last.startNs {
		w.syncs[bin][key] = synced{s.start[i], s.tid[i]}
	}
}

// collect puts the intervals together: before a moment are all of those until it.
func (w *launchWatch) collect(pid int32, found map[Moment][]Launch) {
	var last []Launch
	done := make(map[syncKey]synced)
	for i, at := range w.moments {
		last = append(slices.Clone(w.launches[i]), last...)
		slices.SortStableFunc(last, func(a, b Launch) int { return a.later(&b) })
		last = last[:min(len(last), launchesPerMoment)]
		for key, s := range w.syncs[i] {
			if old, ok := done[key]; !ok || s.startNs > old.startNs {
				done[key] = s
			}
		}
		running := slices.DeleteFunc(slices.Clone(last), func(l Launch) bool {
			return l.doneBy(done[syncKey{l.Stream, false}]) || l.doneBy(done[syncKey{0, true}])
		})
		found[Moment{at, pid, w.context}] = running
	}
}

// doneBy reports whether a synchronization that worked proves that the launch has run. Of a launch
// that was written at its entry it is not known when it reached the GPU, other than that it did
// before its thread made another call.
func (l *Launch) doneBy(s synced) bool {
	if l.flags&(format.FlagPerThreadStream|format.FlagOpen|format.FlagAbandoned) != 0 || s.startNs == 0 {
		return false
	}
	return s.startNs >= l.endNs && (l.flags&format.FlagNoReturn == 0 || s.tid == l.Tid)
}
