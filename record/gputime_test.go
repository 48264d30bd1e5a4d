//go:build linux

package record

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/simtest"
)

// gpuRun is a recording of simcuda's program works, and the truth about it.
type gpuRun struct {
	t        *testing.T
	ledger   *simtest.OperationLedger
	result   Result
	rows     []format.Row // of kind progress
	channels map[int32]format.Row
	torn     map[int32]bool // channels with rows of torn pairs; set by check
	// of are the channels of the ledger, by the number of the channel that shows them; set by check.
	of map[int32]ledgerChannel
	// stuckNs is the start of the call whose operation never ends, CLOCK_MONOTONIC; 0: each operation ends.
	stuckNs  int64
	warnings []string
}

// ledgerChannel identifies a channel of the ledger.
type ledgerChannel struct{ pid, channel int32 }

// operationIdentity identifies an operation by what a progress word shows.
type operationIdentity struct {
	pid     int32
	slot    uint64
	counter int64
	gpuNs   int64
}

// startOperations starts simcuda's program works on simulated device files. It returns the program and the path of the
// ledger of operations.
func startOperations(t *testing.T, channels string, args ...string) (*simProgram, string) {
	t.Helper()
	needKernel(t)
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "works.tsv")
	line := simtest.OnDevices(dir, "works", append(args, "--wait")...)
	env := []string{"SIMCUDA_TIME=on", "SIMCUDA_CHANNELS=" + channels, "SIMCUDA_WORKS=" + path, "SIMCUDA_LEDGER="}
	p := startSim(t, env, line[0], line[1:]...)
	p.expect("ready")
	return p, path
}

// recordOperations records operations from before its first operation to its end.
func recordOperations(t *testing.T, rate progress.Rate, channels string, args ...string) *gpuRun {
	t.Helper()
	return recordOperationsWith(t, func(opt *Options) { opt.GPUTime = rate }, channels, args...)
}

// recordOperationsWith is recordOperations with options that change sets.
func recordOperationsWith(t *testing.T, change func(opt *Options), channels string, args ...string) *gpuRun {
	t.Helper()
	p, path := startOperations(t, channels, args...)
	run := &gpuRun{t: t}
	opt := testOptions(t, p.pid())
	change(&opt)
	opt.Warn = func(text string) { run.warnings = append(run.warnings, text) }
	s := start(t, opt)
	run.result = runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	run.ledger = simtest.ReadOperationLedger(t, path)
	run.rows, run.channels = readProgress(t, opt.Output)
	return run
}

// readProgress returns the rows of kind progress, and the last row of each channel.
func readProgress(t *testing.T, path string) ([]format.Row, map[int32]format.Row) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	var rows []format.Row
	if err := rec.Rows(func(r *format.Row) error {
		rows = append(rows, *r)
		return nil
	}, format.ClassProgress); err != nil {
		t.Fatal(err)
	}
	channels := make(map[int32]format.Row)
	for _, row := range factRows(t, path, format.KindChannel) {
		channels[row.Channel] = row
	}
	return rows, channels
}

// operations returns the operations of the ledger by what progress words show.
func (r *gpuRun) operations() map[operationIdentity]*simtest.Operation {
	operations := make(map[operationIdentity]*simtest.Operation)
	for i := range r.ledger.Operations {
		w := &r.ledger.Operations[i]
		operations[operationIdentity{w.Pid, w.Slot, w.Counter, w.GPUNs}] = w
	}
	return operations
}

