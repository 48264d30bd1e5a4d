package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/straggler"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/analyze/units"
)

var stragglerRule = Rule{
	ID: "straggler",
	About: "the other ranks wait for a rank whose own time exceeds theirs by more than 2% of the step, and by more " +
		"than chance allows. The own time is the step without its waits. Without recorded collectives, this holds " +
		"for ranks of one recording that launch the same kernels and keep pace",
	Report: "ranks",
	advice: "Make the late rank as fast as the others: look at its host, its GPU and its share of the work. The " +
		"other ranks only wait.",
	check:    checkStraggler,
	needsJob: true,
}

const (
	// smallCollectiveBytes is the size below which the latency of a collective exceeds the time of its transfer: 20 µs
	// at 3 GB/s, a slow network.
	smallCollectiveBytes = 64 << 10
	// minSmallCollectives is the smallest number of small collectives of a rank that rules report.
	minSmallCollectives = 1000
	// minSmallPerSecond is their smallest number a second. Fewer cost little.
	minSmallPerSecond = 200.0
)

var smallCollectivesRule = Rule{
	ID: "small-collectives",
	About: "a rank calls at least 1,000 collectives of less than 64 KiB, and at least 200 a second. These calls " +
		"take at least 1% of the time between the first and the last",
	Report: "ranks",
	advice: "Combine small collectives: larger buckets, one tensor for several values, or ncclGroupStart around " +
		"them. Reduce metrics once in many steps.",
	check:      checkSmallCollectives,
	needsRanks: true,
}

const (
	// minUnevenPct is the smallest excess of a rank's peak over the median of the ranks, %, that rules report.
	minUnevenPct = 20.0
	// minUnevenBytes is the smallest excess in bytes. Less is seldom the reason of a failed allocation.
	minUnevenBytes = 256 << 20
)

var unevenMemoryRule = Rule{
	ID: "uneven-memory",
	About: "the peak of live memory of a rank exceeds the median of the recorded ranks by at least 20% and 256 MiB. " +
		"The recording has at least three ranks",
	Report: "memory",
	advice: "Move work from this rank, because its GPU runs out of memory first. Look for uneven layers or experts, " +
		"and for results that one rank gathers.",
	check:      checkUnevenMemory,
	needsRanks: true,
}

func checkStraggler(s *Scan) (hits []Hit, err error) {
	found, err := ranks.FindIn(s.t, query.Options{Filter: *s.filter})
	if err != nil {
		return nil, err
	}
	for i := range found.Verdicts {
		v := &found.Verdicts[i]
		m := &found.Job.Members[v.Series]
		h := s.newHit(SeverityNotice, "rank %s is late by %s a step, %.0f%% of the step; %s", m.Label,
			units.FormatDuration(units.RoundInt(v.LateNs)), 100*v.Share, whoWaits(found.Job, v.Series))
		if v.Basis == straggler.BasisHost {
			h.lowerConfidence(report.ConfidenceMedium, "host times only")
		}
		if v.Because != "" {
			h.Summary += "; " + v.Because
		}
		h.sharePct, h.pid = 100*v.Share, m.Pid
		steps := int64(v.ToStep - v.FromStep)
		h.Evidence = []Evidence{{
			Where: rankName(m), Count: steps, Ns: units.RoundInt(v.LateNs * float64(steps)), FirstNs: v.FromNs,
			lastNs: v.ToNs, Detail: cmp.Or(v.Because, v.Why),
		}}
		hits = append(hits, h)
	}
	return hits, nil
}

// hasJob reports whether a recording has operations of ranks, or two processes whose rank is known.
func hasJob(t *timeline.Timeline) bool {
	ranks := 0
	for pid := range t.Facts.Processes {
		if t.Facts.RankText(pid) != "" {
			ranks++
		}
	}
	return ranks > 1 || collective.HasRows(t)
}

// whoWaits says which ranks wait for a late one, a member of the job.
func whoWaits(j *job.Job, late int) string {
	if len(j.Members) == 2 {
		return fmt.Sprintf("rank %s waits for it", j.Members[1-late].Label)
	}
	return "the others wait for it"
}

// rankName names a rank in evidence.
func rankName(m *job.Member) string {
	if m.Rank == job.UnknownRank {
		return m.Label
	}
	return fmt.Sprintf("rank %s (pid %d)", m.Label, m.Pid)
}

// smallCalls sums up small collectives of a rank, or of a call site on all ranks.
type smallCalls struct {
	pid, stack               int32
	count, bytes, ns         int64
	firstNs, lastNs, untilNs int64
}

// add adds a call.
func (c *smallCalls) add(o *collective.Operation) {
	if c.count == 0 {
		c.stack, c.firstNs = o.Stack, o.StartNs
	}
	c.count, c.bytes, c.ns = c.count+1, c.bytes+o.Bytes, c.ns+o.DurNs
	c.lastNs, c.untilNs = o.StartNs, max(c.untilNs, o.StartNs+o.DurNs)
}

// sharePct returns the share of the time from the first to the last call that the calls take, 0 to 100.
func (c *smallCalls) sharePct() float64 { return units.Percent(c.ns, c.untilNs-c.firstNs) }

