//go:build linux && amd64

package record

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/sampling"
)

// BenchmarkCollective measures the price of ncclGroupStart, ncclAllReduce and ncclGroupEnd, the three calls of PyTorch
// for a collective: in recordings of all of them, without groups, and without groups and returns. Bare runs come in
// turn. A metric is the median of the rounds. price_ns is the difference to the bare run of the round, bpf_ns/run the
// kernel's own measurement of a run of a BPF program. Times are CPU time of the program.
func BenchmarkCollective(b *testing.B) {
	rounds, calls := 9, 50_000
	if testing.Short() {
		rounds, calls = 1, 2_000
	}
	w := startWorker(b, "collectives", simcudaEnv(b))
	measure := func() float64 {
		w.do(b, calls/10) // the first calls fill caches
		begin := w.cpuNs(b)
		w.do(b, calls)
		return float64(w.cpuNs(b)-begin) / float64(calls)
	}
	modes := []struct {
		name string
		set  func(opt *Options)
	}{
		{"all", func(opt *Options) { opt.KeepReturns = true }},
		{"no_groups", func(opt *Options) { opt.KeepReturns, opt.Only = true, []string{"ncclAllReduce"} }},
		{"no_returns", func(opt *Options) {
			opt.collectives = sampling.CollectivePolicy{HitNs: 1220, Interval: 50 * time.Millisecond}
		}},
	}
	prices, programs := make(map[string][]float64), make(map[string][]float64)
	for range rounds {
		bare := measure()
		for _, m := range modes {
			opt := DefaultOptions()
			opt.Pids, opt.Output = []int{w.cmd.Process.Pid}, filepath.Join(b.TempDir(), "r.parquet")
			opt.NVMLInterval, opt.MaxOverheadPct, opt.Force = 0, 0, true
			opt.Classes, opt.Allocator = []string{format.RecordCollective}, library.AllocatorModeOff
			m.set(&opt)
			result := recorded(b, opt, func() {
				for begin := time.Now(); opt.collectives.MaxPct == 0 && time.Since(begin) < time.Second; {
					w.do(b, 1000) // until the probes are removed
				}
				prices[m.name] = append(prices[m.name], measure()-bare)
			})
			cost := result.Meta.Cost
			programs[m.name] = append(programs[m.name], float64(cost.BPFRunNs)/float64(max(1, cost.BPFRuns)))
		}
	}
	for _, m := range modes {
		b.ReportMetric(medianOf(prices[m.name]), m.name+"_price_ns")
		b.ReportMetric(slices.Min(prices[m.name]), m.name+"_min_price_ns")
		b.ReportMetric(medianOf(programs[m.name]), m.name+"_bpf_ns/run")
	}
}

// TestFrequentNCCLCallsLoseDetails records calls that cost more than the policy allows. Groups and returns are dropped
// while the program calls, and nothing else is missing.
func TestFrequentNCCLCallsLoseDetails(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	ledger := filepath.Join(t.TempDir(), "nccl.tsv")
	w := startWorker(t, "collectives", append(simcudaEnv(t), "SIMNCCL_LEDGER="+ledger))
	opt := testOptions(t, w.cmd.Process.Pid)
	opt.Attach, opt.KeepReturns = privilege.AttachMulti, false
	opt.collectives = sampling.CollectivePolicy{HitNs: 1220, Interval: 50 * time.Millisecond}
	s := start(t, opt)
	sinceNs := monotonic()
	runWhile(t, s, func() {
		for begin := time.Now(); time.Since(begin) < 10*time.Second && s.probes.DroppableCollectives() != 0; {
			w.do(t, 100)
		}
		w.do(t, 1000)
	})
	n := compareDetails(t, opt.Output, ledger, sinceNs)
	t.Logf("%+v", n)
	if n.groups == 0 || n.missingGroups == 0 || n.unreturned == 0 || n.unreturned == n.operations {
		t.Errorf("no change during the recording: %+v", n)
	}
	checkNCCLCounts(t, opt.Output, n.calls)
	number := int64(0)
	for _, rows := range recordedNCCLCalls(t, opt.Output) {
		for i := range rows {
			if row := &rows[i]; row.Kind == format.KindCollective {
				if number++; row.Sequence != number {
					t.Fatalf("operation %d has number %d", number, row.Sequence)
				}
			}
		}
	}
	var notes []string
	for _, note := range factRows(t, opt.Output, format.KindNote) {
		if note.Name == "collectives" {
			notes = append(notes, note.Message)
		}
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "ncclGroupStart") || !strings.Contains(notes[1], "duration") {
		t.Errorf("notes %q", notes)
	}
}