// tornPairs returns for how long readers may have seen half written pairs, ns, by what their words showed.
func (r *gpuRun) tornPairs() map[operationIdentity]int64 {
	type ledgerOperation struct {
		pid, channel int32
		counter      int64
	}
	words := make(map[ledgerOperation]int64) // time words
	for i := range r.ledger.Operations {
		w := &r.ledger.Operations[i]
		words[ledgerOperation{w.Pid, w.Channel, w.Counter}] = w.GPUNs
	}
	torn := make(map[operationIdentity]int64)
	for _, p := range r.ledger.Torn {
		newNs := words[ledgerOperation{p.Pid, p.Channel, p.Counter}]
		oldNs := words[ledgerOperation{p.Pid, p.Channel, p.Counter - 1}]
		torn[operationIdentity{p.Pid, p.Slot, p.Counter, oldNs}] = p.TornNs
		torn[operationIdentity{p.Pid, p.Slot, p.Counter - 1, newNs}] = p.TornNs
	}
	return torn
}

// ledgerNear describes the operations of the ledger that have one of the words of a row.
func (r *gpuRun) ledgerNear(row *format.Row, slot uint64) string {
	var list []string
	for i := range r.ledger.Operations {
		if w := &r.ledger.Operations[i]; w.Pid == row.Pid && w.Slot == slot &&
			(w.Counter == row.Counter || w.GPUNs == row.GPUTimeNs) {
			list = append(list, fmt.Sprintf("counter %d at time %d", w.Counter, w.GPUNs))
		}
	}
	return "the ledger has " + strings.Join(list, ", ")
}

// clockErrorNs is how far the recording's clock may be from the ledger's.
const clockErrorNs = 50_000

// longTornNs is the time for which a pair is torn if the thread that plays the GPU loses its processor.
const longTornNs = 1000

// check compares each row with the ledger, and returns the share of operations that were seen.
func (r *gpuRun) check() (share float64) {
	r.t.Helper()
	operations, pairs := r.operations(), r.tornPairs()
	r.of = make(map[int32]ledgerChannel)
	seen := make(map[*simtest.Operation]bool)
	r.torn = make(map[int32]bool)
	wrong, torn, short, mixed, early, repeated := 0, 0, 0, 0, 0, 0
	for i := range r.rows {
		row := &r.rows[i]
		channel, ok := r.channels[row.Channel]
		if !ok || channel.Pid != row.Pid {
			r.t.Fatalf("row %+v has no channel", row)
		}
		identity := operationIdentity{row.Pid, uint64(channel.Ptr), row.Counter, row.GPUTimeNs}
		w := operations[identity]
		if w == nil && pairs[identity] > 0 {
			torn++
			if pairs[identity] < longTornNs {
				short++
			}
			r.torn[row.Channel] = true
			continue
		}
		if w == nil {
			wrong++
			r.t.Logf("no such operation: channel %d counter %d time %d; %s", row.Channel, row.Counter, row.GPUTimeNs,
				r.ledgerNear(row, uint64(channel.Ptr)))
			continue
		}
		if key := (ledgerChannel{w.Pid, w.Channel}); r.of[row.Channel] == (ledgerChannel{}) {
			r.of[row.Channel] = key
		} else if r.of[row.Channel] != key {
			mixed++
		}
		if seen[w] {
			repeated++
		}
		seen[w] = true
		if row.StartNs < w.WordNs-clockErrorNs {
			early++
		}
	}
	share = float64(len(seen)) / float64(max(1, len(r.ledger.Operations)))
	r.logLatency()
	r.t.Logf(
		"%d of %d operations seen (%.1f %%) on %d channels of %d; %d wrong, %d torn of %d, %d of another channel, "+
			"%d repeated, %d seen before their start; CPU %d ms, %d discarded",
		len(seen),
		len(r.ledger.Operations),
		100*share,
		len(r.channels),
		len(
			r.lives(),
		),
		wrong,
		torn,
		len(r.ledger.Torn),
		mixed,
		repeated,
		early,
		r.result.Meta.Cost.GPUTimeCPUNs/1e6,
		r.result.Meta.Cost.GPUTimeTorn,
	)
	if wrong > 0 {
		r.t.Errorf("%d of %d rows show no operation", wrong, len(r.rows))
	}
	// Two reads of a recorder rarely fit into the time of a short torn pair.
	if short > 2+len(r.rows)/5_000 {
		r.t.Errorf("%d of %d rows are pairs that were torn for less than 1 µs", short, len(r.rows))
	}
	if early > 0 {
		r.t.Errorf("%d operations were seen before their begin", early)
	}
	if mixed > 0 {
		r.t.Errorf("%d rows are of another channel", mixed)
	}
	return share
}

