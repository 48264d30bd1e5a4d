package hang

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// pollCounts are the counters of queries (cuStreamQuery, cuEventQuery). Queries are not recorded as
// calls. The recorder counts them for all processes together.
type pollCounts struct {
	rows   []pollFunctionCounts
	perSec float64 // queries per second in the later half of the silent time
	// processes are those that may have made these queries. suspects has the most recently active
	// thread of each.
	processes map[int32]bool
	suspects  map[int32]*threadHistory
}

// pollFunctionCounts has the counters of one query function.
type pollFunctionCounts struct {
	name                   string
	total                  float64 // queries in the window
	beforeRate, silentRate float64 // queries per second before the silent time, and in its later half
	overTime               [pollSeriesParts]float64
	silentForNs            int64 // length of the silent time
}

// pollSeriesParts is the number of parts of the window in the column "over_time".
const pollSeriesParts = 40

// ReadPolls reads the query counters. It also finds the processes that may have made the queries:
// they are silent and in no call.
func (s *Scan) ReadPolls() (*pollCounts, error) {
	p := &pollCounts{processes: make(map[int32]bool), suspects: make(map[int32]*threadHistory)}
	silentFrom := s.Window.FromNs
	for pid, life := range s.Processes {
		if exitNs := s.T.Facts.Processes[pid].ExitNs; exitNs > 0 && exitNs <= s.EndNs {
			continue
		}
		silentFrom = max(silentFrom, life.lastNs)
		inCall := slices.ContainsFunc(life.threads, func(l *threadHistory) bool { return len(l.open) > 0 })
		if s.EndNs-life.lastNs-s.T.UnrecordedLaunchNs(life.lastNs, s.EndNs) < s.longNs || inCall {
			continue
		}
		p.processes[pid] = true
		p.suspects[pid] = slices.MaxFunc(life.threads, func(a, b *threadHistory) int {
			return cmp.Or(cmp.Compare(a.LastNs, b.LastNs), cmp.Compare(b.Tid, a.Tid))
		})
	}
	err := s.readPollCounts(p, silentFrom)
	for i := range p.rows {
		p.perSec += p.rows[i].silentRate
	}
	if s.EndNs-silentFrom < s.longNs || p.perSec < minPollsPerSecond {
		clear(p.processes)
	}
	return p, err
}

// readPollCounts reads the counters. silentFrom is the start of the silent time, Unix ns.
func (s *Scan) readPollCounts(p *pollCounts, silentFrom int64) error {
	index := make(map[string]int)
	for _, g := range s.T.Groups {
		if g.Class() != format.ClassSample || !slices.Contains(g.Kinds(), format.KindCount) {
			continue
		}
		kind, name := g.Strings("kind"), g.Strings("name")
		start, dur, value := g.Int64("start_ns", nil), g.Int64("dur_ns", nil), g.Float64("value", nil)
		if err := g.Err(); err != nil {
			return s.T.WrapReadError(err)
		}
		for i, at := range start {
			if kind.At(i) != format.KindCount || !(value[i] > 0) || math.IsInf(value[i], 0) ||
				!strings.HasSuffix(catalog.BaseFunctionName(name.At(i)), "Query") {
				continue
			}
			k, ok := index[name.At(i)]
			if !ok {
				k = len(p.rows)
				index[name.At(i)] = k
				p.rows = append(p.rows, pollFunctionCounts{name: name.At(i), silentForNs: s.EndNs - silentFrom})
			}
			p.rows[k].addInterval(s.Window, at, units.EndOfRange(at, dur[i]), value[i], silentFrom)
		}
	}
	for i := range p.rows {
		r := &p.rows[i]
		r.beforeRate /= max(1e-9, float64(silentFrom-s.Window.FromNs)/1e9)
		r.silentRate /= max(1e-9, float64(r.silentForNs)/2e9)
	}
	slices.SortFunc(p.rows, func(a, b pollFunctionCounts) int {
		return cmp.Or(
			cmp.Compare(b.silentRate, a.silentRate),
			cmp.Compare(b.total, a.total),
			strings.Compare(a.name, b.name),
		)
	})
	return nil
}

// addInterval adds the queries of an interval, as if they were spread evenly over it.
func (c *pollFunctionCounts) addInterval(w query.Window, fromNs, toNs int64, calls float64, silentFrom int64) {
	share := func(from, to int64) float64 {
		if toNs <= fromNs {
			if fromNs >= from && fromNs < to {
				return calls
			}
			return 0
		}
		return calls * max(0, float64(min(to, toNs))-float64(max(from, fromNs))) / (float64(toNs) - float64(fromNs))
	}
	c.total += share(w.FromNs, w.ToNs)
	c.beforeRate += share(w.FromNs, silentFrom)
	// Use the later half of the silent time: a program that stopped querying does not poll.
	c.silentRate += share(w.ToNs-(w.ToNs-silentFrom)/2, w.ToNs)
	step := float64(w.DurNs()) / pollSeriesParts
	for i := range c.overTime {
		from := w.FromNs + int64(float64(i)*step)
		c.overTime[i] += share(from, w.FromNs+int64(float64(i+1)*step))
	}
}

// pollColumns are the columns of pollCounts.pollTable.
var pollColumns = []report.Column{
	{
		Key: "name", Title: "QUERY", Unit: report.UnitText,
		About: "query function, which the recorder counts for all processes together",
	},
	{
		Key: "since_per_second", Title: "SILENT/s", Unit: report.UnitRatio,
		About: "queries per second in the later half of the silent time, which begins at the last call of any process",
	},
	{
		Key: "before_per_second", Title: "BEFORE/s", Unit: report.UnitRatio,
		About: "queries per second before the silent time",
	},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "number of queries in the window"},
	{
		Key: "over_time", Title: "OVER TIME", Unit: report.UnitText,
		About: "queries in 40 equal parts of the window, relative to the highest part",
	},
}

// pollTable returns a table with one row per query function.
func (p *pollCounts) pollTable() report.Table {
	table := report.Table{
		Name: "polling", Title: "queries of all processes together (counted, not recorded)",
		Columns: pollColumns, Secondary: true,
	}
	for i := range p.rows {
		r := &p.rows[i]
		table.Add(report.Values{
			"name":              r.name,
			"since_per_second":  r.silentRate,
			"before_per_second": r.beforeRate,
			"calls":             units.RoundInt(r.total),
			"over_time":         units.Sparkline(r.overTime[:]),
		})
	}
	return table
}
