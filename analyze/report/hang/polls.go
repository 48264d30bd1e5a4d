package hang

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// pollCounts are the counts of queries (cuStreamQuery, cuEventQuery), which are counted for all
// processes together instead of recorded one by one.
type pollCounts struct {
	rows   []pollRow
	perSec float64 // queries a second in the later half of the silent time
	// by are the processes that may have made these queries. suspects are, of each of them, the
	// thread that was last seen.
	by       map[int32]bool
	suspects map[int32]*threadLife
}

// pollRow is the counts of one function.
type pollRow struct {
	name          string
	total         float64 // in the window
	before, since float64 // queries a second before the silent time, and in its later half
	overTime      [pollParts]float64
	silentForNs   int64
}

// pollParts is the number of parts of the window for which queries are shown.
const pollParts = 40

// ReadPolls reads the counts of queries, and finds who can have made them: processes that are
// silent and in no call.
func (s *Scan) ReadPolls() (*pollCounts, error) {
	p := &pollCounts{by: make(map[int32]bool), suspects: make(map[int32]*threadLife)}
	silentFrom := s.Window.FromNs
	for pid, life := range s.Processes {
		if exitNs := s.T.Facts.Processes[pid].ExitNs; exitNs > 0 && exitNs <= s.EndNs {
			continue
		}
		silentFrom = max(silentFrom, life.lastNs)
		inCall := slices.ContainsFunc(life.threads, func(l *threadLife) bool { return len(l.open) > 0 })
		if s.EndNs-life.lastNs-s.T.GapNs(life.lastNs, s.EndNs) < s.longNs || inCall {
			continue
		}
		p.by[pid] = true
		p.suspects[pid] = slices.MaxFunc(life.threads, func(a, b *threadLife) int {
			return cmp.Or(cmp.Compare(a.LastNs, b.LastNs), cmp.Compare(b.Tid, a.Tid))
		})
	}
	err := s.readCounts(p, silentFrom)
	for i := range p.rows {
		p.perSec += p.rows[i].since
	}
	if s.EndNs-silentFrom < s.longNs || p.perSec < pollsPerSecond {
		clear(p.by)
	}
	return p, err
}

// readCounts reads the counts. silentFrom is when the silent time began, Unix ns.
func (s *Scan) readCounts(p *pollCounts, silentFrom int64) error {
	index := make(map[string]int)
	for _, g := range s.T.Rec.Groups() {
		if g.Class() != format.ClassSample || !slices.Contains(g.Kinds(), format.KindCount) {
			continue
		}
		kind, name := g.Strings("kind"), g.Strings("name")
		start, dur, value := g.Int64("start_ns", nil), g.Int64("dur_ns", nil), g.Float64("value", nil)
		if err := g.Err(); err != nil {
			return s.T.Wrap(err)
		}
		for i, at := range start {
			if kind.At(i) != format.KindCount || !(value[i] > 0) || math.IsInf(value[i], 0) ||
				!strings.HasSuffix(catalog.BaseName(name.At(i)), "Query") {
				continue
			}
			k, ok := index[name.At(i)]
			if !ok {
				k = len(p.rows)
				index[name.At(i)] = k
				p.rows = append(p.rows, pollRow{name: name.At(i), silentForNs: s.EndNs - silentFrom})
			}
			p.rows[k].add(s.Window, at, units.EndOf(at, dur[i]), value[i], silentFrom)
		}
	}
	for i := range p.rows {
		r := &p.rows[i]
		r.before /= max(1e-9, float64(silentFrom-s.Window.FromNs)/1e9)
		r.since /= max(1e-9, float64(r.silentForNs)/2e9)
	}
	slices.SortFunc(p.rows, func(a, b pollRow) int {
		return cmp.Or(cmp.Compare(b.since, a.since), cmp.Compare(b.total, a.total), strings.Compare(a.name, b.name))
	})
	return nil
}

// add counts the calls of an interval as if they were spread evenly over it.
func (r *pollRow) add(w query.Window, fromNs, toNs int64, calls float64, silentFrom int64) {
	share := func(from, to int64) float64 {
		if toNs <= fromNs {
			if fromNs >= from && fromNs < to {
				return calls
			}
			return 0
		}
		return calls * max(0, float64(min(to, toNs))-float64(max(from, fromNs))) / (float64(toNs) - float64(fromNs))
	}
	r.total += share(w.FromNs, w.ToNs)
	r.before += share(w.FromNs, silentFrom)
	// the later half: a program that stopped querying does not poll
	r.since += share(w.ToNs-(w.ToNs-silentFrom)/2, w.ToNs)
	step := float64(w.DurNs()) / pollParts
	for i := range r.overTime {
		from := w.FromNs + int64(float64(i)*step)
		r.overTime[i] += share(from, w.FromNs+int64(float64(i+1)*step))
	}
}
