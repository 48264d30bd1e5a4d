package copies

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/analyze/units"
)

// gpuCopies counts copies by process, channel and size. There are few sizes, because they are rounded.
type gpuCopies struct {
	bySize  map[copyOperation]*copyAmount
	unknown int64 // copies whose operation is unknown
}

// copyOperation identifies copies with one GPU time.
type copyOperation struct {
	bytes int64 // rounded
	pid   int32
	op    activity.Op
}

type copyAmount struct{ copies, bytes int64 }

// add adds a copy that ran.
func (g *gpuCopies) add(c *calls.Call, function, direction string) {
	op, ok := activity.CopyOp(function, direction)
	if !ok {
		g.unknown++
		return
	}
	if g.bySize == nil {
		g.bySize = make(map[copyOperation]*copyAmount)
	}
	key := copyOperation{activity.RoundSize(c.Bytes), c.Pid, op}
	if g.bySize[key] == nil {
		g.bySize[key] = new(copyAmount)
	}
	g.bySize[key].copies++
	g.bySize[key].bytes += c.Bytes
}

// sum returns the GPU time of the copies, and the bytes of those with a known GPU time.
func (g *gpuCopies) sum(times *activity.SiteTimes) (sum activity.TimeSum, bytes int64) {
	sum.Add(activity.Estimate{}, float64(g.unknown))
	for key, n := range g.bySize {
		e := times.OfCopy(key.pid, key.op, key.bytes)
		sum.Add(e, float64(n.copies))
		if e.Quality != activity.Unknown {
			bytes += n.bytes
		}
	}
	return sum, bytes
}

// bandwidthColumns are the columns of the bandwidth on the GPU.
var bandwidthColumns = []report.Column{
	{
		Key: "gpu_bandwidth_min_bytes_per_second", Title: "GPU RATE MIN", Unit: report.UnitRatio,
		About: "lower bound of the bandwidth on the GPU: bytes of copies of known GPU time / (GPU TIME plus its error)",
	},
	{
		Key:   "gpu_bandwidth_max_bytes_per_second",
		Title: "GPU RATE MAX",
		Unit:  report.UnitRatio,
		About: "upper bound of the bandwidth on the GPU: bytes of copies of known GPU time / (GPU TIME minus its " +
			"error)",
	},
}

// addGPUColumns adds the columns of GPU times to a table if there are GPU times. It returns the GPU time of
// all rows, or 0 if it is unknown for many copies.
func addGPUColumns[K comparable](sc *Scan, table *report.Table, rows map[K]*copyStats) (allNs float64) {
	if sc.times == nil {
		return 0
	}
	table.Columns = slices.Concat(bandwidthColumns, table.Columns)
	gputime.AddColumns(table)
	var all activity.TimeSum
	for _, s := range rows {
		sum, _ := s.gpu.sum(sc.times)
		all.Merge(&sum)
	}
	return all.AllNs()
}

// gpuValues returns the values of the columns of GPU times, or none without GPU times.
func (sc *Scan) gpuValues(s *copyStats, allNs float64) report.Values {
	if sc.times == nil {
		return nil
	}
	sum, bytes := s.gpu.sum(sc.times)
	return report.JoinValues(gputime.Values(&sum, allNs), report.Values{
		bandwidthColumns[0].Key: rateOf(bytes, sum.TotalNs()+sum.ErrorNs()),
		bandwidthColumns[1].Key: rateOf(bytes, sum.TotalNs()-sum.ErrorNs()),
	})
}

// rateOf returns bytes by ns as a catalog.MetricValue. It returns nil if one of them is not positive.
func rateOf(bytes int64, ns float64) any {
	if bytes <= 0 || ns <= 0 {
		return nil
	}
	return catalog.MetricValue{Value: float64(bytes) / (ns / 1e9), Unit: catalog.UnitOfMetric("_bytes_per_second")}
}

// sortRows sorts a table by GPU time if allNs, the GPU time of all rows, is known, then by keys.
func sortRows(table *report.Table, allNs float64, keys ...string) {
	if allNs > 0 {
		keys = slices.Insert(keys, 0, gputime.SumColumn)
		if table.Name == "copies" {
			table.Title = "copies by GPU time"
		}
	}
	table.Sort(keys...)
}

// addGPUTotals adds the GPU time of all copies to the report if there are GPU times.
func (sc *Scan) addGPUTotals(r *report.Report) {
	if sc.times == nil {
		return
	}
	var all activity.TimeSum
	for _, s := range sc.groups {
		sum, _ := s.gpu.sum(sc.times)
		all.Merge(&sum)
	}
	text := any(nil)
	if len(sc.groups) > 0 {
		text = gputime.Sentence(&all, sc.Window, units.PluralOf("copy"), units.PluralOf("copy"))
	}
	r.Facts = append(r.Facts, report.NewFacts(gputime.FactColumns, report.Values{"gpu_text": text})...)
	r.Totals = append(r.Totals, report.NewFacts(gputime.TotalColumns, gputime.Totals(&all))...)
	r.Sentences = append(r.Sentences, "gpu_text")
}
