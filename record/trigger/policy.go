package trigger

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/gpurec/gpurec/format"
)

// Limits of captures.
const (
	// DefaultPerHour is the number of captures of a node in an hour. Half of them may be at once.
	DefaultPerHour = 6
	// maxAfter bounds how long a capture waits for later events that are merged into it.
	maxAfter = 5 * time.Minute
	// maxMerged bounds the merged events with a record of their own.
	maxMerged = 32
	// idPeriodMs is the period after which a part of IDs repeats, in ms: 36^5 are 17 hours.
	idPeriodMs = 36 * 36 * 36 * 36 * 36
	// maxSubjects bounds the remembered times of captures.
	maxSubjects = 10_000
)

// Policy decides which events get a capture. It is not safe for concurrent use.
type Policy struct {
	windows map[Kind]Window
	perHour int
	node    *rate.Limiter
	last    map[string]int64 // time of the last capture by kind, job and subject, Unix ns
	first   map[string]bool  // kinds and jobs that had an event
	pending []*Pending
	seq     int
	counts  map[string]int64
}

// Pending is a capture that is not complete yet.
type Pending struct {
	Trigger format.Trigger
	// EndNs is when the capture ends, Unix ns.
	EndNs int64
}

// NewPolicy returns a Policy. Kinds that are missing in windows have DefaultWindows. perHour is the number of captures
// in an hour, DefaultPerHour if it is 0.
func NewPolicy(windows map[Kind]Window, perHour int) *Policy {
	perHour = cmp.Or(perHour, DefaultPerHour)
	p := &Policy{
		windows: make(map[Kind]Window),
		last:    make(map[string]int64),
		first:   make(map[string]bool),
		node: rate.NewLimiter(
			rate.Every(time.Hour/time.Duration(perHour)),
			(perHour+1)/2,
		),
		counts:  make(map[string]int64),
		perHour: perHour,
	}
	for k, w := range DefaultWindows {
		p.windows[k] = w
	}
	for k, w := range windows {
		p.windows[k] = w
	}
	return p
}

// Decide decides about an event of a job. The trigger has the outcome. For a new capture, pending is the capture, with
// an ID that is unique in this second and process. It stays pending until End.
func (p *Policy) Decide(e Event, job string, nowNs int64) (t format.Trigger, pending *Pending) {
	w := p.windows[e.Kind]
	if e.Window != nil {
		w = *e.Window
	}
	t = format.Trigger{
		Kind: string(e.Kind), AtNs: e.AtNs, Pid: e.Pid, Job: job, Evidence: e.Evidence,
		BeforeNs: w.Before.Nanoseconds(), AfterNs: w.After.Nanoseconds(),
	}
	if e.FromNs != 0 {
		t.BeforeNs += e.AtNs - e.FromNs
	}
	t.Outcome, t.Detail = p.admit(e, w, job, nowNs)
	switch t.Outcome {
	case format.TriggerCaptured:
		if into := p.findPending(job, e.Pid); into != nil {
			t.Outcome = format.TriggerMerged
			t.ID = into.Trigger.ID
			into.merge(t)
			break
		}
		p.seq++
		t.ID = fmt.Sprintf("%s-%s-%s%d", time.Unix(0, e.AtNs).UTC().Format("20060102T150405Z"), e.Kind,
			strconv.FormatInt(nowNs/1e6%idPeriodMs, 36), p.seq)
		pending = &Pending{Trigger: t, EndNs: max(nowNs, t.AtNs+t.AfterNs)}
		p.pending = append(p.pending, pending)
	case format.TriggerLimited:
		// An event that would be merged costs nothing, so no limit refuses it.
		if into := p.findPending(job, e.Pid); into != nil {
			t.Outcome, t.Detail, t.ID = format.TriggerMerged, "", into.Trigger.ID
			into.merge(t)
		}
	}
	p.counts[t.Outcome]++
	return t, pending
}

// admit applies the limits.
func (p *Policy) admit(e Event, w Window, job string, nowNs int64) (outcome, detail string) {
	subject := string(e.Kind) + "\x00" + job + "\x00" + e.Subject
	ofJob := string(e.Kind) + "\x00" + job
	isFirst := !p.first[ofJob]
	if len(p.first) < maxSubjects {
		p.first[ofJob] = true
	}
	if last, ok := p.last[subject]; ok && w.Every > 0 && nowNs-last < w.Every.Nanoseconds() {
		return format.TriggerLimited, fmt.Sprintf("at most one %s every %v", e.Kind, w.Every)
	}
	if e.Kind == Loss {
		p.remember(subject, nowNs)
		return format.TriggerNoted, ""
	}
	if p.findPending(job, e.Pid) == nil { // merging costs nothing
		// The first event of some kinds passes, and takes a token if there is one.
		passes := e.Kind == Manual || isFirst && slices.Contains([]Kind{Xid, Sticky, OOM}, e.Kind)
		if !p.node.AllowN(time.Unix(0, nowNs), 1) && !passes {
			return format.TriggerLimited, fmt.Sprintf("at most %d captures an hour", p.perHour)
		}
	}
	p.remember(subject, nowNs)
	return format.TriggerCaptured, ""
}

// remember notes the time of a capture. It forgets all times if there are too many.
func (p *Policy) remember(subject string, nowNs int64) {
	if len(p.last) == maxSubjects {
		clear(p.last)
	}
	p.last[subject] = nowNs
}

// findPending returns the pending capture of a process or of a job, or nil. The job of a process that began a moment
// ago may be unknown for some of its events.
func (p *Policy) findPending(job string, pid int32) *Pending {
	for _, c := range p.pending {
		if c.Trigger.Job == job || pid != 0 && c.Trigger.Pid == pid {
			return c
		}
	}
	return nil
}

// merge adds an event to a capture. It may end later then.
func (p *Pending) merge(t format.Trigger) {
	if len(p.Trigger.Merged) < maxMerged {
		p.Trigger.Merged = append(p.Trigger.Merged, t)
	}
	latest := max(p.EndNs, p.Trigger.AtNs+maxAfter.Nanoseconds())
	p.EndNs = max(p.EndNs, min(t.AtNs+t.AfterNs, latest))
}

// Due removes and returns the captures that end until now, Unix ns.
func (p *Policy) Due(nowNs int64) (due []*Pending) {
	p.pending = slices.DeleteFunc(p.pending, func(c *Pending) bool {
		if c.EndNs > nowNs {
			return false
		}
		due = append(due, c)
		return true
	})
	return due
}

// Cancel takes back a capture that could not begin, and counts it with another outcome.
func (p *Policy) Cancel(c *Pending, outcome string) {
	p.pending = slices.DeleteFunc(p.pending, func(other *Pending) bool { return other == c })
	p.counts[c.Trigger.Outcome]--
	p.counts[outcome]++
}

// Counts returns the number of events by outcome.
func (p *Policy) Counts() map[string]int64 {
	counts := make(map[string]int64)
	for outcome, n := range p.counts {
		counts[outcome] = n
	}
	return counts
}
