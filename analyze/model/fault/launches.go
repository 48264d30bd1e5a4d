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

// A fault on the GPU is noticed only after the call that caused it has returned. The candidates are
// the launches before the fault, except those that a successful synchronization proved complete.

// ContextMoment is a point in time (Unix ns) of a process and context. Context 0 matches all
// contexts.
type ContextMoment struct {
	AtNs    int64
	Pid     int32
	Context int64
}

// Launch is a kernel or graph launch that succeeded, or whose result is unknown. Times are Unix ns.
type Launch struct {
	StartNs, endNs int64
	Stream         int64
	pid, Tid       int32
	Stack          int32
	flags          int32
	Name, Kernel   string
	Site           string
}

func (l *Launch) compareNewestFirst(o *Launch) int {
	return cmp.Or(cmp.Compare(o.StartNs, l.StartNs), cmp.Compare(l.Tid, o.Tid))
}

// fewLaunches is the maximum number of launches that FindLaunchesBefore returns for a moment.
const fewLaunches = 5

// launchWatch collects launches of one process and context. Its moments are in order of time; each
// moment ends an interval with launches and synchronizations.
type launchWatch struct {
	context  int64
	moments  []int64
	launches [][]Launch // the latest launches of each interval
	syncs    []map[syncScope]latestSync
}

// syncScope is the object that a synchronization waits for: one stream, or all streams.
type syncScope struct {
	stream int64
	all    bool
}

// latestSync is the latest successful synchronization. It completes all work of its thread, and all
// work that other threads launched before startNs.
type latestSync struct {
	startNs int64
	tid     int32
}

// launchScan searches for the launches before given moments.
type launchScan struct {
	limit   int // maximum number of launches for a moment
	filter  *query.Filter
	watches map[int32][]*launchWatch // moments whose launches are searched, by pid
	untilNs int64

	start, dur, context, stream     []int64
	ptr                             []int64
	pid, tid, result, flags, stack  []int32
	kind, name, kernel, site        format.Strings
	isLaunch, isSync, isContextSync []bool
}

// FindLaunchesBefore returns, for each moment, the latest launches of its process and context that
// may still have been running, newest first. It applies the filter's threads, streams and kernels.
func FindLaunchesBefore(t *timeline.Timeline, moments []ContextMoment, f *query.Filter) ([][]Launch, error) {
	return FindManyLaunchesBefore(t, moments, f, fewLaunches)
}

