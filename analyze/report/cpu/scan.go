package cpu

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// waitSum sums up waits. Times are in ns.
type waitSum struct {
	count, open                int64
	ns, queueNs, longestNs     int64
	stackNs, uninterruptibleNs int64 // parts of ns with a stack, and in waits that a signal does not end
	reasonNs                   int64 // part of ns with a known reason
	longest                    hosttime.Wait
	longestStack               int32 // stack of the longest wait that has one
	longestStackNs             int64
}

// add adds a wait.
func (s *waitSum) add(w *hosttime.Wait, hasStack bool) {
	ns := w.ToNs - w.FromNs
	s.count++
	s.ns = units.EndOfRange(s.ns, ns)
	s.queueNs = units.EndOfRange(s.queueNs, w.QueuedNs)
	if w.IsOpen {
		s.open++
	}
	if w.State == format.StateUninterruptible {
		s.uninterruptibleNs += ns
	}
	if w.Fact.Reason != "" {
		s.reasonNs += ns
	}
	if s.count == 1 || ns > s.longestNs {
		s.longest, s.longestNs = *w, ns
	}
	if hasStack {
		s.stackNs += ns
		if s.longestStack == 0 || ns > s.longestStackNs {
			s.longestStack, s.longestStackNs = w.Stack, ns
		}
	}
}

// waitKey identifies the waits of a row of the table of waits.
type waitKey struct{ reason, call, site string }

// lineKey identifies the CPU samples of a row of the table of lines.
type lineKey struct{ function, site string }

// sampleSum sums up CPU samples.
type sampleSum struct {
	count, ns int64
	squares   float64 // sum of the squares of the time that each sample represents, ns²
	stacks    map[int32]int64
}

// add adds a CPU sample.
func (s *sampleSum) add(p *hosttime.CPUSample) {
	s.count++
	s.ns = units.EndOfRange(s.ns, p.ForNs)
	s.squares += float64(p.ForNs) * float64(p.ForNs)
	if s.stacks == nil {
		s.stacks = make(map[int32]int64)
	}
	s.stacks[p.Stack]++
}

// errorNs returns the standard error of the CPU time: the samples are independent of what the thread does.
func (s *sampleSum) errorNs() int64 { return units.RoundInt(math.Sqrt(s.squares)) }

// mostFrequentStack returns the stack of most samples.
func (s *sampleSum) mostFrequentStack() (stack int32) {
	most := int64(-1)
	for id, n := range s.stacks {
		if n > most || n == most && id < stack {
			stack, most = id, n
		}
	}
	return stack
}

// pauseKey identifies the garbage collections of a row.
type pauseKey struct {
	pid, generation int32
}

// pauseSum sums up pauses for garbage collections.
type pauseSum struct {
	count, ns, longestNs, uncertaintyNs int64
}

// threadTime sums up the rows of a thread, apart from its metrics.
type threadTime struct {
	waits    waitSum
	samples  sampleSum
	launches int64
}

// scan sums up rows of class host that pass the filter.
type scan struct {
	t         *timeline.Timeline
	selection *hosttime.Selection
	window    query.Window

	threads map[origin.Thread]*threadTime
	all     waitSum
	reasons map[string]*waitSum
	waits   map[waitKey]*waitSum
	chains  *waitChains // nil if the recording does not say who ended waits
	samples sampleSum
	lines   map[lineKey]*sampleSum
	pauses  map[pauseKey]*pauseSum
	metrics metrics
	sites   map[int32]string // by stack
}

