package clocks

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/format"
)

// Sources of job.Offset.
const (
	SourceSameHost    = "same host"
	SourceNTP         = "ntp"
	SourceCollectives = "collectives"
	SourceUnknown     = "unknown"
)

// maxDriftPPM bounds the difference between the rates of two clocks: crystals differ by less than 100 ppm each.
// While a program slews a clock by more, the bounds do not hold.
const maxDriftPPM = 200

// maxNTPErrorNs is the error from which on the kernel counts a clock as not synchronized: NTP_PHASE_LIMIT, 16 s.
const maxNTPErrorNs = 16_000_000_000

// Clocks has the bounds of the differences between the clocks of a job's hosts at the end of the job. The zero value
// knows no difference.
type Clocks struct {
	hosts []job.Host
	ntp   *Bounds // by NTP only
	all   *Bounds // closed, by NTP and collectives, without hosts that are wrong
	wrong []bool  // by host: its bounds contradict others
}

// newClocks returns the Clocks of bounds by NTP and bounds by collectives.
func newClocks(hosts []job.Host, ntp, collectives *Bounds) *Clocks {
	c := &Clocks{hosts: hosts, ntp: ntp, wrong: make([]bool, len(hosts))}
	given := ntp.clone()
	for i, ns := range collectives.max {
		given.max[i] = min(given.max[i], ns)
	}
	for {
		c.all = given.clone()
		c.all.close()
		hosts := c.all.contradictory()
		if len(hosts) == 0 {
			return c
		}
		for _, host := range hosts { // what follows from wrong bounds is wrong too
			c.wrong[host] = true
			given.remove(host)
		}
	}
}

// Offset bounds the difference between the clocks of two hosts, indexes in Job.Hosts.
func (c *Clocks) Offset(from, to int) job.Offset {
	if from == to {
		return job.Offset{Source: SourceSameHost}
	}
	if c.all == nil || c.wrong[from] || c.wrong[to] {
		return job.Offset{Source: SourceUnknown}
	}
	low, high, ok := c.all.interval(from, to)
	if !ok {
		return job.Offset{Source: SourceUnknown}
	}
	o := job.Offset{LowNs: low, HighNs: high, Source: SourceCollectives}
	if l, h, ok := c.ntp.throughUTC(from, to); ok && l == low && h == high {
		o.Source = SourceNTP
	}
	return o
}

// Problem says which clocks contradict each other, and "" if none do.
func (c *Clocks) Problem() string {
	const most = 4
	var names []string
	more := 0
	for host, wrong := range c.wrong {
		switch {
		case wrong && len(names) < most:
			names = append(names, c.hosts[host].Name)
		case wrong:
			more++
		}
	}
	if len(names) == 0 {
		return ""
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "the bounds of their clocks contradict each other (" + text +
		"): a clock stepped, or numbers of operations do not fit"
}

// driftNs returns the largest change of the difference between two clocks in a time, ns.
func driftNs(ns int64) int64 { return (max(ns, -ns)/1_000_000 + 1) * maxDriftPPM }

// addNTP adds the bounds that the snapshots of a recording's clocks give. The clock of the recording is ahead of the
// clock of its host by shiftNs. endNs is the time, on the clock of the recording, for which the bounds hold.
//
// A snapshot has the time of the recording's clock and CLOCK_REALTIME at the same moment, and the error of
// CLOCK_REALTIME that the synchronizing program states. The bound is as right as that statement.
func addNTP(b *Bounds, host int, meta *format.Meta, shiftNs, endNs int64) {
	for i := range meta.Clocks {
		s := &meta.Clocks[i]
		if s.Sync == nil || !s.Sync.Synchronized || s.Sync.MaxErrorNs < 0 || s.Sync.MaxErrorNs >= maxNTPErrorNs {
			continue
		}
		at := s.MonotonicNs + meta.ClockOffsetNs
		ahead := at - shiftNs - s.RealtimeNs
		errorNs := s.Sync.MaxErrorNs + s.UncertainNs + driftNs(endNs-at)
		b.Add(b.utc(), host, ahead+errorNs)
		b.Add(host, b.utc(), errorNs-ahead)
	}
}
