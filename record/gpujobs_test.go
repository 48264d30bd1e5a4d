//go:build linux && cgo

package record

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	analysis "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/simtest"
	"github.com/gpurec/gpurec/symbolize"
)

// jobRun is a recording of simcuda's program jobs, and the truth about it.
type jobRun struct {
	*gpuRun
	truth    *simtest.JobTruth
	timeline *timeline.Timeline
	score    *jobScore
}

// jobScore counts values of all recordings, and those that lie in their intervals.
type jobScore struct{ values, inside int }

// jobScenarios are the scenarios of the program jobs.
var jobScenarios = []string{
	"gpu-bound",
	"host-bound",
	"alternating",
	"late-host",
	"copy-wait",
	"stream-wait",
	"slow-kernel",
	"outliers",
	"stuck",
}

// jobCheck compares a part of the analysis with the truth. It returns what is wrong.
type jobCheck struct {
	name      string
	scenarios []string // nil: all
	check     func(*jobRun) []string
}

// jobChecks are the checks of times and call sites. Those of reports are in reportChecks.
var jobChecks = []jobCheck{
	{"times in their intervals", nil, (*jobRun).checkIntervals},
	{"mean durations", nil, (*jobRun).checkMeans},
	{"call sites", nil, (*jobRun).checkCallSites},
	{"slow launches", []string{"gpu-bound", "slow-kernel", "outliers"}, (*jobRun).checkSlowLaunches},
}

