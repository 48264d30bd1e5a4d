package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// idleProgram is a training loop that leaves the GPU idle. The host calls step in each step, besides 40 launches.
type idleProgram struct {
	name      string
	step      func(t *gpuprogram.JobThread, s *gpuprogram.JobStream, i int)
	rule      string // of the first finding
	what      string // beginning of what it says, without the share that is idle
	where     string
	onlyTimed bool // only with GPU times: for a cause that is unknown without them, or to save time
	isWithout bool // the symptom stands alone
}

// blocks returns a step in which the thread waits for a reason.
func blocks(ms int64, reason string, library ...string) func(*gpuprogram.JobThread, *gpuprogram.JobStream, int) {
	return func(t *gpuprogram.JobThread, _ *gpuprogram.JobStream, _ int) {
		t.Line(12)
		t.BlockIn(
			ms*analyzetest.Ms,
			format.WaitFact{Reason: reason, OwnerPid: 100, OwnerTid: 1002, Target: "/data/a"},
			library...)
	}
}

// idlePrograms have one cause that explains at least 30% of the idle time, or none.
func idlePrograms() []idleProgram {
	return []idleProgram{
		{
			name: "garbage collection", rule: "gc-pause", what: "garbage collection, ", where: "main (train.py:13)",
			step: func(t *gpuprogram.JobThread, _ *gpuprogram.JobStream, _ int) {
				t.Line(13)
				t.Collect(12 * analyzetest.Ms)
			},
		},
		{
			name: "data loader", rule: "dataloader-bound", what: "the DataLoader, ", where: "main (train.py:12)",
			step: blocks(12, format.ReasonPoll, gpuprogram.DataLoaderFrames()...), onlyTimed: true,
		},
		{
			name:  "GIL",
			rule:  "gil-bound",
			what:  "waits for the GIL, ",
			where: "main (train.py:12)",
			step:  blocks(9, format.ReasonGIL),
		},
		{
			name:  "files",
			rule:  "io-bound",
			what:  "waits for files, ",
			where: "main (train.py:12)",
			step:  blocks(14, format.ReasonFile), onlyTimed: true,
		},
		{
			name:  "sleep",
			rule:  "gpu-idle",
			what:  "sleep, ",
			where: "main (train.py:12)",
			step:  blocks(11, format.ReasonSleep),
		},
		{
			name:  "lock",
			rule:  "gpu-idle",
			what:  "waits for a lock, ",
			where: "main (train.py:12)",
			step:  blocks(11, format.ReasonLock),
		},
		{
			name: "own work", rule: "gpu-idle", what: "the host's own work, ", where: "main (train.py:14)",
			step: func(t *gpuprogram.JobThread, _ *gpuprogram.JobStream, _ int) {
				t.Line(14)
				t.Work(16 * analyzetest.Ms)
			},
		},
		{
			name: "waits in a loop", rule: "sync-in-loop", what: "waiting for the GPU before launches, ",
			where: "main (train.py:16)", onlyTimed: true,
			step: func(t *gpuprogram.JobThread, s *gpuprogram.JobStream, _ int) {
				for range 60 {
					t.Line(15)
					t.Compute(40_000)
					t.Launch(s, "small", 64, 10_000)
					t.Line(16)
					t.Synchronize(s)
				}
			},
		},
		{
			name: "memory", rule: "gpu-idle", what: "allocating and freeing memory, ", where: "main (train.py:17)",
			onlyTimed: true,
			step: func(t *gpuprogram.JobThread, _ *gpuprogram.JobStream, _ int) {
				t.Line(17)
				t.Call(format.KindAPI, "cuMemCreate", 9*analyzetest.Ms)
			},
		},
		{
			name:      "launches",
			rule:      "gpu-idle",
			what:      "launching kernels, ",
			where:     "main (train.py:18)",
			onlyTimed: true,
			step: func(t *gpuprogram.JobThread, s *gpuprogram.JobStream, _ int) {
				t.Line(18)
				for range 400 {
					t.Compute(12_000)
					t.Launch(s, "small", 64, 2_000)
				}
			},
		},
		{
			name: "many causes", rule: "gpu-idle", isWithout: true,
			step: func(t *gpuprogram.JobThread, s *gpuprogram.JobStream, i int) {
				for k, reason := range []string{format.ReasonSleep, format.ReasonGIL, format.ReasonFile, format.ReasonLock} {
					t.Line(30 + k)
					t.Block(3*analyzetest.Ms, format.WaitFact{Reason: reason})
				}
			},
		},
	}
}

