package analyze_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// randomCalls returns a recording of random calls of all kinds by two processes with two threads
// each. Calls of one thread do not overlap.
func randomCalls(t testing.TB, seed uint64) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	recording.Meta.EndNs = analyzetest.Epoch + 20*analyzetest.Second
	recording.AddTwoGPUs()
	r := rand.New(rand.NewPCG(seed, 7))
	functions := []struct{ kind, name string }{
		{format.KindLaunch, "cuLaunchKernel"},
		{format.KindLaunch, "cuLaunchKernel"},
		{format.KindLaunch, "cuGraphLaunch"},
		{format.KindMemcpy, "cuMemcpyHtoD_v2"},
		{format.KindMemcpy, "cuMemcpyDtoHAsync_v2"},
		{format.KindSync, "cuStreamSynchronize"},
		{format.KindSync, "cuEventQuery"},
		{format.KindAPI, "cuEventRecord"},
		{format.KindAlloc, "cuMemAlloc_v2"},
	}
	for th := range int32(4) {
		for now := r.Int64N(analyzetest.Ms); now < 2*analyzetest.Second; {
			c := functions[r.IntN(len(functions))]
			// median 60 us, between 100 ns and a second
			dur := int64(math.Exp(r.NormFloat64()*2 + 11))
			row := recording.AddCall(c.kind, c.name, now, dur)
			row.Pid, row.Tid = 42+th/2, 100+th
			row.Stream, row.Site, row.Device = r.Int64N(3), fmt.Sprint("site ", r.IntN(5)), r.Int32N(2)
			row.StackID = r.Int32N(4)
			switch n := r.IntN(20); {
			case n == 0:
				row.Result = 1
			case n == 1:
				row.Result = calls.ResultNotReady
			case n == 2 && c.kind == format.KindLaunch:
				row.Flags = format.FlagCaptured
			case n < 6 && c.kind == format.KindLaunch:
				row.Flags, row.DurNs, dur = format.FlagNoReturn, 0, 0
			case n == 7:
				row.Flags = format.FlagAbandoned
			}
			switch c.kind {
			case format.KindLaunch:
				row.Kernel, row.GridX, row.BlockX, row.Value = fmt.Sprint(
					"kernel",
					r.IntN(4),
				), 1+r.Int32N(
					3,
				)*100, 128, 2
			case format.KindMemcpy:
				row.CopyKind, row.Bytes = row.Name[8:12], 1<<r.IntN(24)
			case format.KindAlloc:
				row.Ptr, row.MemoryKind, row.Bytes = 0x7f0000000000+now, format.MemoryDevice, 512
			}
			now += dur + 1 + int64(math.Exp(r.NormFloat64()*2+11))
		}
	}
	return recording
}

// exactQuantile returns the exact value of the quantile that a sketch estimates.
func exactQuantile(sorted []int64, q float64) int64 {
	return sorted[max(1, int(math.Ceil(q*float64(len(sorted)))))-1]
}

// near reports whether an estimated quantile is within the documented error.
func near(got any, sorted []int64, q float64) bool {
	want := exactQuantile(sorted, q)
	return math.Abs(float64(got.(int64)-want)) <= stats.SketchMaxErrorPct/100*float64(want)
}

// hasReturn reports whether the call's result was recorded.
func hasReturn(r *format.Row) bool { return r.Flags&timeline.NoResultFlags == 0 }

