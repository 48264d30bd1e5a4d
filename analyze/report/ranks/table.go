package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/ranksteps"
	"github.com/gpurec/gpurec/analyze/model/straggler"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// rankColumns are the columns of the table of ranks.
var rankColumns = []report.Column{
	{
		Key:   "ranks",
		Title: "RANKS",
		Unit:  report.UnitText,
		About: "a late rank, or ranks that are not; 5-29/8 is every eighth rank",
	},
	{Key: "count", Title: "N", Unit: report.UnitCount, About: "number of these ranks"},
	{Key: "host", Title: "HOST", Unit: report.UnitText, About: "host of these ranks"},
	{Key: "step_ns", Title: "STEP", Unit: report.UnitNs, About: "median duration of a step; the median of these ranks"},
	{
		Key:   "own_ns",
		Title: "OWN TIME",
		Unit:  report.UnitNs,
		About: "median of the step without waits. With GPU times, waits are the time in which only " +
			"collectives ran on the GPU. " +
			"Else they are the time in which calls of the driver waited for the GPU",
	},
	{
		Key:   "late_ns",
		Title: "LATE",
		Unit:  report.UnitNs,
		About: "median over steps of the own time less that of the other ranks that do the same; of a late " +
			"rank, in the " +
			"steps in which it is late. Negative: it is faster",
	},
	{Key: "wait_ns", Title: "WAITS", Unit: report.UnitNs, About: "median of step_ns less own_ns: waits and transfers"},
	{
		Key: "last_pct", Title: "LAST IN%", Unit: report.UnitPercent,
		About: "share of the steps in which the rank has the longest own time of the ranks that do the same",
	},
	{
		Key:   "host_ns",
		Title: "HOST",
		Unit:  report.UnitNs,
		About: "median time of a step in which the host was not blocked in the driver",
	},
	{
		Key: "kernels_x", Title: "KERNELS", Unit: report.UnitRatio,
		About: "time of the GPU in kernels other than collectives, as a multiple of the other ranks'; needs GPU times",
	},
	{
		Key: "copies_x", Title: "COPIES", Unit: report.UnitRatio,
		About: "time in copies, as a multiple of the other ranks'",
	},
	{
		Key:   "since",
		Title: "SINCE",
		Unit:  report.UnitText,
		About: "time from which on the rank is late; absent: from the beginning",
	},
	{
		Key:   "why",
		Title: "WHY",
		Unit:  report.UnitText,
		About: "cause of the lateness, or why the ranks were not compared",
	},
}

// rankRow is a set of ranks.
type rankRow struct {
	members []int
	verdict *Verdict
	why     string
}

// rankTable returns the table of ranks: late ranks one by one, then the others of each group.
func (s *State) rankTable() report.Table {
	table := report.Table{
		Name: "ranks", Title: "ranks", Columns: rankColumns, Keys: []string{"ranks"},
		HideFirst: []string{"copies_x", "host_ns", "last_pct"},
	}
	for _, r := range s.rankRows() {
		first := r.members[0]
		f := &s.Found.Figures[first]
		median := func(value func(f *straggler.Figures) float64) any {
			if f.Steps == 0 {
				return nil
			}
			list := make([]float64, 0, len(r.members))
			for _, m := range r.members {
				list = append(list, value(&s.Found.Figures[m]))
			}
			slices.Sort(list)
			return list[len(list)/2]
		}
		factor := func(value func(f *straggler.Figures) float64) any {
			if v, ok := median(value).(float64); ok && v > 0 {
				return v
			}
			return nil
		}
		values := report.Values{
			"ranks": s.setText(r.members), "count": int64(len(r.members)), "host": s.hostText(r.members),
			"step_ns":   median(func(f *straggler.Figures) float64 { return f.StepNs }),
			"own_ns":    median(func(f *straggler.Figures) float64 { return f.OwnNs }),
			"late_ns":   median(func(f *straggler.Figures) float64 { return f.LateNs }),
			"wait_ns":   median(func(f *straggler.Figures) float64 { return f.WaitNs }),
			"last_pct":  median(func(f *straggler.Figures) float64 { return 100 * f.LastShare }),
			"host_ns":   median(func(f *straggler.Figures) float64 { return f.HostNs }),
			"kernels_x": factor(func(f *straggler.Figures) float64 { return f.KernelFactor }),
			"copies_x":  factor(func(f *straggler.Figures) float64 { return f.CopyFactor }),
			"since":     nil, "why": units.TextOrNil(r.why),
		}
		if v := r.verdict; v != nil {
			values["late_ns"], values["step_ns"], values["own_ns"] = v.LateNs, v.StepNs, v.OwnNs
			values["wait_ns"] = max(0, v.StepNs-v.OwnNs)
			if v.SinceNs != 0 {
				values["since"] = clockText(v.SinceNs)
			}
		}
		table.Add(values)
	}
	return table
}

