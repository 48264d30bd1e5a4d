//go:build linux

package record

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/rowwriter"
	"github.com/gpurec/gpurec/record/trigger"
)

// Triggers keep parts of a ring when something happens. Options.Ring must be set.
type Triggers struct {
	Kinds []trigger.Kind
	// Windows replace trigger.DefaultWindows of some kinds.
	Windows    map[trigger.Kind]trigger.Window
	Thresholds trigger.Thresholds
	// PerHour is the largest number of captures in an hour, trigger.DefaultPerHour if it is 0.
	PerHour int
	// Captures is the folder of captures, in the file system of the ring. It must be open until Close.
	Captures *os.Root
	// IsSevereXid says which Xids fire.
	IsSevereXid func(code int64) bool
	// Refuse returns the reason why no capture may begin now, "" if one may. nil: always one may.
	Refuse func() string
	// OnTrigger is called for each event, when it is decided.
	OnTrigger func(format.Trigger)
	// OnCapture is called when the folder of a capture is complete, or with the error of one that failed.
	OnCapture func(t format.Trigger, err error)
}

// TriggerRequest asks for a capture.
type TriggerRequest struct {
	// At is the time of the event; zero: now.
	At time.Time
	// Before and After replace those of trigger.Manual, if they are not 0.
	Before, After time.Duration
	// Job names the job; "": unknown.
	Job string
	// Reason is the evidence.
	Reason string
}

const (
	// triggerInterval is the interval at which captures are ended.
	triggerInterval = 100 * time.Millisecond
	// drainLimit bounds the wait for events before the end of a capture.
	drainLimit = 5 * time.Second
)

// errNotTriggered is the error of Trigger in a recording without triggers, or after its end.
var errNotTriggered = errors.New("the recording has no triggers, or has ended")

// triggerLoop owns the policy and the captures of a Session.
type triggerLoop struct {
	opt      *Triggers
	session  *Session
	rows     *trigger.Rows
	events   chan trigger.Event
	requests chan manualTrigger
	policy   *trigger.Policy
	captures map[string]*rowwriter.Capture // by ID
	sealing  sync.WaitGroup                // captures that the disk completes
	hangs    *trigger.Hangs                // nil: no trigger hang
	losses   *trigger.Losses               // nil: no trigger loss
	refused  map[refusalKey]*refusals

	mu     sync.Mutex
	counts map[string]int64
	byKind map[TriggerKey]int64
	failed int64 // captures that could not be completed
}

// manualTrigger is a request with the channel for its outcome.
type manualTrigger struct {
	TriggerRequest
	answer chan format.Trigger
}

// newTriggerLoop returns nil without Options.Triggers. It must be called before the pipeline is made.
func (s *Session) newTriggerLoop() *triggerLoop {
	opt := s.opt.Triggers
	if opt == nil {
		return nil
	}
	l := &triggerLoop{
		opt: opt, session: s, events: make(chan trigger.Event, 256), requests: make(chan manualTrigger),
		policy: trigger.NewPolicy(opt.Windows, opt.PerHour), captures: make(map[string]*rowwriter.Capture),
		refused: make(map[refusalKey]*refusals), byKind: make(map[TriggerKey]int64),
	}
	l.rows = trigger.NewRows(opt.Kinds, opt.Thresholds, opt.IsSevereXid, l.fire)
	for _, k := range opt.Kinds {
		switch k {
		case trigger.Hang:
			l.hangs = trigger.NewHangs(opt.Thresholds.Hang)
		case trigger.Loss:
			l.losses = trigger.NewLosses(opt.Thresholds.LossInterval, s.clock.NowNs())
		}
	}
	return l
}

// fire passes an event on without blocking. The row writer calls it.
func (l *triggerLoop) fire(e trigger.Event) {
	select {
	case l.events <- e:
	default: // hundreds of events in a moment: they would be merged
	}
}

// Trigger asks for a capture and returns what became of the request. Safe for concurrent use.
func (s *Session) Trigger(r TriggerRequest) (format.Trigger, error) {
	if s.triggers == nil {
		return format.Trigger{}, errNotTriggered
	}
	m := manualTrigger{r, make(chan format.Trigger, 1)}
	select {
	case s.triggers.requests <- m:
		return <-m.answer, nil
	case <-s.stop:
		return format.Trigger{}, errNotTriggered
	}
}