func TestAPIEqualsAnOracle(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(5) {
		recording := randomCalls(t, seed)
		recording.AddIdentity(
			42,
			format.Identity{Rank: analyzetest.PointerTo(1), Job: "a", Sources: map[string]string{"rank": "env RANK"}},
			map[string]any{"cgroup": "0::/a"},
		)
		tl := recording.Timeline()
		for _, by := range api.GroupNames() {
			report, err := api.Run(
				tl,
				query.Options{GroupBy: by, Filter: query.Filter{FromNs: analyzetest.Epoch + analyzetest.Second/2}},
			)
			if err != nil {
				t.Fatal(err)
			}
			type outcome struct {
				calls, errors, open int64
				took                []int64
			}
			want := make(map[string]*outcome)
			for _, r := range recording.Rows {
				if r.Tid == 0 || r.StartNs < analyzetest.Epoch+analyzetest.Second/2 {
					continue
				}
				key := r.Name + map[string]string{
					"name":   "",
					"site":   "|" + r.Site,
					"stack":  fmt.Sprint("|", r.StackID),
					"thread": fmt.Sprint("|", r.Tid),
					"stream": fmt.Sprintf("|%d: %d", r.Pid, r.Stream),
				}[by]
				if slices.Contains(timeline.IdentityGroups, by) {
					key += "|(no " + by + ")"
					if value := map[string]string{"rank": "1", "job": "a", "cgroup": "/a"}[by]; r.Pid == 42 &&
						value != "" {
						key = r.Name + "|" + value
					}
				}
				if slices.Contains(stack.OperatorGroups, by) {
					key += "|" + tl.Stacks.OperatorLabel(r.StackID, by)
				}
				o := want[key]
				if o == nil {
					o = new(outcome)
					want[key] = o
				}
				o.calls++
				if r.Flags&format.FlagAbandoned != 0 {
					o.open++
				}
				if hasReturn(r) {
					o.took = append(o.took, r.DurNs)
					if r.Result == 1 {
						o.errors++
					}
				}
			}
			table := &report.Tables[0]
			if len(table.Rows) != len(want) {
				t.Fatalf("seed %d by %s: %d rows, want %d", seed, by, len(table.Rows), len(want))
			}
			for _, row := range table.Rows {
				c := row.Cells
				key := c[17].(string)
				if by == "stack" {
					key += fmt.Sprint("|", row.StackID)
				} else if by == "thread" {
					key += "|" + strings.Fields(strings.TrimPrefix(strings.TrimPrefix(c[18].(string), "42/"), "43/"))[0]
				} else if by != "name" {
					key += "|" + c[18].(string)
				}
				o := want[key]
				if o == nil {
					t.Fatalf("seed %d: unexpected row %q", seed, key)
				}
				slices.Sort(o.took)
				var sum, squares float64
				for _, ns := range o.took {
					sum += float64(ns)
				}
				for _, ns := range o.took {
					squares += (float64(ns) - sum/float64(len(o.took))) * (float64(ns) - sum/float64(len(o.took)))
				}
				deviation := math.Sqrt(squares / float64(len(o.took)-1))
				if c[1] != int64(sum) || c[3] != o.calls || c[4] != int64(len(o.took)) || c[12] != o.errors ||
					c[13] != o.open ||
					c[7] != o.took[0] ||
					c[8] != o.took[len(o.took)-1] ||
					math.Abs(float64(c[9].(int64))-deviation) > 1 ||
					math.Abs(float64(c[5].(int64))-sum/float64(len(o.took))) > 1 ||
					!near(c[6], o.took, 0.5) ||
					!near(c[10], o.took, 0.95) ||
					!near(c[11], o.took, 0.99) {
					t.Errorf("seed %d, %s: %v, want %+v", seed, key, c, o)
				}
			}
		}
	}
}

func TestSketch(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(3, 3))
	for name, draw := range map[string]func() int64{
		"small":  func() int64 { return r.Int64N(200) },
		"wide":   func() int64 { return int64(math.Exp(r.Float64() * 43)) },
		"one":    func() int64 { return 12345 },
		"powers": func() int64 { return 1<<r.IntN(63) - r.Int64N(2) },
		"most":   func() int64 { return math.MaxInt64 - r.Int64N(10) },
	} {
		var whole, left, right stats.Durations
		var values []int64
		for i := range 5000 {
			v := draw()
			values = append(values, v)
			whole.Add(v)
			if i%3 == 0 {
				left.Add(v)
			} else {
				right.Add(v)
			}
		}
		slices.Sort(values)
		left.Merge(&right)
		for q := 0.0; q <= 1; q += 0.01 {
			if !near(whole.Quantile(q), values, q) {
				t.Errorf("%s: quantile %.2f is %v, want %d", name, q, whole.Quantile(q), exactQuantile(values, q))
			}
			if left.Quantile(q) != whole.Quantile(q) {
				t.Errorf("%s: merged, quantile %.2f is %v instead of %v", name, q, left.Quantile(q), whole.Quantile(q))
			}
		}
		if left.Count != whole.Count || left.SumNs != whole.SumNs || left.MinNs != whole.MinNs ||
			left.MaxNs != whole.MaxNs ||
			math.Abs(left.Mean-whole.Mean) > 1e-9*whole.Mean ||
			math.Abs(left.Squares-whole.Squares) > 1e-6*whole.Squares+1 {
			t.Errorf("%s: merged %+v, whole %+v", name, left.Mean, whole.Mean)
		}
	}
}