// rankRows returns the rows of the table of ranks.
func (s *State) rankRows() (rows []rankRow) {
	late := make(map[int]bool)
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		late[v.Series] = true
		rows = append(rows, rankRow{members: []int{v.Series}, verdict: v, why: v.Why})
	}
	byKey := make(map[string]int)
	for i := range s.Ranks {
		if late[i] {
			continue
		}
		key, why := fmt.Sprint("group ", s.Found.Figures[i].Group), ""
		switch {
		case s.Found.Figures[i].Steps == 0:
			key, why = "none", "not compared: no steps found"
		case s.Found.Groups[s.Found.Figures[i].Group] < 2:
			key, why = "alone", "not compared: no other rank does the same"
		}
		at, ok := byKey[key]
		if !ok {
			at = len(rows)
			byKey[key] = at
			rows = append(rows, rankRow{why: why})
		}
		rows[at].members = append(rows[at].members, i)
	}
	return rows
}

// setText names members, such as "0-5, 7".
func (s *State) setText(members []int) string {
	var numbers []int
	var labels []string
	for _, m := range members {
		if rank := s.Job.Members[m].Rank; rank != job.UnknownRank {
			numbers = append(numbers, rank)
		} else if len(labels) < maxLabels {
			labels = append(labels, s.Job.Members[m].Label)
		}
	}
	if len(numbers) > 0 {
		labels = append([]string{units.FormatNumberSet(numbers)}, labels...)
	}
	return strings.Join(labels, ", ")
}

// maxLabels is the number of processes without a rank that a text lists.
const maxLabels = 4

// hostText names the hosts of members.
func (s *State) hostText(members []int) string {
	hosts := make(map[int]bool)
	for _, m := range members {
		hosts[s.Job.Members[m].Host] = true
	}
	if len(hosts) == 1 {
		return cmp.Or(s.Job.Hosts[s.Job.Members[members[0]].Host].Name, "unknown")
	}
	return fmt.Sprintf("%d hosts", len(hosts))
}

// operationColumns are the columns of the table of operations.
var operationColumns = []report.Column{
	{
		Key: "communicator", Title: "COMMUNICATOR", Unit: report.UnitText,
		About: "name of the communicator, or its identity as NCCL_DEBUG prints it",
	},
	{Key: "ranks", Title: "RANKS", Unit: report.UnitText, About: "recorded ranks that called the operation"},
	{Key: "operation", Title: "OPERATION", Unit: report.UnitText, About: "operation of NCCL"},
	{
		Key:   "bytes",
		Title: "SIZE",
		Unit:  report.UnitBytes,
		About: "bytes of one operation: the argument of AllReduce, Broadcast, Reduce, Send and Recv; else " +
			"all ranks' parts together",
	},
	{Key: "calls", Title: "COUNT", Unit: report.UnitCount, About: "calls of the rank with the most"},
	{
		Key:   "bus_gb_s",
		Title: "BUS GB/s",
		Unit:  report.UnitRatio,
		About: "bytes / transfer_ns × the factor of nccl-tests for the bus, for example 2 (n-1) / n for " +
			"AllReduce; a lower bound",
	},
	{
		Key:   "transfer_ns",
		Title: "TRANSFER",
		Unit:  report.UnitNs,
		About: "median over operations of the shortest kernel of any rank: from the last arrival to the " +
			"end. An upper " +
			"bound, because the next operation or a wait bounds the end. Needs GPU times of all ranks",
	},
	{
		Key:   "wait_ns",
		Title: "WAIT/STEP",
		Unit:  report.UnitNs,
		About: "mean time a step and rank that kernels of the operation run beyond transfer_ns: the skew of " +
			"the arrivals",
	},
	{
		Key:   "exposed_pct",
		Title: "EXPOSED%",
		Unit:  report.UnitPercent,
		About: "share of a step in which a kernel of the operation runs, and no other kernel and no copy " +
			"does; mean of the ranks",
	},
}

