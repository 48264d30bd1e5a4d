package trigger

import (
	"fmt"
	"time"
)

// OpenCall is a call that has not returned.
type OpenCall struct {
	Pid, Tid int32
	Name     string
	StartNs  int64 // Unix ns
}

// Hangs finds calls that do not return. It is not safe for concurrent use.
type Hangs struct {
	limit time.Duration
	fired map[OpenCall]bool
}

// NewHangs returns a Hangs for calls that are open longer than limit.
func NewHangs(limit time.Duration) *Hangs {
	return &Hangs{limit: limit, fired: make(map[OpenCall]bool)}
}

// Interval returns the time between two calls of Update that finds hangs with an error of a tenth of the limit.
func (h *Hangs) Interval() time.Duration {
	return min(10*time.Second, max(100*time.Millisecond, h.limit/10))
}

// Update takes all open calls at a time, Unix ns. It returns one event for each process with a call that has been
// open for longer than the limit, the oldest one. It returns no event for a call that it has returned before.
func (h *Hangs) Update(open []OpenCall, nowNs int64) (events []Event) {
	oldest, counts := make(map[int32]OpenCall), make(map[int32]int)
	still := make(map[OpenCall]bool)
	for _, c := range open {
		if nowNs-c.StartNs < h.limit.Nanoseconds() {
			continue
		}
		still[c] = h.fired[c]
		counts[c.Pid]++
		if first, ok := oldest[c.Pid]; !ok || c.StartNs < first.StartNs {
			oldest[c.Pid] = c
		}
	}
	for pid, c := range oldest {
		if still[c] {
			continue
		}
		text := fmt.Sprintf("%s of thread %d has not returned for %v", c.Name, c.Tid,
			time.Duration(nowNs-c.StartNs).Round(100*time.Millisecond))
		if n := counts[pid] - 1; n > 0 {
			text += fmt.Sprintf("; %d more calls of the process hang", n)
		}
		events = append(events, Event{Kind: Hang, AtNs: nowNs, FromNs: c.StartNs, Pid: pid, Evidence: text})
	}
	for c := range still {
		still[c] = true
	}
	h.fired = still
	return events
}

// Losses finds times in which the recorder loses calls.
type Losses struct {
	interval       time.Duration
	sinceNs        int64
	recorded, lost int64 // at sinceNs
}

// maxLostPct is the share of lost calls above which an event fires.
const maxLostPct = 1

// NewLosses returns a Losses that computes the share of lost calls over an interval.
func NewLosses(interval time.Duration, nowNs int64) *Losses {
	return &Losses{interval: interval, sinceNs: nowNs}
}

// Update takes the calls that were recorded and lost so far. It returns an event, or nil.
func (l *Losses) Update(recorded, lost, nowNs int64) *Event {
	if nowNs-l.sinceNs < l.interval.Nanoseconds() {
		return nil
	}
	newRecorded, newLost := recorded-l.recorded, lost-l.lost
	since := l.sinceNs
	l.recorded, l.lost, l.sinceNs = recorded, lost, nowNs
	if newLost*100 <= maxLostPct*(newRecorded+newLost) {
		return nil
	}
	return &Event{
		Kind: Loss, AtNs: nowNs, FromNs: since,
		Evidence: fmt.Sprintf("the recorder lost %d of %d calls in %v", newLost, newRecorded+newLost,
			time.Duration(nowNs-since).Round(time.Second)),
	}
}
