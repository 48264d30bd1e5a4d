package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// A fault on the GPU is noticed after the call that caused it has returned. What can have caused it are the launches before,
// without those that a successful synchronization has proved to be done.

// moment is a time of a process before which launches are looked for; context 0 stands for any.
type moment struct {
	atNs    int64
	pid     int32
	context int64
}

// launch is a kernel or graph launch that worked, or of which that is not known.
type launch struct {
	startNs, endNs int64
	stream         int64
	pid, tid       int32
	stack          int32
	flags          int32
	name, kernel   string
	site           string
}

func (l *launch) later(o *launch) int {
	return cmp.Or(cmp.Compare(o.startNs, l.startNs), cmp.Compare(l.tid, o.tid))
}

// launchesPerMoment is how many launches are told of each moment.
const launchesPerMoment = 5

// launchWatch are the moments of one process and context, in order of time, and what was found in the intervals that end with
// them.
type launchWatch struct {
	context  int64
	moments  []int64
	launches [][]launch // the last ones of each interval
	syncs    []map[syncKey]synced
}

// syncKey is what a synchronization waits for: a stream, or all of them.
type syncKey struct {
	stream int64
	all    bool
}

// synced is the latest synchronization that worked: what its thread, and what anybody had launched when it began, is done.
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

// launchesBefore returns, for each moment, the last launches of its process and context that can still have been running, the
// last one first. Of the filter it follows tid, stream and kernel.
func (t *Timeline) launchesBefore(moments []moment, f *query.Filter) ([][]launch, error) {
	s := launchScan{filter: f, watches: make(map[int32][]*launchWatch)}
	for _, m := range moments {
		s.watch(m)
	}
	for _, watches := range s.watches {
		for _, w := range watches {
			slices.Sort(w.moments)
			w.moments = slices.Compact(w.moments)
			w.launches, w.syncs = make([][]launch, len(w.moments)), make([]map[syncKey]synced, len(w.moments))
			s.untilNs = max(s.untilNs, w.moments[len(w.moments)-1])
		}
	}
	for _, sp := range t.calls {
		if len(moments) == 0 || sp.firstNs > s.untilNs {
			continue
		}
		s.group(sp.group)
		if err := sp.group.Err(); err != nil {
			return nil, t.wrap(err)
		}
	}
	found := make(map[moment][]launch)
	for pid, watches := range s.watches {
		for _, w := range watches {
			w.collect(pid, found)
		}
	}
	list := make([][]launch, len(moments))
	for i, m := range moments {
		list[i] = found[m]
	}
	return list, nil
}

func (s *launchScan) watch(m moment) {
	for _, w := range s.watches[m.pid] {
		if w.context == m.context {
			w.moments = append(w.moments, m.atNs)
			return
		}
	}
	s.watches[m.pid] = append(s.watches[m.pid], &launchWatch{context: m.context, moments: []int64{m.atNs}})
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
	if bin == len(w.moments) || flags&format.FlagCaptured != 0 || flags&noResult == 0 && s.result[i] != 0 || !s.passes(i) {
		return
	}
	heap := w.launches[bin]
	full := len(heap) == launchesPerMoment
	if full && s.start[i] < heap[0].startNs {
		return
	}
	l := launch{startNs: s.start[i], endNs: units.EndOf(s.start[i], s.dur[i]), stream: s.stream[i], pid: s.pid[i], tid: s.tid[i], stack: s.stack[i], flags: flags,
		name: s.name.At(i), kernel: s.kernel.At(i), site: s.site.At(i)}
	earlier := func(a, b launch) bool { return a.later(&b) > 0 }
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
	return f.PassesKernel(format.KindLaunch, s.kernel.At(i)) && (len(f.Tids) == 0 || slices.Contains(f.Tids, s.tid[i])) &&
		(len(f.Streams) == 0 || slices.Contains(f.Streams, s.stream[i]))
}