// TriggerKey is a kind of event and its outcome.
type TriggerKey struct{ Kind, Outcome string }

// TriggerCountsByKind returns the number of events when they were decided: a capture that failed later counts as
// captured. The numbers only increase. Safe for concurrent use.
func (s *Session) TriggerCountsByKind() map[TriggerKey]int64 {
	if s.triggers == nil {
		return nil
	}
	s.triggers.mu.Lock()
	defer s.triggers.mu.Unlock()
	return maps.Clone(s.triggers.byKind)
}

// TriggerCounts returns the number of events by outcome. Safe for concurrent use.
func (s *Session) TriggerCounts() map[string]int64 {
	if s.triggers == nil {
		return nil
	}
	s.triggers.mu.Lock()
	defer s.triggers.mu.Unlock()
	counts := maps.Clone(s.triggers.counts)
	if n := s.triggers.failed; n > 0 { // they were counted as captured
		counts[format.TriggerCaptured] -= n
		counts[format.TriggerFailed] += n
	}
	return counts
}

// run decides about events until stop is closed. Then it ends all captures and waits for them.
func (l *triggerLoop) run(stop <-chan struct{}) {
	tick := time.NewTicker(triggerInterval)
	defer tick.Stop()
	var nextHangs time.Time
	for {
		select {
		case e := <-l.events:
			l.decide(e, l.rows.Job(e.Pid))
		case m := <-l.requests:
			m.answer <- l.decideManual(m.TriggerRequest)
		case <-tick.C:
			if l.hangs != nil && time.Now().After(nextHangs) {
				l.findHangs()
				nextHangs = time.Now().Add(l.hangs.Interval())
			}
			l.findLosses()
			l.endDue(l.session.clock.NowNs(), false)
		case <-stop:
			for len(l.events) > 0 {
				e := <-l.events
				l.decide(e, l.rows.Job(e.Pid))
			}
			l.reportRefusals()
			l.endDue(1<<62, true)
			l.sealing.Wait()
			return
		}
	}
}

// decideManual decides about a request.
func (l *triggerLoop) decideManual(r TriggerRequest) format.Trigger {
	now := l.session.clock.NowNs()
	w := trigger.DefaultWindows[trigger.Manual]
	if special, ok := l.opt.Windows[trigger.Manual]; ok {
		w = special
	}
	if r.Before > 0 {
		w.Before = r.Before
	}
	if r.After > 0 {
		w.After = r.After
	}
	e := trigger.Event{Kind: trigger.Manual, AtNs: now, Evidence: r.Reason, Window: &w}
	if !r.At.IsZero() {
		e.AtNs = min(r.At.UnixNano(), now)
	}
	job := r.Job
	if job == "" {
		job = trigger.UnknownJob
	}
	return l.decide(e, job)
}

// decide decides about an event, and begins a capture.
func (l *triggerLoop) decide(e trigger.Event, job string) format.Trigger {
	t, pending := l.policy.Decide(e, job, l.session.clock.NowNs())
	if pending != nil {
		if why := l.refuse(); why != "" {
			t = l.cancel(pending, format.TriggerQuota, why)
		} else if c, err := l.session.pipeline.writer.BeginCapture(l.opt.Captures, &pending.Trigger); err != nil {
			t = l.cancel(pending, format.TriggerFailed, err.Error())
		} else {
			l.captures[t.ID] = c
		}
	}
	if e.Kind == trigger.Hang && t.Outcome != format.TriggerLimited {
		l.takeSnapshot(e.Pid)
	}
	l.report(t)
	return t
}

func (l *triggerLoop) refuse() string {
	if l.opt.Refuse == nil {
		return ""
	}
	return l.opt.Refuse()
}

// cancel takes back a capture that has not begun.
func (l *triggerLoop) cancel(p *trigger.Pending, outcome, why string) format.Trigger {
	l.policy.Cancel(p, outcome)
	t := p.Trigger
	t.ID, t.Outcome, t.Detail = "", outcome, why
	return t
}

// report sends the outcome of an event to its caller. A refused event has a note in the ring.
func (l *triggerLoop) report(t format.Trigger) {
	l.mu.Lock()
	l.counts = l.policy.Counts()
	l.byKind[TriggerKey{t.Kind, t.Outcome}]++
	l.mu.Unlock()
	if t.Outcome == format.TriggerLimited && l.isRepeated(&t) {
		return
	}
	if t.Outcome != format.TriggerCaptured && t.Outcome != format.TriggerMerged {
		l.session.pipeline.writer.AddNote(t.Note())
	}
	if l.opt.OnTrigger != nil {
		l.opt.OnTrigger(t)
	}
}