// TestGPUJobs records random programs with known causes, and compares the analysis with their truth.
// GPUREC_SEEDS is the number of variants of each scenario and rate. By default there is one variant of
// each scenario.
func TestGPUJobs(t *testing.T) {
	testclass.Lab(t, "gpu-jobs")
	simtest.LoadSimulatedNVML(t, simcudaDir)
	seeds, err := strconv.Atoi(os.Getenv("GPUREC_SEEDS"))
	all := err == nil
	seeds = max(seeds, 1)
	score, right, of := new(jobScore), make(map[string]int), make(map[string]int)
	for k, scenario := range jobScenarios {
		for i, rate := range []progress.Rate{progress.RateAuto, progress.RateFull} {
			if !all && k%2 != i {
				continue
			}
			for seed := 1; seed <= seeds; seed++ {
				t.Run(fmt.Sprintf("%s/%s/%d", scenario, rate, seed), func(t *testing.T) {
					// Other load of the machine can disturb a single variant: it has three tries, repeats have one.
					tries := 3
					if all {
						tries = 1
					}
					wrong := checkJob(t, scenario, seed, rate, score)
					for try := 1; try < tries && len(wrong) > 0; try++ {
						t.Logf("recorded again: %v", wrong)
						wrong = checkJob(t, scenario, seed, rate, score)
					}
					for _, c := range checksOf(scenario) {
						key := fmt.Sprintf("%-12s %-4s %s", scenario, rate, c.name)
						of[key]++
						if len(wrong[c.name]) == 0 {
							right[key]++
						}
						for _, text := range wrong[c.name] {
							t.Errorf("%s: %s", c.name, text)
						}
					}
				})
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		t.Logf("%s: right in %d of %d", key, right[key], of[key])
	}
	t.Logf("%d of %d means lie within two standard errors", score.inside, score.values)
	if score.inside*100 < score.values*95 || score.values == 0 {
		t.Errorf("%d of %d means lie within two standard errors", score.inside, score.values)
	}
}

// checkJob records a variant of a scenario. It returns the first errors of each check that fails.
func checkJob(t *testing.T, scenario string, seed int, rate progress.Rate, score *jobScore) map[string][]string {
	t.Helper()
	const most = 5
	run := recordSoundJob(t, scenario, seed, rate)
	defer run.timeline.Rec.Close()
	run.score = score
	wrong := make(map[string][]string)
	for _, c := range checksOf(scenario) {
		if list := c.check(run); len(list) > 0 {
			wrong[c.name] = list[:min(most, len(list))]
		}
	}
	return wrong
}

// checksOf returns the checks of a scenario.
func checksOf(scenario string) (list []jobCheck) {
	list = slices.Clone(jobChecks)
	for _, r := range reportChecks {
		if r.isPresent() {
			list = append(list, r.checks...)
		}
	}
	return slices.DeleteFunc(list, func(c jobCheck) bool {
		return c.scenarios != nil && !slices.Contains(c.scenarios, scenario)
	})
}

// recordSoundJob records a variant whose truth the ledger confirms. Other programs on the machine can
// delay the program so much that it is another one.
func recordSoundJob(t *testing.T, scenario string, seed int, rate progress.Rate) *jobRun {
	t.Helper()
	const tries = 4
	var why string
	for range tries {
		run := recordJob(t, scenario, seed, rate)
		if why = run.doubt(); why == "" {
			return run
		}
		t.Logf("recorded again: %s", why)
		run.timeline.Rec.Close()
	}
	t.Fatalf("the program was never as planned: %s", why)
	return nil
}

// recordJob records a variant of a scenario from before its first step to its end.
func recordJob(t *testing.T, scenario string, seed int, rate progress.Rate) *jobRun {
	t.Helper()
	needKernel(t)
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	operations, truth := filepath.Join(folder, "works.tsv"), filepath.Join(folder, "truth.json")
	line := simtest.OnDevices(dir, "jobs", scenario, "--seed", fmt.Sprint(seed), "--truth", truth, "--wait")
	p := startSim(
		t,
		[]string{"SIMCUDA_TIME=on", "SIMCUDA_CHANNELS=tear_ns=0", "SIMCUDA_WORKS=" + operations, "SIMCUDA_LEDGER="},
		line[0],
		line[1:]...)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.GPUTime, opt.NVMLInterval = rate, time.Second
	s := start(t, opt)
	run := &jobRun{gpuRun: &gpuRun{t: t}}
	run.result = runWhile(t, s, func() {
		p.step()
		eventually(t, "channels have rows", func() bool { return s.progress.Channels() > 0 })
		p.step()
		if scenario == "stuck" {
			p.expect("stuck")
			awaitOpenCall(t, s, "cuStreamSynchronize", 1500*time.Millisecond) // hang calls 1 s long
			return
		}
		p.expect("done")
	})
	if scenario == "stuck" {
		p.kill()
	} else {
		p.finish()
	}
	run.ledger, run.truth = simtest.ReadOperationLedger(t, operations), simtest.ReadJobTruth(t, truth)
	run.rows, run.channels = readProgress(t, opt.Output)
	rec, err := format.Open(opt.Output)
	if err != nil {
		t.Fatal(err)
	}
	if run.timeline, err = timeline.Open(rec); err != nil {
		t.Fatal(err)
	}
	run.timeline.AddSourceLines(new(symbolize.Finder))
	if scenario == "stuck" {
		for i := range run.slowOperations() {
			run.stuckNs = run.ledger.Operations[i].CallNs
		}
	}
	return run
}

// report runs a report over the steps of the recording, or over all of a recording without an end.
func (r *jobRun) report(name string) *analysis.Report {
	r.t.Helper()
	var opt query.Options
	if steps := r.truth.EventsOf("step"); r.stuckNs == 0 {
		opt.FromNs = steps[0].StartNs + r.result.Meta.ClockOffsetNs
	}
	out, err := analyze.FindReport(name).Run(r.timeline.NewView(), opt)
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return out
}

// tableOf returns a table of a report, or nil.
func tableOf(r *analysis.Report, name string) *analysis.Table {
	for i := range r.Tables {
		if r.Tables[i].Name == name {
			return &r.Tables[i]
		}
	}
	return nil
}

// ---- the ledger confirms the truth ----

// span is a time in ns. Spans of the truth and of the ledger are CLOCK_MONOTONIC here.
type span struct{ from, to int64 }

// ledgerSpan returns the time of an operation.
func (r *jobRun) ledgerSpan(w *simtest.Operation) span {
	offset := r.ledger.Clocks[0].RealMinusMonotonicNs
	return span{w.StartNs - offset, w.EndNs - offset}
}

// spansOf returns the times of the operations of steps that pass, in order of their starts.
func (r *jobRun) spansOf(passes func(*simtest.Operation) bool) (list []span) {
	first := r.truth.EventsOf("step")[0].StartNs
	for i := range r.ledger.Operations {
		if w := &r.ledger.Operations[i]; w.CallNs > first && passes(w) {
			list = append(list, r.ledgerSpan(w))
		}
	}
	return list
}

// idleSpans returns the pauses of at least 50 µs between operations, which are in order of their starts.
func idleSpans(operations []span) (list []span) {
	const leastNs = 50_000
	for i, until := 1, operations[0].to; i < len(operations); i++ {
		if operations[i].from-until >= leastNs {
			list = append(list, span{until, operations[i].from})
		}
		until = max(until, operations[i].to)
	}
	return list
}

func totalNs(list []span) (ns int64) {
	for _, s := range list {
		ns += s.to - s.from
	}
	return ns
}

// overlapNs returns for how long spans overlap others. No spans of a list overlap each other.
func overlapNs(list, others []span) (ns int64) {
	for _, a := range list {
		for _, b := range others {
			ns += max(0, min(a.to, b.to)-max(a.from, b.from))
		}
	}
	return ns
}

// doubt returns how the ledger contradicts the plan of the program, or "".
func (r *jobRun) doubt() string {
	isMain := func(w *simtest.Operation) bool { return w.Kind == "kernel" && w.Stream == r.truth.MainStream }
	all, main := r.spansOf(func(*simtest.Operation) bool { return true }), r.spansOf(isMain)
	if len(main) < 500 {
		return fmt.Sprintf("only %d kernels", len(main))
	}
	offsetNs := r.result.Meta.ClockOffsetNs
	words := &operationReview{run: r.gpuRun, ledgerToNs: offsetNs - r.ledger.Clocks[0].RealMinusMonotonicNs}
	if ns := words.lateness().writtenNs; ns > mostLateNs() {
		return fmt.Sprintf("the thread that plays the GPU was up to %d ns late", ns)
	}
	idle, idleMain := idleSpans(all), idleSpans(main)
	share := func(ns, of int64) float64 { return float64(ns) / float64(max(1, of)) }
	idleShare := share(totalNs(idle), all[len(all)-1].to-all[0].from)
	explained := func(by []span, of []span) string {
		if s := share(overlapNs(of, by), totalNs(of)); s < 0.8 {
			return fmt.Sprintf("the cause explains %.0f %% of the idle time", 100*s)
		}
		return ""
	}
	switch r.truth.Scenario {
	case "gpu-bound":
		if idleShare > 0.1 {
			return fmt.Sprintf("the GPU is idle for %.0f %%", 100*idleShare)
		}
	case "host-bound":
		if idleShare < 0.5 {
			return fmt.Sprintf("the GPU is idle for %.0f %%", 100*idleShare)
		}
	case "late-host":
		return explained(r.spansOfEvents("delay"), idle)
	case "copy-wait":
		return explained(r.spansOf(func(w *simtest.Operation) bool { return w.Kind == "copy-in" }), idleMain)
	case "stream-wait":
		return explained(r.spansOf(func(w *simtest.Operation) bool { return w.Kernel == r.truth.SideKernel }), idleMain)
	case "slow-kernel":
		if len(r.slowOperations()) != len(r.truth.EventsOf("slow")) || len(r.slowOperations()) == 0 {
			return fmt.Sprintf("%d slow launches", len(r.slowOperations()))
		}
	}
	return ""
}

func (r *jobRun) spansOfEvents(kind string) (list []span) {
	for _, e := range r.truth.EventsOf(kind) {
		list = append(list, span{e.StartNs, e.EndNs})
	}
	return list
}

// slowOperations returns the launches that took longer than planned, by their place in the ledger.
func (r *jobRun) slowOperations() map[int]simtest.JobEvent {
	slow, events := make(map[int]simtest.JobEvent), r.truth.EventsOf("slow")
	for _, e := range events {
		best := -1
		for i := range r.ledger.Operations {
			w := &r.ledger.Operations[i]
			if w.CallNs >= e.StartNs && w.Kernel == e.Kernel &&
				(best < 0 || w.CallNs < r.ledger.Operations[best].CallNs) {
				best = i
			}
		}
		if best >= 0 {
			slow[best] = e
		}
	}
	return slow
}

// siteOf returns the name of a place of the truth as reports print it.
func siteOf(function string, line int) string {
	return fmt.Sprintf("%s (jobs_step.c:%d)", function, line)
}