func TestGapsEqualAnOracle(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(5) {
		recording := randomCalls(t, seed)
		report, err := gaps.RunWithOptions(recording.Timeline(), gaps.Options{MinGapNs: 8 * analyzetest.Ms})
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for pid := int32(42); pid < 44; pid++ {
			for _, device := range []int32{gaps.AllDevicesOfProcess, 0, 1} {
				var rows []*format.Row
				for _, r := range recording.Rows {
					if r.Pid == pid && r.Kind == format.KindLaunch &&
						(device == gaps.AllDevicesOfProcess || r.Device == device) &&
						r.Flags&(format.FlagCaptured|format.FlagAbandoned) == 0 &&
						(r.Result == 0 || r.Flags&format.FlagNoReturn != 0) {
						rows = append(rows, r)
					}
				}
				slices.SortFunc(rows, func(a, b *format.Row) int { return cmp.Compare(a.StartNs, b.StartNs) })
				end := rows[0].StartNs
				for _, r := range rows {
					if r.StartNs-end >= 8*analyzetest.Ms {
						want = append(
							want,
							fmt.Sprintf(
								"%d %d %d %d tid %d in CUDA %d",
								pid,
								device,
								end-analyzetest.Epoch,
								r.StartNs-end,
								r.Tid,
								inCUDA(recording, r.Tid, end, r.StartNs),
							),
						)
					}
					end = max(end, r.StartNs+r.DurNs)
				}
			}
		}
		for _, row := range report.Tables[2].Rows {
			c := row.Cells
			device := gaps.AllDevicesOfProcess
			if c[3] != "all" {
				fmt.Sscan(c[3].(string), &device)
			}
			got = append(
				got,
				fmt.Sprintf(
					"%d %d %d %d tid %d in CUDA %d",
					c[2],
					device,
					c[1],
					c[0],
					c[4],
					c[0].(int64)-c[10].(int64),
				),
			)
		}
		slices.Sort(want)
		slices.Sort(got)
		if len(want) > gaps.DefaultMaxGaps {
			t.Fatalf("%d gaps: more than a report lists", len(want))
		}
		if !slices.Equal(want, got) {
			t.Errorf("seed %d: %d gaps, want %d\n%.300q\n%.300q", seed, len(got), len(want), got, want)
		}
	}
}

// inCUDA returns how long a thread was in CUDA calls between two times, in ns.
func inCUDA(recording *analyzetest.TestRecording, tid int32, fromNs, toNs int64) (ns int64) {
	for _, r := range recording.Rows {
		if r.Tid == tid && r.Flags&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
			ns += max(0, min(r.StartNs+r.DurNs, toNs)-max(r.StartNs, fromNs))
		}
	}
	return ns
}

func TestSumsOfCallReportsEqualAnOracle(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(5) {
		recording := randomCalls(t, seed)
		tl := recording.Timeline()
		kernelSums, copySums, sync := map[string]float64{}, map[string]float64{}, map[string]float64{}
		for _, r := range recording.Rows {
			failed := hasReturn(r) && r.Result != 0
			ran := !(failed && r.Result != calls.ResultNotReady) && r.Flags&format.FlagCaptured == 0
			switch {
			case r.Kind == format.KindLaunch && r.Name == "cuLaunchKernel":
				if ran {
					kernelSums["launches"]++
					if r.GridX*r.BlockX < kernels.TinyLaunchThreads {
						kernelSums["tiny_launches"]++
					}
				} else if r.Flags&format.FlagCaptured != 0 {
					kernelSums["captured_launches"]++
				}
			case r.Kind == format.KindMemcpy:
				copySums["copies"]++
				if !failed {
					copySums["bytes"] += float64(r.Bytes)
				}
				if hasReturn(r) {
					copySums["host_sum_ns"] += float64(r.DurNs)
				}
			case r.Kind == format.KindSync && r.Name == "cuStreamSynchronize":
				sync["waits"]++
				if hasReturn(r) {
					sync["wait_sum_ns"] += float64(r.DurNs)
				}
			}
		}
		for name, want := range map[string]map[string]float64{"kernels": kernelSums, "copies": copySums, "sync": sync} {
			r, err := callReports(tl)[name](query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			analyzetest.CheckNumbers(t, r, want)
		}
	}
}