// sync notes row i, a synchronization that worked, at the interval in which it returned. Which work stream 0 of a thread's own
// is, and an event stands for, is not followed.
func (s *launchScan) sync(w *launchWatch, i int, here bool) {
	name := s.name.Index[i]
	all := s.isContextSync[name] && w.context != 0 && cmp.Or(s.ptr[i], s.context[i]) == w.context // _v2 names the context
	ofStream := here && catalog.BaseName(s.name.Dict[name]) == "cuStreamSynchronize" && s.flags[i]&format.FlagPerThreadStream == 0
	if s.result[i] != 0 || s.flags[i]&noResult != 0 || !all && !ofStream {
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
func (w *launchWatch) collect(pid int32, found map[moment][]launch) {
	var last []launch
	done := make(map[syncKey]synced)
	for i, at := range w.moments {
		last = append(slices.Clone(w.launches[i]), last...)
		slices.SortStableFunc(last, func(a, b launch) int { return a.later(&b) })
		last = last[:min(len(last), launchesPerMoment)]
		for key, s := range w.syncs[i] {
			if old, ok := done[key]; !ok || s.startNs > old.startNs {
				done[key] = s
			}
		}
		running := slices.DeleteFunc(slices.Clone(last), func(l launch) bool {
			return l.doneBy(done[syncKey{l.stream, false}]) || l.doneBy(done[syncKey{0, true}])
		})
		found[moment{at, pid, w.context}] = running
	}
}

// doneBy reports whether a synchronization that worked proves that the launch has run. Of a launch that was written at its
// entry it is not known when it reached the GPU, other than that it did before its thread made another call.
func (l *launch) doneBy(s synced) bool {
	if l.flags&(format.FlagPerThreadStream|format.FlagOpen|format.FlagAbandoned) != 0 || s.startNs == 0 {
		return false
	}
	return s.startNs >= l.endNs && (l.flags&format.FlagNoReturn == 0 || s.tid == l.tid)
}

var launchColumns = []Column{
	{"before", "BEFORE", UnitText, "what the launch came before"},
	{"before_ns", "TIME BEFORE", UnitNs, "from the launch's entry to that"},
	{"kernel_short", "KERNEL", UnitText, "kernel launched, template arguments folded; of a graph, the call"},
	{"stream", "STREAM", UnitText, "stream it was launched on"},
	{"tid", "TID", UnitID, "thread that launched it"},
	{"kernel", "", UnitText, "demangled name; absent if not known"},
	{"call", "", UnitText, "function of the CUDA driver"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the launch"},
}

// launchRows has a row per launch before something that happened at atNs; the stack of the last one is for text.
func (t *Timeline) launchRows(before string, atNs int64, launches []launch) []Row {
	var rows []Row
	from := t.Recording().FromNs
	if len(launches) > 0 {
		from = launches[0].startNs
	}
	if blind := t.blindNs(from, atNs); blind > 0 {
		text := fmt.Sprintf("(launches were not recorded for %s of the time before)", units.Duration(blind))
		rows = append(rows, Row{Brief: true, Cells: []any{before, nil, text, nil, nil, nil, nil, nil}})
	}
	for i := range launches {
		l := &launches[i]
		short := symbolize.ShortKernel(l.kernel)
		if l.kernel == "" {
			short = l.name
		}
		rows = append(rows, Row{
			Cells: []any{before, atNs - l.startNs, short, query.StreamName(l.stream), int64(l.tid), units.Known(l.kernel), l.name, t.siteOfCall(l.stack, l.site)},
			Brief: i > 0, stack: l.stack,
		})
	}
	return rows
}

// siteOfCall is the place in the program that made a call: from its stack's source lines, from the call itself, or chosen
// from its stack.
func (t *Timeline) siteOfCall(stack int32, site string) string {
	if place, ok := t.stacks.Placed[stack]; ok {
		return place
	}
	return cmp.Or(site, t.siteOf(stack))
}