// FindManyLaunchesBefore is FindLaunchesBefore for at most limit launches of each moment.
func FindManyLaunchesBefore(
	t *timeline.Timeline,
	moments []ContextMoment,
	f *query.Filter,
	limit int,
) ([][]Launch, error) {
	s := launchScan{limit: limit, filter: f, watches: make(map[int32][]*launchWatch)}
	for _, m := range moments {
		s.watchMoment(m)
	}
	for _, watches := range s.watches {
		for _, w := range watches {
			slices.Sort(w.moments)
			w.moments = slices.Compact(w.moments)
			w.launches, w.syncs = make([][]Launch, len(w.moments)), make([]map[syncScope]latestSync, len(w.moments))
			s.untilNs = max(s.untilNs, w.moments[len(w.moments)-1])
		}
	}
	for _, sp := range t.Calls {
		if len(moments) == 0 || sp.FirstNs > s.untilNs {
			continue
		}
		s.scanGroup(sp.Group)
		if err := sp.Group.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	found := make(map[ContextMoment][]Launch)
	for pid, watches := range s.watches {
		for _, w := range watches {
			w.collectLaunches(pid, limit, found)
		}
	}
	list := make([][]Launch, len(moments))
	for i, m := range moments {
		list[i] = found[m]
	}
	return list, nil
}

func (s *launchScan) watchMoment(m ContextMoment) {
	for _, w := range s.watches[m.Pid] {
		if w.context == m.Context {
			w.moments = append(w.moments, m.AtNs)
			return
		}
	}
	s.watches[m.Pid] = append(s.watches[m.Pid], &launchWatch{context: m.Context, moments: []int64{m.AtNs}})
}

func (s *launchScan) scanGroup(g *format.Group) {
	if !slices.Contains(g.Kinds(), format.KindLaunch) && !slices.Contains(g.Kinds(), format.KindSync) {
		return
	}
	s.readColumns(g)
	for i, start := range s.start {
		kind := s.kind.Index[i]
		watches := s.watches[s.pid[i]]
		if len(watches) == 0 || start > s.untilNs || !s.isLaunch[kind] && !s.isSync[kind] {
			continue
		}
		for _, w := range watches {
			if inContext := w.context == 0 || s.context[i] == 0 || w.context == s.context[i]; s.isSync[kind] {
				s.addSync(w, i, inContext)
			} else if inContext {
				s.addLaunch(w, i)
			}
		}
	}
}

func (s *launchScan) readColumns(g *format.Group) {
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

// addLaunch adds row i, a launch, if it is one of the latest of its interval.
func (s *launchScan) addLaunch(w *launchWatch, i int) {
	flags := s.flags[i]
	bin, _ := slices.BinarySearch(w.moments, s.start[i])
	if bin == len(w.moments) || flags&format.FlagCaptured != 0 ||
		flags&timeline.NoResultFlags == 0 && s.result[i] != 0 ||
		!s.passesFilter(i) {
		return
	}
	heap := w.launches[bin]
	full := len(heap) == s.limit
	if full && s.start[i] < heap[0].StartNs {
		return
	}
	l := Launch{
		StartNs: s.start[i],
		endNs:   units.EndOfRange(s.start[i], s.dur[i]),
		Stream:  s.stream[i],
		pid:     s.pid[i],
		Tid:     s.tid[i],
		Stack:   s.stack[i],
		flags:   flags,
		Name:    s.name.At(i),
		Kernel:  s.kernel.At(i),
		Site:    s.site.At(i),
	}
	earlier := func(a, b Launch) bool { return a.compareNewestFirst(&b) > 0 }
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

// passesFilter applies the parts of the filter that concern launches.
func (s *launchScan) passesFilter(i int) bool {
	f := s.filter
	return f.PassesKernel(format.KindLaunch, s.kernel.At(i)) &&
		(len(f.Tids) == 0 || slices.Contains(f.Tids, s.tid[i])) &&
		(len(f.Streams) == 0 || slices.Contains(f.Streams, s.stream[i]))
}

// addSync records row i, a successful synchronization, in the interval in which it returned. It
// ignores per-thread default streams and events, because their work is unknown.
func (s *launchScan) addSync(w *launchWatch, i int, inContext bool) {
	name := s.name.Index[i]
	// cuCtxSynchronize_v2 has the context as an argument
	all := s.isContextSync[name] && w.context != 0 && cmp.Or(s.ptr[i], s.context[i]) == w.context
	ofStream := inContext && catalog.BaseFunctionName(s.name.Dict[name]) == "cuStreamSynchronize" &&
		s.flags[i]&format.FlagPerThreadStream == 0
	if s.result[i] != 0 || s.flags[i]&timeline.NoResultFlags != 0 || !all && !ofStream {
		return
	}
	bin, _ := slices.BinarySearch(w.moments, units.EndOfRange(s.start[i], s.dur[i]))
	if bin == len(w.moments) {
		return
	}
	if w.syncs[bin] == nil {
		w.syncs[bin] = make(map[syncScope]latestSync)
	}
	key := syncScope{s.stream[i], false}
	if all {
		key = syncScope{0, true}
	}
	if last, ok := w.syncs[bin][key]; !ok || s.start[i] > last.startNs {
		w.syncs[bin][key] = latestSync{s.start[i], s.tid[i]}
	}
}

// collectLaunches merges the intervals: all intervals up to a moment come before it.
func (w *launchWatch) collectLaunches(pid int32, limit int, found map[ContextMoment][]Launch) {
	var last []Launch
	done := make(map[syncScope]latestSync)
	for i, at := range w.moments {
		last = append(slices.Clone(w.launches[i]), last...)
		slices.SortStableFunc(last, func(a, b Launch) int { return a.compareNewestFirst(&b) })
		last = last[:min(len(last), limit)]
		for key, s := range w.syncs[i] {
			if old, ok := done[key]; !ok || s.startNs > old.startNs {
				done[key] = s
			}
		}
		running := slices.DeleteFunc(slices.Clone(last), func(l Launch) bool {
			return l.isCompletedBy(done[syncScope{l.Stream, false}]) || l.isCompletedBy(done[syncScope{0, true}])
		})
		found[ContextMoment{at, pid, w.context}] = running
	}
}

// isCompletedBy reports whether a successful synchronization proves that the launch has completed.
// For a launch recorded at its entry only, the time at which it reached the GPU is unknown. It is
// known only that the launch came before the next call of its thread.
func (l *Launch) isCompletedBy(s latestSync) bool {
	if l.flags&(format.FlagPerThreadStream|format.FlagOpen|format.FlagAbandoned) != 0 || s.startNs == 0 {
		return false
	}
	return s.startNs >= l.endNs && (l.flags&format.FlagNoReturn == 0 || s.tid == l.Tid)
}
