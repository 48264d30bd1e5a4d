package hosttime

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// maxLoadedGroups is the number of row groups that a History keeps in memory. A group has at most 131,072
// rows.
const maxLoadedGroups = 8

// History explains how threads spent their time. It reads those row groups that a question needs, and keeps
// a few of them, so questions about neighboring times should follow each other. It is not safe for
// concurrent use.
type History struct {
	t      *timeline.Timeline
	index  *index
	reader groupReader
	loaded []*loadedGroup // the one used last comes first
	views  map[origin.Thread]*threadView
	parts  Parts // memory of the last answer
	chain  chain // from the thread that is explained to the one that is looked at
	steps  int   // waits that were looked at for the wait of the thread that is explained
	err    error // the first error of reading
}

// loadedGroup has the rows of a row group by thread.
type loadedGroup struct {
	group   int
	threads map[origin.Thread]*threadRows
}

// threadRows are the rows of a thread in a row group, in order of time.
type threadRows struct {
	waits             []Wait
	samples           []CPUSample
	running, runnable []point // counters HostRunning and HostRunnable
	// wait and sample are the results of the last searches. Questions follow each other in time.
	wait, sample int
}

// firstWait returns the index of the first wait that begins at or after a time.
func (t *threadRows) firstWait(ns int64) int {
	t.wait = searchNear(t.wait, len(t.waits), func(i int) bool { return t.waits[i].FromNs >= ns })
	return t.wait
}

// firstSample returns the index of the first sample at or after a time.
func (t *threadRows) firstSample(ns int64) int {
	t.sample = searchNear(t.sample, len(t.samples), func(i int) bool { return t.samples[i].AtNs >= ns })
	return t.sample
}

// searchNear is sort.Search, and fast if the result is near a guess.
func searchNear(guess, n int, is func(int) bool) int {
	const near = 4
	if guess == 0 || !is(guess-1) {
		for i := guess; i < min(n, guess+near); i++ {
			if is(i) {
				return i
			}
		}
	}
	return sort.Search(n, is)
}

// Of returns the History of a recording. Without rows of class host it explains nothing: see HasRows.
// It returns errors of reading the recording.
func Of(t *timeline.Timeline) (*History, error) {
	t = t.NewView()
	x, err := indexOf(t)
	if err != nil {
		return nil, err
	}
	return &History{t: t, index: x, views: make(map[origin.Thread]*threadView)}, nil
}

// Err returns the first error of reading the recording. Answers after it are unknown.
func (h *History) Err() error { return h.t.WrapReadError(h.err) }

// Knows reports whether a thread has any rows.
func (h *History) Knows(pid, tid int32) bool {
	return len(h.index.threads[origin.Thread{Pid: pid, Tid: tid}]) > 0
}

// CPULimit returns the CPU limit of a cgroup of a process, in processors; 0: unknown.
func (h *History) CPULimit(pid int32, cgroup string) float64 { return h.index.limits[pid][cgroup] }

// threadView has the rows of a thread around a span.
type threadView struct {
	fromNs, toNs int64
	groups       []*threadRows // in order of time
	counters     *counters     // of the last span; nil: none yet
}

// aroundNs is the time before and after a span whose rows a question may need. Counters are read about once a
// second.
const aroundNs = 2_500_000_000

// viewOf returns the rows of a thread that may lie in a span or within aroundNs of it.
func (h *History) viewOf(th origin.Thread, fromNs, toNs int64) *threadView {
	v := h.views[th]
	if v == nil {
		v = new(threadView)
		h.views[th] = v
	}
	if v.fromNs <= fromNs-aroundNs && toNs+aroundNs <= v.toNs {
		return v
	}
	const aheadNs = 20_000_000_000 // for the questions that follow
	*v = threadView{fromNs: fromNs - aroundNs, toNs: toNs + aroundNs + aheadNs, groups: v.groups[:0]}
	for _, s := range h.index.threads[th] {
		if s.toNs < v.fromNs || s.fromNs > v.toNs {
			continue
		}
		if g := h.load(s.group); g != nil && g.threads[th] != nil {
			v.groups = append(v.groups, g.threads[th])
		}
	}
	return v
}

