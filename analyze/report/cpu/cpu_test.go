package cpu_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const second, ms = analyzetest.Second, analyzetest.Ms

func run(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) *report.Report {
	t.Helper()
	r, err := cpu.Run(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTimesOfThreads(t *testing.T) {
	testclass.Unit(t)
	r := run(t, analyzetest.HostRecording(t), query.Options{})
	for table, columns := range map[string]map[string][]string{
		"threads": {
			"tid":          {"42", "77", "43"},
			"on_cpu_ns":    {"3980000000", "9500000000", "1000000000"},
			"run_queue_ns": {"210000000", "500000000", "0"},
			"covered_pct":  {"100", "100", "100"},
			"launches":     {"10", "", ""},
			"waits":        {"51", "", ""},
			"wait_ns":      {fmt.Sprint(10*595*ms + 70*ms), "", ""},
			"samples":      {"50", "", ""},
			"gil_held_pct": {"45", "", "50"},
			"switches":     {"5000", "", ""},
		},
		"reasons": {
			"reason":              {"poll", "cuda", "gil", "file", "run_queue", "unknown"},
			"wait_ns":             {"4000000000", "1000000000", "600000000", "200000000", "150000000", "70000000"},
			"waits":               {"10", "10", "10", "10", "10", "1"},
			"mean_ns":             {"400000000", "100000000", "60000000", "20000000", "15000000", "70000000"},
			"wait_run_queue_ns":   {"10000000", "50000000", "0", "0", "150000000", "0"},
			"stack_pct":           {"100", "100", "100", "100", "0", "0"},
			"uninterruptible_pct": {"0", "0", "0", "100", "0", "0"},
			"open":                {"", "", "", "", "", "1"},
		},
		"waits": {
			"site": {
				"next_batch (train.py:12)", "synchronize (train.py:31)", "log (train.py:20)", "read_shard (train.py:25)",
				"(no stack)", "(no stack)",
			},
			"call": {"poll", "cuStreamSynchronize", "futex", "read", "", ""},
			"for": {
				"process 77 pt_data_worker", "", "thread 42/43 logger", "/data/shard-1.tar", "", "",
			},
		},
		"lines": {
			"cpu_ns":   {"800000000", "200000000"},
			"error_ns": {fmt.Sprint(int64(math.Round(math.Sqrt(40 * 20e6 * 20e6)))), fmt.Sprint(int64(math.Round(math.Sqrt(10 * 20e6 * 20e6))))},
			"function": {"preprocess", "gather"},
			"site":     {"preprocess (train.py:55)", "collate (train.py:61)"},
		},
		"collections": {
			"generation":     {"2", "unknown", "0", "1"},
			"gc_ns":          {"70000000", "10000000", "0", "0"},
			"uncertainty_ns": {"10000000", "10000000", "0", "0"},
			"collections":    {"2", "", "800", "70"},
		},
		"interpreters": {
			"readings": {"2000"}, "gil_held_pct": {"95"}, "collecting_pct": {"0.8"},
			"holder": {"42/43 logger"}, "waiter": {"42/42 python"},
		},
		"limits": {
			"limit_cores": {"2.5"}, "throttled_pct": {"25"}, "throttled_ns": {"1500000000"}, "cgroup": {"/kubepods/pod1"},
		},
		"input": {"read_bytes": {"3221225472"}, "major_faults": {"7"}},
		"pressure": {
			"resource": {"cpu", "io", "memory"}, "pressure_pct": {"8", "1", "0"},
		},
	} {
		for column, want := range columns {
			got := analyzetest.ColumnTexts(t, r, table, column)
			for i := range got {
				got[i] = strings.Replace(got[i], "<nil>", "", 1)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %s: got %q, want %q", table, column, got, want)
			}
		}
	}
	analyzetest.CheckNumbers(t, r, map[string]float64{
		"threads": 3, "waits": 51, "wait_ns": 6.02e9, "samples": 50, "sampled_ns": 1e9, "gc_pauses": 3, "gc_ns": 80e6,
		"throttled_ns": 1.5e9, "lost_rows": 0, "bad_rows": 0, "on_cpu_ns": 14.48e9,
	})
}

// TestWindowCutsWaits checks that only the part of a wait in the window counts.
func TestWindowCutsWaits(t *testing.T) {
	testclass.Unit(t)
	opt := query.Options{}
	opt.FromNs, opt.ToNs = analyzetest.Epoch+200*ms, analyzetest.Epoch+480*ms
	r := run(t, analyzetest.HostRecording(t), opt)
	want := []string{fmt.Sprint(210 * ms), fmt.Sprint(30 * ms)}
	if got := analyzetest.ColumnTexts(t, r, "waits", "wait_ns"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFilterSelectsThreads(t *testing.T) {
	testclass.Unit(t)
	opt := query.Options{}
	opt.Tids = []int32{43}
	r := run(t, analyzetest.HostRecording(t), opt)
	analyzetest.CheckNumbers(t, r, map[string]float64{"threads": 1, "waits": 0, "samples": 0})
	opt.Tids, opt.Pids = nil, []int32{4711}
	if r = run(t, analyzetest.HostRecording(t), opt); r.NoMatch == nil {
		t.Error("no reason why nothing matches")
	}
}

// TestWithoutClassHost checks the sentence that says how to record the class.
func TestWithoutClassHost(t *testing.T) {
	testclass.Unit(t)
	ended := analyzetest.TrainingRecording(t) // has the states of threads at its end, and no times
	ended.AddRow(format.Row{
		Kind:    format.KindThreadState,
		Name:    format.StateSleeping,
		Pid:     42,
		Tid:     42,
		Device:  -1,
		StartNs: analyzetest.Epoch,
		Message: `{"when":"end"}`,
	})
	for _, recording := range []*analyzetest.TestRecording{analyzetest.TrainingRecording(t), ended} {
		r := run(t, recording, query.Options{})
		for _, f := range r.Facts {
			if f.Key == "result" && !strings.Contains(fmt.Sprint(f.Value), "gpurec record --host auto") {
				t.Errorf("no command: %v", f.Value)
			}
		}
		for _, table := range r.Tables {
			if len(table.Rows) > 0 {
				t.Errorf("table %s has rows", table.Name)
			}
		}
	}
}

func TestLossesLowerConfidence(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		change func(recording *analyzetest.TestRecording)
		want   string
	}{
		"complete": {func(*analyzetest.TestRecording) {}, "high"},
		"lost rows": {
			func(recording *analyzetest.TestRecording) {
				recording.Meta.HostRows = &format.RowCount{Recorded: 100, Lost: 3}
			},
			"medium: 3 rows of class host lost",
		},
		"more lost than recorded": {
			func(recording *analyzetest.TestRecording) {
				recording.Meta.HostRows = &format.RowCount{Recorded: 100, Lost: 3000}
			},
			"low: 3,000 rows of class host lost",
		},
		"no stacks": {
			func(recording *analyzetest.TestRecording) {
				for _, r := range recording.Rows {
					if r.Kind == format.KindWait {
						r.StackID = 0
					}
				}
			},
			"medium: only 0% of the time in waits has a stack",
		},
	} {
		t.Run(name, func(t *testing.T) {
			recording := analyzetest.HostRecording(t)
			c.change(recording)
			for _, f := range run(t, recording, query.Options{}).Facts {
				if f.Key == "confidence" && f.Value != c.want {
					t.Errorf("got %q, want %q", f.Value, c.want)
				}
			}
		})
	}
}

// TestImpossibleRowsAreCounted checks rows that no recorder writes.
func TestImpossibleRowsAreCounted(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.HostRecording(t)
	wait := func(dur int64, state, message string) {
		r := recording.AddWait(42, 520*ms, dur, 0, state, 0, format.WaitFact{})
		r.Message = message
	}
	wait(-5*second, format.StateSleeping, "{}")                           // a negative duration
	wait(ms, "levitating", "{}")                                          // an unknown state
	wait(ms, format.StateSleeping, "{reason:")                            // an unreadable message
	recording.AddWait(42, 20*ms, ms, 0, "sleeping", 0, format.WaitFact{}) // inside of another wait
	for _, value := range []float64{math.NaN(), math.Inf(1), -1} {
		recording.AddRow(
			format.Row{
				Kind:    format.KindHost,
				Name:    format.HostRunning,
				Pid:     42,
				Tid:     42,
				Value:   value,
				StartNs: analyzetest.Epoch,
			},
		)
	}
	recording.AddRow(
		format.Row{Kind: format.KindHost, Name: "levity", Pid: 42, Tid: 42, Value: 1, StartNs: analyzetest.Epoch},
	)
	recording.AddWait(
		42,
		540*ms,
		2*ms,
		9*second,
		format.StateSleeping,
		12345,
		format.WaitFact{Reason: "boredom\x1b[2J"},
	)
	r := run(t, recording, query.Options{})
	var waited float64
	for _, f := range r.Totals {
		switch f.Key {
		case "bad_rows":
			if n := f.Value.(int64); n < 7 {
				t.Errorf("%d rows with impossible values", n)
			}
		case "wait_ns":
			waited = float64(f.Value.(int64))
		}
	}
	if waited > 10e9 {
		t.Errorf("one thread waited %.1f s of 10 s", waited/1e9)
	}
	analyzetest.CheckSafeToPrint(t, r)
}

func TestCPULooksAsBefore(t *testing.T) {
	testclass.Unit(t)
	opt := query.Options{Top: 20, MaxFrames: 12}
	analyzetest.CompareGoldenReports(t, run(t, analyzetest.HostRecording(t), opt), "cpu", 140)
}

func TestCPUWithoutHostLooksAsBefore(t *testing.T) {
	testclass.Unit(t)
	analyzetest.CompareGoldenReports(t, run(t, analyzetest.TrainingRecording(t), query.Options{}), "without_host", 120)
}
