package review

import "time"

const (
	// Share is the share of one processor that reviews may take in the long run.
	Share = 0.1
	// maxCredit is the processor time that unused time saves up for reviews.
	maxCredit = 2 * time.Second
	// firstReview is the age of a recording from which on it is reviewed. Reports need some calls.
	firstReview = 3 * time.Second
	// firstMinute is the age until which it is reviewed as often as with growing memory.
	firstMinute = time.Minute
	// minGap is the time between two reviews for urgent reasons.
	minGap = time.Second
	// growingGap and calmGap are the times between two reviews while memory grows, and otherwise. settlingGap is that
	// while a finding waits for a second look.
	settlingGap = 3 * time.Second
	growingGap  = 5 * time.Second
	calmGap     = 15 * time.Second
)

const (
	// MaxWindow is the longest time that a review looks back. What was allocated before counts as memory from before.
	MaxWindow = 10 * time.Minute
	// maxEvents and maxUrgentEvents bound the events of a review, and of one for an urgent reason.
	maxEvents, maxUrgentEvents = 8e6, 2e6
)

// Pace says when a running recording is reviewed. It is not safe for concurrent use.
type Pace struct {
	begin, last time.Time // last: end of the latest review
	credit      time.Duration
	creditAt    time.Time
	// expected is the processor time of the latest review of everything, urgently that of the latest urgent one.
	expected, urgently time.Duration
	isUrgent           bool
	hasGrown           bool
	hasUnsettled       bool
}

// NewPace returns a Pace for a recording that begins now.
func NewPace(now time.Time) *Pace {
	return &Pace{begin: now, last: now, credit: maxCredit, creditAt: now}
}

// Note adds reasons for a review: an urgent one, and memory that grows.
func (p *Pace) Note(urgent, grown bool) {
	p.isUrgent, p.hasGrown = p.isUrgent || urgent, p.hasGrown || grown
}

// Next reports whether a review begins now, and whether it is for an urgent reason.
func (p *Pace) Next(now time.Time) (due, urgent bool) {
	p.credit = min(maxCredit, p.credit+time.Duration(Share*float64(now.Sub(p.creditAt))))
	p.creditAt = now
	since := now.Sub(p.last)
	if now.Sub(p.begin) < firstReview {
		return false, false
	}
	if p.isUrgent && since >= minGap && p.credit >= min(p.urgently, maxCredit) {
		return true, true
	}
	gap := calmGap
	switch {
	case p.hasUnsettled:
		gap = settlingGap
	case p.hasGrown, now.Sub(p.begin) < firstMinute:
		gap = growingGap
	}
	return since >= gap && p.credit >= min(p.expected, maxCredit), false
}

// Done notes the end of a review that took some processor time. hasUnsettled says that it found something that needs a
// second look.
func (p *Pace) Done(now time.Time, urgent bool, took time.Duration, hasUnsettled bool) {
	p.last, p.hasUnsettled, p.isUrgent = now, hasUnsettled, false
	p.credit -= took
	if urgent {
		p.urgently = took
	} else {
		p.hasGrown, p.expected = false, took
	}
}

// Window returns how far a review looks back, for a recording with a number of events until now.
func (p *Pace) Window(now time.Time, events int64, urgent bool) time.Duration {
	age, most := now.Sub(p.begin), maxEvents
	if urgent {
		most = maxUrgentEvents
	}
	window := min(age+time.Minute, MaxWindow) // everything
	if float64(events) > most {
		window = min(window, time.Duration(float64(age)*most/float64(events)))
	}
	return window
}