// load returns a row group; nil after an error.
func (h *History) load(group int) *loadedGroup {
	if i := slices.IndexFunc(h.loaded, func(g *loadedGroup) bool { return g.group == group }); i >= 0 {
		g := h.loaded[i]
		copy(h.loaded[1:i+1], h.loaded[:i])
		h.loaded[0] = g
		return g
	}
	rows, err := h.reader.read(h.t.Host[group])
	if err != nil {
		h.err = cmp.Or(h.err, err)
		return nil
	}
	g := byThread(group, rows)
	if len(h.loaded) == maxLoadedGroups {
		h.loaded = h.loaded[:maxLoadedGroups-1]
	}
	h.loaded = slices.Insert(h.loaded, 0, g)
	return g
}

// byThread copies rows, and sorts them by thread and time.
func byThread(group int, rows *Rows) *loadedGroup {
	g := &loadedGroup{group: group, threads: make(map[origin.Thread]*threadRows)}
	of := func(th origin.Thread) *threadRows {
		t := g.threads[th]
		if t == nil {
			t = new(threadRows)
			g.threads[th] = t
		}
		return t
	}
	for _, w := range rows.Waits {
		t := of(w.Thread)
		t.waits = append(t.waits, w)
	}
	for _, s := range rows.Samples {
		t := of(s.Thread)
		t.samples = append(t.samples, s)
	}
	for i := range rows.Metrics {
		m := &rows.Metrics[i]
		switch {
		case m.Tid != 0 && m.Name == format.HostRunning:
			t := of(m.Thread)
			t.running = append(t.running, point{m.AtNs, m.Value})
		case m.Tid != 0 && m.Name == format.HostRunnable:
			t := of(m.Thread)
			t.runnable = append(t.runnable, point{m.AtNs, m.Value})
		}
	}
	for _, t := range g.threads {
		timeline.SortNearlySorted(t.waits, func(a, b *Wait) bool { return a.FromNs < b.FromNs })
		timeline.SortNearlySorted(t.samples, func(a, b *CPUSample) bool { return a.AtNs < b.AtNs })
		sortPoints(t.running)
		sortPoints(t.runnable)
	}
	return g
}

// eachWait calls yield for the waits of the thread that overlap a span, in order of time.
func (v *threadView) eachWait(fromNs, toNs int64, yield func(*Wait)) {
	for _, g := range v.groups {
		// Waits of a thread follow each other, so the one before the first that starts in the span may overlap it.
		i := g.firstWait(fromNs)
		for i = max(0, i-1); i < len(g.waits) && g.waits[i].FromNs < toNs; i++ {
			if g.waits[i].ToNs > fromNs {
				yield(&g.waits[i])
			}
		}
	}
}

// eachSample calls yield for the samples of the thread in a span.
func (v *threadView) eachSample(fromNs, toNs int64, yield func(*CPUSample)) {
	for _, g := range v.groups {
		i := g.firstSample(fromNs)
		for ; i < len(g.samples) && g.samples[i].AtNs < toNs; i++ {
			yield(&g.samples[i])
		}
	}
}

// countSamples returns the number of samples of the thread in a span.
func (v *threadView) countSamples(fromNs, toNs int64) (n int64) {
	v.eachSample(fromNs, toNs, func(*CPUSample) { n++ })
	return n
}

// waitNs returns how much of a span is in waits, and how much of that in run queues.
func (v *threadView) waitNs(fromNs, toNs int64) (waits, queued int64) {
	v.eachWait(fromNs, toNs, func(w *Wait) {
		waits += min(w.ToNs, toNs) - max(w.FromNs, fromNs)
		queued += max(0, min(w.ToNs, toNs)-max(w.queuedFromNs(), fromNs))
	})
	return waits, queued
}

// queuedFromNs returns when the thread came to a run queue.
func (w *Wait) queuedFromNs() int64 {
	if w.State == format.StateRunnable {
		return w.FromNs
	}
	return w.ToNs - w.QueuedNs
}