// operationTable returns the table of communicators and operations.
func (s *State) operationTable() report.Table {
	table := report.Table{
		Name: "operations", Title: "operations by communicator and size", Columns: operationColumns,
		Keys: []string{"communicator", "operation", "bytes"}, HideFirst: []string{"ranks"},
	}
	for i := range s.Operations {
		o := &s.Operations[i]
		values := report.Values{
			"communicator": communicatorName(o.Communicator, o.Name), "ranks": s.setText(o.Members),
			"operation": o.Function.String(), "bytes": o.Bytes, "calls": o.Count, "bus_gb_s": nil, "transfer_ns": nil,
			"wait_ns": nil, "exposed_pct": nil,
		}
		if o.TransferNs > 0 {
			values["bus_gb_s"] = busRate(o)
			values["transfer_ns"], values["wait_ns"] = o.TransferNs, o.WaitNs
			if mean := s.meanStepNs(); mean > 0 {
				values["exposed_pct"] = min(100, 100*o.ExposedNs/mean)
			}
		}
		table.Add(values)
	}
	return table
}

// meanStepNs returns the mean duration of the compared steps of all ranks, ns.
func (s *State) meanStepNs() float64 {
	sum, n := 0.0, 0
	for i := range s.Series {
		for k := range s.Series[i].Steps {
			sum += float64(s.Series[i].Steps[k].DurNs)
			n++
		}
	}
	return sum / float64(max(1, n))
}

// busRate returns the bus bandwidth of an operation in GB/s.
func busRate(o *ranksteps.Operation) float64 {
	return float64(o.Bytes) * o.Function.BusFactor(o.Size) / o.TransferNs
}

// totalColumns are the columns of the totals.
var totalColumns = []report.Column{
	{Key: "ranks_recorded", Title: "ranks", Unit: report.UnitCount, About: "recorded ranks of the job"},
	{Key: "late_ranks", Title: "late", Unit: report.UnitCount, About: "ranks for which others wait"},
	{
		Key:   "slow_transfers",
		Title: "slow transfers",
		Unit:  report.UnitCount,
		About: "operations whose transfer is slow, without a late rank",
	},
	{Key: "steps", Title: "steps", Unit: report.UnitCount, About: "steps that were compared"},
	{Key: "step_ns", Title: "step", Unit: report.UnitNs, About: "median duration of a step"},
	{Key: "late_ns", Title: "lateness", Unit: report.UnitNs, About: "median lateness of the latest rank a step"},
	{
		Key:   "gain_ns",
		Title: "gain",
		Unit:  report.UnitNs,
		About: "estimate of the time a step that the job gains without it",
	},
	{
		Key:   "exposed_pct",
		Title: "exposed communication",
		Unit:  report.UnitPercent,
		About: "share of the time of a step in which only collectives ran on the GPU, mean of the ranks: " +
			"transfers and waits. Needs GPU times",
	},
}

// totals returns the totals.
func (s *State) totals() []report.Fact {
	v := report.Values{
		"ranks_recorded": int64(
			len(s.Ranks),
		),
		"late_ranks":     int64(len(s.Verdicts)),
		"slow_transfers": int64(len(s.Network)),
		"steps":          int64(s.Steps),
		"step_ns":        nil,
		"late_ns":        nil,
		"gain_ns":        nil,
		"exposed_pct":    nil,
	}
	if s.Steps > 0 {
		v["step_ns"] = s.StepNs
	}
	if len(s.Verdicts) > 0 {
		v["late_ns"], v["gain_ns"] = s.Verdicts[0].LateNs, s.Verdicts[0].GainNs
	}
	if pct, ok := s.ExposedPct(); ok {
		v["exposed_pct"] = pct
	}
	return report.NewFacts(totalColumns, v)
}

// ExposedPct returns the share of the time of steps in which only collectives ran on the GPU, 0 to 100, as the mean of
// the ranks with GPU times. ok is false without such ranks.
func (s *State) ExposedPct() (pct float64, ok bool) {
	exposed, all := 0.0, 0.0
	for i := range s.Series {
		if s.Series[i].Basis != straggler.BasisHost {
			exposed += float64(s.Ranks[i].ExposedNs)
			all += float64(s.Ranks[i].TimedNs)
		}
	}
	return 100 * exposed / max(1, all), all > 0
}