// logLatency logs how long it took to find the first slot.
func (r *gpuRun) logLatency() {
	if len(r.rows) == 0 {
		return
	}
	first, before := r.rows[0].StartNs, 0
	for i := range r.rows {
		first = min(first, r.rows[i].StartNs)
	}
	begin, end := r.ledger.Operations[0].StartNs, r.ledger.Operations[0].EndNs
	for i := range r.ledger.Operations {
		w := &r.ledger.Operations[i]
		begin, end = min(begin, w.StartNs), max(end, w.EndNs)
		if w.StartNs < first {
			before++
		}
	}
	r.t.Logf("first row after %d ms of %d ms; %d operations before it", (first-begin)/1e6, (end-begin)/1e6, before)
}

// lives returns the starts of channels.
func (r *gpuRun) lives() (begins []simtest.ChannelEvent) {
	for _, e := range r.ledger.Channels {
		if e.Event == "begin" {
			begins = append(begins, e)
		}
	}
	return begins
}

func TestGPUTimes(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for _, rate := range []progress.Rate{progress.RateAuto, 20_000, progress.RateFull} {
		t.Run(rate.String(), func(t *testing.T) {
			run := recordOperations(t, rate, "kernel_us=2-200", "--works", "60000", "--streams", "4")
			if share := run.check(); share < 0.02 {
				t.Errorf("%.1f %% of operations seen", 100*share)
			}
			if len(run.warnings) > 0 {
				t.Errorf("warnings %q", run.warnings)
			}
		})
	}
}

// TestGPUTimesOfSampledLaunches records launches for a share of the time only.
func TestGPUTimesOfSampledLaunches(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	run := recordOperationsWith(t, func(opt *Options) {
		opt.GPUTime, opt.MaxOverheadPct = progress.RateAuto, 0.5
	}, "kernel_us=2-20", "--works", "300000")
	if share := run.check(); share < 0.01 {
		t.Errorf("%.1f %% of operations seen", 100*share)
	}
	recorded := run.result.Meta.Totals().Recorded
	if recorded > int64(len(run.ledger.Operations))*9/10 {
		t.Errorf("%d of about %d calls are recorded: launches were not sampled", recorded, len(run.ledger.Operations))
	}
}

// TestNoGPUTimesAreClaimed records drivers without progress words. Some have words that move.
func TestNoGPUTimesAreClaimed(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for _, c := range []struct{ channels, why string }{
		{"slots=off", "words in its GPU memory change, but not with its calls"},
		{"slots=off,decoys=off", "shows no progress of channels"},
	} {
		run := recordOperations(t, progress.RateAuto, c.channels, "--works", "60000")
		if len(run.rows) > 0 || len(run.channels) > 0 {
			t.Errorf("%s: %d rows of %d channels", c.channels, len(run.rows), len(run.channels))
		}
		if !slices.ContainsFunc(run.warnings, func(w string) bool { return strings.Contains(w, c.why) }) {
			t.Errorf("%s: warnings %q", c.channels, run.warnings)
		}
	}
}

// TestGPUTimeOff records no row about channels.
func TestGPUTimeOff(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	run := recordOperations(t, progress.RateOff, "on", "--works", "2000")
	if len(run.rows) > 0 || len(run.channels) > 0 || run.result.Meta.Progress != nil || len(run.warnings) > 0 {
		t.Errorf(
			"%d rows, %d channels, %+v, warnings %q",
			len(run.rows),
			len(run.channels),
			run.result.Meta.Progress,
			run.warnings,
		)
	}
}