// isMany reports whether a rank makes enough small calls for a hit.
func (c *smallCalls) isMany() bool {
	seconds := float64(c.untilNs-c.firstNs) / 1e9
	return c.count >= minSmallCollectives && float64(c.count) >= minSmallPerSecond*seconds &&
		c.sharePct() >= minTimeSharePct
}

func checkSmallCollectives(s *Scan) ([]Hit, error) {
	all, err := collective.Read(s.t, query.Options{Filter: *s.filter})
	if err != nil {
		return nil, err
	}
	byPid, bySite := make(map[int32]*smallCalls), make(map[string]*smallCalls)
	for i := range all.Operations {
		o := &all.Operations[i]
		if o.Bytes >= smallCollectiveBytes || !o.Function.IsCollective() || o.IsOpen {
			continue
		}
		pid, site := all.Communicators[o.Communicator].Pid, s.t.SiteOfStack(o.Stack)
		if byPid[pid] == nil {
			byPid[pid] = &smallCalls{pid: pid}
		}
		if bySite[site] == nil {
			bySite[site] = new(smallCalls)
		}
		byPid[pid].add(o)
		bySite[site].add(o)
	}
	var most *smallCalls
	many := 0
	for _, c := range byPid {
		if !c.isMany() {
			continue
		}
		many++
		if most == nil || cmp.Or(cmp.Compare(c.ns, most.ns), cmp.Compare(most.pid, c.pid)) > 0 {
			most = c
		}
	}
	if most == nil {
		return nil, nil
	}
	h := s.newHit(
		SeverityNotice,
		"%s of less than 64 KiB on each of %s, %s together; the calls take %.1f%% of the time",
		units.CountWithNoun(most.count, "collective"),
		units.CountWithNoun(int64(many), "rank"),
		units.FormatBytes(most.bytes),
		most.sharePct(),
	)
	h.Evidence = smallEvidence(bySite)
	return []Hit{h}, nil
}

// smallEvidence returns the call sites with the most time.
func smallEvidence(bySite map[string]*smallCalls) (list []Evidence) {
	for site, c := range bySite {
		list = append(list, Evidence{
			Where: cmp.Or(
				site,
				"unknown line",
			),
			Stack:   c.stack,
			Count:   c.count,
			Ns:      c.ns,
			Bytes:   c.bytes,
			FirstNs: c.firstNs,
			lastNs:  c.lastNs,
			Detail:  "mean size " + units.FormatBytes(c.bytes/c.count) + ", time of the calls of all ranks",
		})
	}
	sortEvidence(list)
	return list[:min(len(list), maxCauses)]
}

// peakScan finds the peak of live memory of each process.
type peakScan struct {
	live, peak map[int32]int64
	peakNs     map[int32]int64
}

// newPeakScan returns a scan, or nil for a recording without operations of ranks.
func newPeakScan(t *timeline.Timeline) *peakScan {
	if !collective.HasRows(t) {
		return nil
	}
	return &peakScan{make(map[int32]int64), make(map[int32]int64), make(map[int32]int64)}
}

// consumeChange adds a change of the program's memory on GPUs.
func (p *peakScan) consumeChange(m *timeline.ProgramMemory, c *livemem.Change) {
	if p == nil || c.Kind == livemem.ChangeAllocFailed || c.Block.Origin == origin.NoOrigin ||
		m.T.IsHostOrigin(c.Block.Origin) {
		return
	}
	pid := m.T.Origins.List[c.Block.Origin].Pid
	if c.Kind != livemem.ChangeAllocated {
		p.live[pid] -= c.Block.Bytes
		return
	}
	p.live[pid] += c.Block.Bytes
	if p.live[pid] > p.peak[pid] {
		p.peak[pid], p.peakNs[pid] = p.live[pid], max(c.AtNs, m.T.RecordingWindow().FromNs)
	}
}

func checkUnevenMemory(s *Scan) ([]Hit, error) {
	j, err := job.Of(s.t)
	if err != nil || s.peaks == nil {
		return nil, err
	}
	var values []int64
	for i := range j.Members {
		values = append(values, s.peaks.peak[j.Members[i].Pid])
	}
	const leastRanks = 3
	if len(values) < leastRanks {
		return nil, nil
	}
	slices.Sort(values)
	usual := values[(len(values)-1)/2]
	var list []Evidence
	for i := range j.Members {
		m := &j.Members[i]
		peak := s.peaks.peak[m.Pid]
		if more := peak - usual; usual > 0 && more >= minUnevenBytes &&
			float64(more) >= minUnevenPct/100*float64(usual) {
			list = append(list, Evidence{
				Where:   rankName(m),
				Bytes:   peak,
				FirstNs: s.peaks.peakNs[m.Pid],
				Detail: fmt.Sprintf(
					"%s more than the median of the ranks, %s",
					units.FormatBytes(more),
					units.FormatBytes(usual),
				),
			})
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(list, func(a, b Evidence) int { return report.CompareCells(a.Bytes, b.Bytes) })
	h := s.newHit(SeverityInfo, "the memory of %s differs: %s has %s at its peak, the median is %s",
		units.CountWithNoun(int64(len(values)), "rank"), list[0].Where, units.FormatBytes(list[0].Bytes.(int64)),
		units.FormatBytes(usual))
	h.Evidence = list[:min(len(list), maxRankEvidence)]
	return []Hit{h}, nil
}