// newScan returns a scan of all rows of class host.
func newScan(t *timeline.Timeline, f *query.Filter) (*scan, error) {
	s := &scan{
		t: t, selection: hosttime.NewSelection(t, f),
		threads: make(map[origin.Thread]*threadTime),
		reasons: make(map[string]*waitSum),
		waits:   make(map[waitKey]*waitSum),
		lines:   make(map[lineKey]*sampleSum),
		pauses:  make(map[pauseKey]*pauseSum),
		sites:   make(map[int32]string),
	}
	s.window = s.selection.Window
	var err error
	if s.chains, err = newWaitChains(s); err != nil {
		return nil, err
	}
	samples := make(metricSamples)
	if err := s.selection.Each(t, hosttime.Yield{
		Wait: s.addWait, Sample: s.addSample, Pause: s.addPause, Metric: samples.add,
	}); err != nil {
		return nil, err
	}
	s.metrics = samples.sumUp(s.window)
	for th := range s.metrics.threads {
		s.threadOf(th)
	}
	return s, s.countLaunches()
}

// threadOf returns the sums of a thread, and adds them if there are none.
func (s *scan) threadOf(th origin.Thread) *threadTime {
	of := s.threads[th]
	if of == nil {
		of = new(threadTime)
		s.threads[th] = of
	}
	return of
}

// addWait adds a wait.
func (s *scan) addWait(w *hosttime.Wait) {
	hasStack := len(s.t.Stacks.Stacks[w.Stack]) > 0
	reason := cmp.Or(w.Fact.Reason, reasonUnknown)
	key := waitKey{reason, cmp.Or(w.Fact.CUDACall, w.Fact.SystemCall), s.siteOf(w.Stack)}
	for _, sum := range []*waitSum{
		&s.all, &s.threadOf(w.Thread).waits, entryOf(s.reasons, reason), entryOf(s.waits, key),
	} {
		sum.add(w, hasStack)
	}
	s.chains.add(s, key, w)
}

// reasonUnknown is the text for waits without a reason.
const reasonUnknown = "unknown"

// entryOf returns the value of a key, and adds one if there is none.
func entryOf[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

// addSample adds a CPU sample.
func (s *scan) addSample(p *hosttime.CPUSample) {
	key := lineKey{"", s.siteOf(p.Stack)}
	if ids := s.t.Stacks.Stacks[p.Stack]; len(ids) > 0 {
		key.function = query.FrameName(&s.t.Stacks.Frames[ids[0]])
	}
	for _, sum := range []*sampleSum{&s.samples, &s.threadOf(p.Thread).samples, entryOf(s.lines, key)} {
		sum.add(p)
	}
}

// addPause adds a garbage collection.
func (s *scan) addPause(p *hosttime.Pause) {
	ns := p.ToNs - p.FromNs
	sum := entryOf(s.pauses, pauseKey{p.Pid, max(-1, p.Generation)})
	sum.count++
	sum.ns = units.EndOfRange(sum.ns, ns)
	sum.longestNs = max(sum.longestNs, ns)
	sum.uncertaintyNs = units.EndOfRange(sum.uncertaintyNs, 2*min(p.UncertainNs, math.MaxInt64/2))
}

// siteOf returns the innermost line of the program's own code.
func (s *scan) siteOf(stack int32) string {
	site, ok := s.sites[stack]
	if !ok {
		site = timeline.NoStackSite
		if f, ok := s.t.Stacks.HostLine(stack); ok {
			site = symbolize.NameWithLine(query.FrameName(f), f.File, f.Line)
		}
		s.sites[stack] = site
	}
	return site
}

// countLaunches counts the recorded launches of threads that have rows of class host.
func (s *scan) countLaunches() error {
	var start []int64
	var pid, tid []int32
	for _, span := range s.t.Calls {
		g := span.Group
		if !slices.Contains(g.Kinds(), format.KindLaunch) {
			continue
		}
		kind := g.Strings("kind")
		start, pid, tid = g.Int64("start_ns", start), g.Int32("pid", pid), g.Int32("tid", tid)
		if err := g.Err(); err != nil {
			return s.t.WrapReadError(err)
		}
		for i, at := range start {
			if at < s.window.FromNs || at > s.window.ToNs || kind.At(i) != format.KindLaunch {
				continue
			}
			if th := s.threads[origin.Thread{Pid: pid[i], Tid: tid[i]}]; th != nil {
				th.launches++
			}
		}
	}
	return nil
}