// refusedInterval is the shortest time between two reports of refused events of one kind and job.
const refusedInterval = time.Minute

// refusals counts refused events of one kind and job since the last report.
type refusals struct {
	reportedNs int64
	since      int64
}

// refusalKey is a kind of trigger and a job. maxRefusalKeys bounds their number.
type refusalKey struct{ kind, job string }

const maxRefusalKeys = 1000

// isRepeated reports whether a refused event is only counted, because one of its kind and job was reported within the
// last minute. Otherwise it adds the number of events that were only counted to the detail.
func (l *triggerLoop) isRepeated(t *format.Trigger) bool {
	key := refusalKey{t.Kind, t.Job}
	r, now := l.refused[key], l.session.clock.NowNs()
	if r == nil {
		if len(l.refused) == maxRefusalKeys {
			l.reportRefusals()
			clear(l.refused)
		}
		r = new(refusals)
		l.refused[key] = r
	}
	if r.reportedNs != 0 && now-r.reportedNs < refusedInterval.Nanoseconds() {
		r.since++
		return true
	}
	if r.since > 0 {
		t.Detail += fmt.Sprintf("; %d more were refused before", r.since)
	}
	r.reportedNs, r.since = now, 0
	return false
}

// reportRefusals writes a note for each kind and job with refused events that were only counted.
func (l *triggerLoop) reportRefusals() {
	now := l.session.clock.NowNs()
	for key, r := range l.refused {
		if r.since == 0 {
			continue
		}
		t := format.Trigger{
			Kind: key.kind, Job: key.job, AtNs: now, Outcome: format.TriggerLimited,
			Evidence: fmt.Sprintf("%d more events of this kind were refused", r.since),
		}
		l.session.pipeline.writer.AddNote(t.Note())
	}
}

// takeSnapshot records the stacks of all threads of a process, and the communicators.
func (l *triggerLoop) takeSnapshot(pid int32) {
	pids := []int{int(pid)}
	if states := l.session.threadStates; states != nil {
		states.TakeNow(pids)
	}
	l.session.census.take(pids)
}

// findHangs fires for calls that do not return.
func (l *triggerLoop) findHangs() {
	calls, err := l.session.readOpenCalls()
	if err != nil {
		return // the next reading may succeed
	}
	for _, e := range l.hangs.Update(calls, l.session.clock.NowNs()) {
		l.decide(e, l.rows.Job(e.Pid))
	}
}

// readOpenCalls returns the calls that have not returned.
func (s *Session) readOpenCalls() ([]trigger.OpenCall, error) {
	open, err := s.probes.OpenCalls()
	if err != nil {
		return nil, err
	}
	calls := make([]trigger.OpenCall, 0, len(open))
	for i := range open {
		_, name, _, ok := bpf.FunctionByCookie(open[i].Call)
		if ok {
			calls = append(calls, trigger.OpenCall{
				Pid: int32(open[i].Pid), Tid: int32(open[i].Tid), Name: name,
				StartNs: s.clock.UnixNs(open[i].StartNs),
			})
		}
	}
	return calls, nil
}

// findLosses fires when the recorder loses calls.
func (l *triggerLoop) findLosses() {
	if l.losses == nil {
		return
	}
	p := l.session.pipeline.writer.Progress()
	if e := l.losses.Update(p.Calls, p.Lost, l.session.clock.NowNs()); e != nil {
		l.decide(*e, trigger.UnknownJob)
	}
}

// endDue ends the captures that end until a time. cut says that they end early, because the recording ends.
func (l *triggerLoop) endDue(untilNs int64, cut bool) {
	for _, p := range l.policy.Due(untilNs) {
		c := l.captures[p.Trigger.ID]
		delete(l.captures, p.Trigger.ID)
		t := p.Trigger
		t.Cut = cut && p.EndNs > l.session.clock.NowNs()
		l.sealing.Add(1)
		l.session.endCapture(c, &t, func(err error) {
			defer l.sealing.Done()
			if err != nil {
				l.mu.Lock()
				l.failed++
				l.mu.Unlock()
			}
			if l.opt.OnCapture != nil {
				l.opt.OnCapture(t, err)
			}
		})
	}
}
