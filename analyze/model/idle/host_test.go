package idle_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// hostFault is a delay of the host at a line of the program.
type hostFault struct {
	name  string
	cause hosttime.Cause
	delay func(t *gpuprogram.JobThread, ns int64)
}

// hostFaults are all kinds of faults.
var hostFaults = []hostFault{
	{"dataloader", hosttime.CauseLoader, func(t *gpuprogram.JobThread, ns int64) {
		t.BlockIn(ns, format.WaitFact{Reason: format.ReasonPoll}, gpuprogram.DataLoaderFrames()...)
	}},
	{"cpu", hosttime.CauseCPU, (*gpuprogram.JobThread).Work},
	{"gc", hosttime.CauseGC, (*gpuprogram.JobThread).Collect},
	block(
		"gil",
		hosttime.CauseGIL,
		format.WaitFact{Reason: format.ReasonGIL, OwnerPid: 100, OwnerTid: 77, Owner: "log"},
	),
	block("run queue", hosttime.CauseRunQueue,
		format.WaitFact{Reason: format.ReasonRunQueue, OwnerPid: 9, OwnerTid: 9, Owner: "other"}),
	block("throttled", hosttime.CauseThrottled, format.WaitFact{Reason: format.ReasonThrottled}),
	block("file", hosttime.CauseFile, format.WaitFact{Reason: format.ReasonFile, Target: "/data/a.bin"}),
	block(
		"lock",
		hosttime.CauseLock,
		format.WaitFact{Reason: format.ReasonLock, OwnerPid: 100, OwnerTid: 78, Owner: "io"},
	),
	block("network", hosttime.CauseNetwork, format.WaitFact{Reason: format.ReasonNetwork, Target: "10.0.0.1:80"}),
	block("sleep", hosttime.CauseSleep, format.WaitFact{Reason: format.ReasonSleep}),
	block("child", hosttime.CauseChild, format.WaitFact{Reason: format.ReasonChild, OwnerPid: 500, Owner: "ffmpeg"}),
}

func block(name string, cause hosttime.Cause, f format.WaitFact) hostFault {
	return hostFault{name, cause, func(t *gpuprogram.JobThread, ns int64) { t.Block(ns, f) }}
}

// runHostProgram runs a training loop of 80 steps with faults at random lines, and returns these lines.
func runHostProgram(j *gpuprogram.Job, random *rand.Rand, faults []hostFault) (lines []int) {
	p := j.Process(0)
	for _, f := range faults {
		if f.cause == hosttime.CauseThrottled {
			p.Throttle("/pod", 2)
		}
	}
	t, stream := p.Thread(), p.Stream()
	t.Enter("/app/train.py", "main")
	shortest, share := make([]int64, len(faults)), make([]float64, len(faults))
	for i := range faults {
		lines = append(lines, 100*(i+1)+random.IntN(50))
		shortest[i] = (3 + random.Int64N(40)) * analyzetest.Ms
		share[i] = 0.3 + 0.7*random.Float64()
	}
	for range 80 {
		for i, f := range faults {
			if random.Float64() < share[i] {
				t.Line(lines[i])
				f.delay(t, shortest[i]+random.Int64N(20*analyzetest.Ms))
			}
		}
		for k := range 20 {
			t.Line(10 + k%3)
			t.Compute(20_000)
			t.Launch(stream, "gemm", 64, 60_000)
		}
		t.Line(20)
		t.Synchronize(stream)
	}
	return lines
}

// idleDevice returns the idle time of the only device of a job.
func idleDevice(t *testing.T, j *gpuprogram.Job) (*idle.Device, *timeline.Timeline) {
	t.Helper()
	tl := j.Recording(t, 0).Timeline()
	r, err := idle.Compute(tl, idle.Options{Filter: new(query.Filter)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Devices) != 1 {
		t.Fatalf("%d devices", len(r.Devices))
	}
	return r.Devices[0], tl
}

// causeLine is a cause at a line.
type causeLine struct {
	cause hosttime.Cause
	line  string
}

// faultTruth returns the time of each fault between the first and the last operation, ns.
func faultTruth(j *gpuprogram.Job, w query.Window, faults []hostFault, lines []int) map[causeLine]float64 {
	truth := make(map[causeLine]float64)
	for _, s := range j.HostSpans() {
		ns := min(s.ToNs, w.ToNs) - max(s.FromNs, w.FromNs)
		for i, f := range faults {
			if line := fmt.Sprintf("main (train.py:%d)", lines[i]); s.Site == line && ns > 0 {
				truth[causeLine{f.cause, line}] += float64(ns)
			}
		}
	}
	return truth
}

// checkHost compares the breakdown of the late host with the truth. It returns the shares of the time in
// which the host was late that are explained, and that have a cause or a line that is not true, in percent.
func checkHost(d *idle.Device, tl *timeline.Timeline, truth map[causeLine]float64) (explained, wrong float64) {
	got := make(map[causeLine]float64)
	for _, e := range d.Host {
		at := causeLine{cause: e.Cause}
		if e.Stack != 0 {
			at.line = tl.SiteOfStack(e.Stack)
		}
		got[at] += e.Ns
	}
	wrongNs := 0.0
	for at, ns := range got {
		switch {
		case !at.cause.IsKnown():
		case at.line == "": // the cause must be true
			for other, truthNs := range truth {
				if other.cause == at.cause {
					ns -= max(0, truthNs-got[other])
				}
			}
			wrongNs += max(0, ns)
		case at.cause.IsRunning() && truth[at] == 0: // what the program does between its launches
		default:
			wrongNs += max(0, ns-truth[at])
		}
	}
	return d.HostExplainedPct(), 100 * wrongNs / max(1, d.HostNs)
}

// TestHostCauses checks the causes of late hosts in random programs with one or two faults.
func TestHostCauses(t *testing.T) {
	testclass.Unit(t)
	for i, first := range hostFaults {
		for seed := range uint64(20) {
			name := fmt.Sprintf("%s/%d", first.name, seed)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				j := gpuprogram.NewJob(seed, gpuprogram.Plan{Full: true})
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				j.RecordHost(gpuprogram.HostRecorder{})
				faults := []hostFault{first}
				if second := hostFaults[random.IntN(len(hostFaults))]; seed%2 == 1 && isApart(first, second) {
					faults = append(faults, second)
				}
				lines := runHostProgram(j, random, faults)
				d, tl := idleDevice(t, j)
				truth := faultTruth(j, d.Window, faults, lines)
				explained, wrong := checkHost(d, tl, truth)
				if explained < 90 || wrong > 10 {
					t.Errorf("%.1f%% explained, %.1f%% wrong", explained, wrong)
				}
				checkFaults(t, d, tl, truth)
			})
		}
	}
}