// record runs the program and records it, with or without GPU times.
func (p *idleProgram) record(t *testing.T, timed bool) *analyzetest.TestRecording {
	t.Helper()
	j := gpuprogram.NewJob(4, gpuprogram.Plan{Full: true})
	j.RecordHost(gpuprogram.HostRecorder{})
	process := j.Process(0)
	th, stream := process.Thread(), process.Stream()
	th.Enter("/app/train.py", "main")
	steps := 440 // launches must last for 5 s
	if timed {
		steps = 250
	}
	for i := range steps {
		p.step(th, stream, i)
		th.Line(20)
		for range 40 {
			th.Compute(5_000)
			th.Launch(stream, "gemm", 264, 100_000)
		}
		th.Line(21)
		th.Synchronize(stream)
	}
	recording := j.Recording(t, 0)
	if !timed {
		recording.RemoveRows(
			func(r *format.Row) bool { return r.Kind == format.KindProgress || r.Kind == format.KindChannel },
		)
	}
	return recording
}

// TestFirstFindings states the first row of the hits of each case of a rule, and of the recordings in docs. No other rule
// may be in front of the cause.
func TestFirstFindings(t *testing.T) {
	testclass.Unit(t)
	var lines strings.Builder
	first := func(name string, r *report.Report) (rule string) {
		rules := analyzetest.ColumnTexts(t, r, "hits", "rule")
		if len(rules) == 0 {
			fmt.Fprintf(&lines, "%s: no finding\n", name)
			return ""
		}
		fmt.Fprintf(&lines, "%s: %s %s: %s; %s\n", name, analyzetest.ColumnTexts(t, r, "hits", "severity")[0], rules[0],
			analyzetest.ColumnTexts(t, r, "hits", "what")[0], analyzetest.ColumnTexts(t, r, "hits", "where")[0])
		return rules[0]
	}
	cases := rulecases.AllCases()
	for _, id := range slices.Sorted(maps.Keys(cases)) {
		recording := analyzetest.SteadyRecording(t)
		cases[id].Fires(recording)
		r := checked(t, recording, rules.Options{})
		if rule := first(id, r); rule != id && !slices.Contains(strings.Fields(cases[id].Also), rule) {
			t.Errorf("%s is in front of %s", rule, id)
		}
	}
	for _, name := range []string{"leak", "oom", "torch", "frees", "fixed"} {
		rec, err := format.Open("../../../docs/recordings/" + name + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Close()
		tl, err := timeline.Open(rec)
		if err != nil {
			t.Fatal(err)
		}
		r, err := rules.Run(tl, query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		first("docs/recordings/"+name+".parquet", r)
	}
	analyzetest.CompareGolden(t, "first_findings.txt", []byte(lines.String()))
}

// TestIdleGPUsAreHeadlinesOfTheirCause checks the first row of the hits, in the reports rules and summary.
func TestIdleGPUsAreHeadlinesOfTheirCause(t *testing.T) {
	testclass.Unit(t)
	for _, p := range idlePrograms() {
		for _, timed := range []bool{true, false} {
			if p.onlyTimed && !timed {
				continue
			}
			t.Run(fmt.Sprintf("%s, GPU times %t", p.name, timed), func(t *testing.T) {
				recording := p.record(t, timed)
				r := checked(t, recording, rules.Options{})
				rule, what := analyzetest.ColumnTexts(t, r, "hits", "rule")[0], analyzetest.ColumnTexts(t, r, "hits", "what")[0]
				where := analyzetest.ColumnTexts(t, r, "hits", "where")[0]
				t.Log(rule, what, where)
				headline, cause, _ := strings.Cut(what, "%: ")
				if rule != p.rule {
					t.Errorf("rule %s, want %s", rule, p.rule)
				}
				if p.isWithout {
					if strings.HasPrefix(what, "GPU idle") {
						t.Errorf("%q names a cause", what)
					}
				} else if !strings.HasPrefix(headline, "GPU idle ") || !strings.HasPrefix(cause, p.what) || !strings.HasPrefix(where, p.where) {
					t.Errorf("%q at %s, want %q at %s", what, where, p.what, p.where)
				}
				if n, _, _ := r.FindNumber("gpu_idle"); n == 0 {
					t.Error("--fail-on does not see gpu_idle")
				}
				sum, err := summary.Run(recording.Timeline(), query.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if got := analyzetest.ColumnTexts(t, sum, "hits", "what")[0]; got != what {
					t.Errorf("summary begins with %q, rules with %q", got, what)
				}
			})
		}
	}
}

// TestSymptomsAreFolded checks that symptoms of another rule's problem count, but are no findings.
func TestSymptomsAreFolded(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct{ cause, symptom, findings string }{
		{"oom-fragmentation", "oom-fragmentation", "out-of-memory"},
		{"failed-alloc-in-loop", "failed-alloc-in-loop", "out-of-memory"},
		{"use-after-free", "broken-context", "use-after-free"},
	} {
		recording := analyzetest.SteadyRecording(t)
		rulecases.AllCases()[c.cause].Fires(recording)
		r := checked(t, recording, rules.Options{})
		var findings []string
		for i, rule := range analyzetest.ColumnTexts(t, r, "hits", "rule") {
			if r.Tables[0].Rows[i].Folded {
				if into := analyzetest.ColumnTexts(t, r, "hits", "folded_into")[i]; rule != c.symptom ||
					into != c.findings {
					t.Errorf("%s is folded into %s", rule, into)
				}
				continue
			}
			findings = append(findings, rule)
		}
		if strings.Join(findings, " ") != c.findings {
			t.Errorf("%s: findings %v, want %s", c.cause, findings, c.findings)
		}
		if n, _, _ := r.FindNumber(strings.ReplaceAll(c.symptom, "-", "_")); n == 0 {
			t.Errorf("--fail-on does not see %s", c.symptom)
		}
	}
}

// TestChainsAreOneFinding checks an Xid that breaks a context, in which the program continues: all hits belong to the Xid.
func TestChainsAreOneFinding(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.SteadyRecording(t)
	rulecases.AllCases()["xid"].Fires(recording)
	for i := range int64(5) {
		recording.AddFullLaunch(59_950*analyzetest.Ms+i*analyzetest.Us, "after").Result = 700
	}
	r := checked(t, recording, rules.Options{})
	var got []string
	for i, rule := range analyzetest.ColumnTexts(t, r, "hits", "rule") {
		got = append(got, rule+" "+analyzetest.ColumnTexts(t, r, "hits", "folded_into")[i])
	}
	slices.Sort(got)
	if want := []string{"broken-context xid", "unchecked-error xid", "xid <nil>"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	explains := analyzetest.ColumnTexts(t, r, "hits", "explains")[0]
	if !strings.Contains(explains, "broken-context") || !strings.Contains(explains, "unchecked-error") {
		t.Errorf("the Xid explains %s", explains)
	}
}

// TestLowSMActivityOfSharedGPUs checks that the rule does not fire if another process has memory on the GPU.
func TestLowSMActivityOfSharedGPUs(t *testing.T) {
	testclass.Unit(t)
	for pid, want := range map[int32]int{42: 1, 4242: 0} {
		recording := analyzetest.SteadyRecording(t)
		rulecases.AllCases()["low-sm-activity"].Fires(recording)
		for at := analyzetest.Second; at < 60*analyzetest.Second; at += analyzetest.Second {
			recording.AddNVMLSample(1, at, catalog.MetricProcessMemory, 1<<30).Pid = pid
		}
		if got := analyzetest.ColumnTexts(t, checked(t, recording, rules.Options{}), "hits", "rule"); len(got) != want {
			t.Errorf("memory of process %d: %v", pid, got)
		}
	}
}

// TestLowSMActivityOfTwoRecordedProcesses checks that the rule does not fire if two recorded processes use the GPU.
func TestLowSMActivityOfTwoRecordedProcesses(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.SteadyRecording(t)
	rulecases.AllCases()["low-sm-activity"].Fires(recording)
	recording.AddRow(format.Row{
		Kind: format.KindProcess, Name: "train", Pid: 43, StartNs: analyzetest.Epoch, Device: -1,
		Message: `{"exe":"/app/train","devices":[{"ordinal":0,"uuid":"GPU-bbbb","how":"CUDA_VISIBLE_DEVICES"}]}`,
	})
	row := recording.AddFullLaunch(analyzetest.Second, "gemm<float>(int)")
	row.Pid, row.Tid = 43, 43
	if got := analyzetest.ColumnTexts(t, checked(t, recording, rules.Options{}), "hits", "rule"); len(got) > 0 {
		t.Errorf("two processes use the GPU: %v", got)
	}
}

// TestRatesOfSampledLaunches has 5,000 tiny launches a second, which are recorded in the first and the last second of a
// minute.
func TestRatesOfSampledLaunches(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddStack(1, "main")
	for _, from := range []int64{0, 59 * analyzetest.Second} {
		for i := range int64(5000) {
			row := recording.AddFullLaunch(from+i*200*analyzetest.Us, "tiny(int)")
			row.GridX, row.GridY, row.GridZ, row.BlockX, row.BlockY, row.BlockZ = 1, 1, 1, 32, 1, 1
			analyzetest.SetStackAndSite(row, 1, "step (model.py:24)")
		}
	}
	recording.AddSamplingGaps(analyzetest.SamplingGap{From: analyzetest.Second, To: 59 * analyzetest.Second})
	r := checked(t, recording, rules.Options{Rules: []string{"tiny-kernels"}})
	whats := analyzetest.ColumnTexts(t, r, "hits", "what")
	if len(whats) != 1 || !strings.HasSuffix(whats[0], ", 5,000 per second") {
		t.Errorf("%q, want 5,000 per second", whats)
	}
}

// TestSamplesRefuteIdleGPUs has a program whose GPU times bound the idle time loosely.
func TestSamplesRefuteIdleGPUs(t *testing.T) {
	testclass.Unit(t)
	programs := idlePrograms()
	launches := programs[slices.IndexFunc(programs, func(p idleProgram) bool { return p.name == "launches" })]
	for active, want := range map[float64]bool{5: true, 95: false} {
		recording := launches.record(t, true)
		recording.AddRow(
			format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: analyzetest.Epoch},
		)
		for at := int64(0); at < 8*analyzetest.Second; at += 100 * analyzetest.Ms {
			recording.AddNVMLSample(0, at, catalog.MetricSMActive, active)
		}
		r := checked(t, recording, rules.Options{Rules: []string{"gpu-idle"}})
		if whats := analyzetest.ColumnTexts(t, r, "hits", "what"); (len(whats) > 0) != want {
			t.Errorf("%.0f%% of the SMs active: %q", active, whats)
		}
	}
}

// TestEqualPlacesAreOneFinding runs the same program on two GPUs.
func TestEqualPlacesAreOneFinding(t *testing.T) {
	testclass.Unit(t)
	j := gpuprogram.NewJob(4, gpuprogram.Plan{Full: true})
	j.RecordHost(gpuprogram.HostRecorder{})
	for device := range int32(2) {
		process := j.Process(device)
		th, stream := process.Thread(), process.Stream()
		th.Enter("/app/train.py", "main")
		for range 100 {
			th.Line(13)
			th.Collect(12 * analyzetest.Ms)
			th.Line(20)
			for range 40 {
				th.Compute(5_000)
				th.Launch(stream, "gemm", 264, 100_000)
			}
			th.Synchronize(stream)
		}
	}
	r := checked(t, j.Recording(t, 0), rules.Options{})
	what := analyzetest.ColumnTexts(t, r, "hits", "what")
	if !strings.HasSuffix(what[0], ", and so on 1 more GPU") || !r.Tables[0].Rows[1].Folded {
		t.Errorf("findings %q", what)
	}
	if n, _, _ := r.FindNumber("gc_pause"); n != 2 {
		t.Errorf("--fail-on sees %v rows of evidence, want one for each GPU", n)
	}
}

// TestGrowingCodeIsANotice has libraries that are loaded all the time, and then events that grow, too.
func TestGrowingCodeIsANotice(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		calls []string
		want  string
	}{
		{[]string{"cuLibraryLoadData"}, "notice"},
		{[]string{"cuLibraryLoadData", "cuEventCreate"}, "problem"},
	} {
		recording := analyzetest.SteadyRecording(t)
		for k, call := range c.calls {
			for i := range int64(58) {
				row := recording.AddAPICall(call, i*analyzetest.Second, int64(k+1)<<20+i*0x100, 0)
				analyzetest.SetStackAndSite(row, 1, "train_step (train.cc:10)")
			}
		}
		r := checked(t, recording, rules.Options{Rules: []string{"object-leak"}})
		if got := analyzetest.ColumnTexts(t, r, "hits", "severity"); len(got) != 1 || got[0] != c.want {
			t.Errorf("%v: %v, want %s", c.calls, got, c.want)
		}
	}
}

// TestLinesComeFirst has launches by a function without a line, and fewer at a line.
func TestLinesComeFirst(t *testing.T) {
	testclass.Unit(t)
	for atLine, want := range map[int]string{2000: "step (model.py:24)", 400: "InputBuffer::add"} {
		recording := analyzetest.NewTestRecording(t)
		recording.AddStack(1, "main")
		for i := range int64(4000 + atLine) {
			row := recording.AddFullLaunch(i*100*analyzetest.Us, "tiny(int)")
			row.GridX, row.GridY, row.GridZ, row.BlockX, row.BlockY, row.BlockZ = 1, 1, 1, 32, 1, 1
			site := "InputBuffer::add"
			if i < int64(atLine) {
				site = "step (model.py:24)"
			}
			analyzetest.SetStackAndSite(row, 1, site)
		}
		r := checked(t, recording, rules.Options{Rules: []string{"tiny-kernels"}})
		if got := analyzetest.ColumnTexts(t, r, "hits", "where"); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%d launches at a line: %v, want %s", atLine, got, want)
		}
	}
}