// isApart reports whether the recording tells two faults from each other. A cgroup's counter does not tell which
// of the times in run queues are due to its limit.
func isApart(a, b hostFault) bool {
	queues := 0
	for _, f := range []hostFault{a, b} {
		if f.cause == hosttime.CauseRunQueue || f.cause == hosttime.CauseThrottled {
			queues++
		}
	}
	return a.cause != b.cause && queues < 2
}

// checkFaults checks that each fault has at least 85% of its time, and is the cause of the longest gaps.
func checkFaults(t *testing.T, d *idle.Device, tl *timeline.Timeline, truth map[causeLine]float64) {
	t.Helper()
	for at, ns := range truth {
		got := 0.0
		for _, e := range d.Host {
			if e.Cause == at.cause && e.Stack != 0 && tl.SiteOfStack(e.Stack) == at.line {
				got += e.Ns
			}
		}
		if got < 0.85*ns {
			t.Errorf("%s at %s: %.1f ms of %.1f ms", at.cause, at.line, got/1e6, ns/1e6)
		}
	}
	longest := d.Gaps[0].Host
	if at := (causeLine{longest.Cause, tl.SiteOfStack(longest.Stack)}); truth[at] == 0 {
		t.Errorf("longest gap: the host %s at %s", at.cause, at.line)
	}
}

// TestHostCausesWithLosses checks that waits and samples that are lost are unknown, and not another cause.
func TestHostCausesWithLosses(t *testing.T) {
	testclass.Unit(t)
	for _, test := range []struct {
		name     string
		recorder gpuprogram.HostRecorder
		maxWrong float64
	}{
		{"lost waits", gpuprogram.HostRecorder{LostShare: 0.4}, 10},
		{"all waits lost", gpuprogram.HostRecorder{LostShare: 1}, 10},
		{"no samples", gpuprogram.HostRecorder{Unsampled: true}, 5},
		{"no samples and no counters", gpuprogram.HostRecorder{Unsampled: true, Uncounted: true, LostShare: 0.4}, 1},
		{"no short waits", gpuprogram.HostRecorder{MinWaitNs: 30 * analyzetest.Ms}, 10},
	} {
		for i, fault := range hostFaults {
			t.Run(test.name+"/"+fault.name, func(t *testing.T) {
				t.Parallel()
				j := gpuprogram.NewJob(uint64(i), gpuprogram.Plan{Full: true})
				j.RecordHost(test.recorder)
				lines := runHostProgram(j, rand.New(rand.NewPCG(uint64(i), 5)), []hostFault{fault})
				d, tl := idleDevice(t, j)
				_, wrong := checkHost(d, tl, faultTruth(j, d.Window, []hostFault{fault}, lines))
				if wrong > test.maxWrong {
					t.Errorf("%.1f%% wrong", wrong)
				}
				sum := 0.0
				for _, e := range d.Host {
					sum += e.Ns
				}
				if sum < d.HostNs*0.999 || sum > d.HostNs*1.001 {
					t.Errorf("the parts are %.0f ns of %.0f ns", sum, d.HostNs)
				}
				checkBaseTime(t, d, j)
			})
		}
	}
}

// checkBaseTime checks that no more CPU time is reported than the threads had.
func checkBaseTime(t *testing.T, d *idle.Device, j *gpuprogram.Job) {
	t.Helper()
	truthNs, gotNs := 0.0, 0.0
	for _, s := range j.HostSpans() {
		if s.State == format.StateRunning && s.Reason == "" {
			truthNs += float64(s.ToNs - s.FromNs)
		}
	}
	for _, e := range d.Host {
		if e.Cause.IsRunning() {
			gotNs += e.Ns
		}
	}
	if gotNs > truthNs+0.1*d.HostNs {
		t.Errorf("%.1f ms on the CPU, but it was %.1f ms", gotNs/1e6, truthNs/1e6)
	}
}
