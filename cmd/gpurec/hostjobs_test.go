//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/simtest"
	"github.com/gpurec/gpurec/symbolize"
)

// hostAnswers has the cause in the table host of analyze gaps by the kind of a hold, and the rule that names it.
var hostAnswers = map[string]struct{ cause, rule string }{
	"sleep":          {"slept", ""},
	"mutex":          {"waited for a lock", ""},
	"lock":           {"waited for a lock", ""},
	"import":         {"waited for a lock", ""},
	"pipe":           {"waited for a pipe", ""},
	"child":          {"waited for a child process", ""},
	"file":           {"waited for a file", "io-bound"},
	"spin":           {"ran on the CPU", ""},
	"cgroup":         {"was throttled by its CPU limit", "cpu-throttled"},
	queuedKind:       {"waited for a CPU", "oversubscribed-cpu"},
	"oversubscribed": {"waited for a CPU", "oversubscribed-cpu"},
	"gc":             {"collected garbage", "gc-pause"},
	"gil":            {"waited for the GIL", "gil-bound"},
	"loader":         {"waited for the DataLoader", "dataloader-bound"},
}

// queuedKind is the kind of the time in run queues because of other programs. Its line is that of the fault, or of
// what the thread did before.
const queuedKind = "queued"

// hostRules are the rules about the host's side.
var hostRules = []string{"dataloader-bound", "gc-pause", "gil-bound", "cpu-throttled", "oversubscribed-cpu", "io-bound"}

// Bounds of the answers, as shares of the idle time of the GPU.
const (
	leastExplained = 0.9 // with the right cause and line, of the idle time in holds
	mostWrong      = 0.1 // with a cause that is not true
	// leastRuleShare is a share of a cause in the time of the program at which its rule must name it.
	leastRuleShare = 0.3
	// minIdleNs is the shortest pause between operations that counts.
	minIdleNs = 50_000
)

// hostRun is a recording of a program of examples/hostwaits, with its truth.
type hostRun struct {
	t          *testing.T
	variant    hostVariant
	truth      *simtest.HostTruth
	operations *simtest.OperationLedger
	timeline   *timeline.Timeline
	offsetNs   int64 // Unix time − CLOCK_MONOTONIC
}

// hostCheck compares a part of the analysis with the truth, and returns what is wrong.
type hostCheck struct {
	name  string
	check func(*hostRun) []string
}

var hostChecks = []hostCheck{
	{"cause and line", (*hostRun).checkLongest},
	{"share explained", (*hostRun).checkExplained},
	{"wrong cause", (*hostRun).checkWrong},
	{"steps", (*hostRun).checkSteps},
	{"rules", (*hostRun).checkRules},
}

// TestHostJobs records programs whose launching thread is held up with known causes, and compares the
// analysis with their truth.
//
// GPUREC_SEEDS is the number of variants of each program. By default there is one variant of the most
// important ones. With GPUREC_HOST_LOAD=1, other programs use all processors. GPUREC_HOST_KEEP is a folder
// that gets the recordings and their truth.
func TestHostJobs(t *testing.T) {
	testclass.Root(t)
	if out, _, _ := runGpurec(t, "record", "--help"); !strings.Contains(out, "--host") {
		t.Skip("gpurec record has no flag --host")
	}
	loaded := os.Getenv("GPUREC_HOST_LOAD") == "1"
	if loaded {
		startLoad(t)
	}
	right, of := make(map[string]int), make(map[string]int)
	for _, v := range hostVariants() {
		v.loaded = loaded
		t.Run(v.String(), func(t *testing.T) {
			run := recordHostJob(t, v)
			defer run.timeline.Rec.Close()
			for _, c := range hostChecks {
				key := fmt.Sprintf("%-6s %-14s %s", v.language, v.kinds, c.name)
				of[key]++
				wrong := c.check(run)
				if len(wrong) == 0 {
					right[key]++
				}
				for _, text := range wrong {
					t.Logf("%s: %s", c.name, text)
				}
			}
		})
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		t.Logf("%s: right in %d of %d", key, right[key], of[key])
		if allowed := of[key] / 10; loaded && of[key]-right[key] > allowed || !loaded && right[key] < of[key] {
			t.Errorf("%s: right in %d of %d", key, right[key], of[key])
		}
	}
}

// startLoad starts two programs per processor that compute until the end of the test.
func startLoad(t *testing.T) {
	t.Helper()
	cpus, err := os.ReadFile("/sys/devices/system/cpu/online")
	must(t, err)
	_, last, _ := strings.Cut(strings.TrimSpace(string(cpus)), "-")
	n, _ := strconv.Atoi(last) // one processor: 0
	for range 2 * (n + 1) {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
}

// recordHostJob records a program from before its first step to its end.
func recordHostJob(t *testing.T, v hostVariant) *hostRun {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	p := startHostProgram(t, v, "--wait")
	p.expect("ready")
	if strings.Contains(v.kinds, "cgroup") {
		limitCPU(t, p.cmd.Process.Pid)
	}
	output := filepath.Join(t.TempDir(), "r.parquet")
	recorder := exec.Command(
		gpurec,
		"record",
		"-p",
		strconv.Itoa(p.cmd.Process.Pid),
		"-o",
		output,
		"--host",
		"auto",
		"--gpu-time",
		"auto",
		"--max-overhead",
		"off",
		"--stacks",
		"fp",
		"--nvml-interval",
		"0",
		"--segment-interval",
		"200ms",
	)
	messages := new(messages)
	recorder.Stdout, recorder.Stderr = messages, messages
	must(t, recorder.Start())
	t.Cleanup(func() { _ = recorder.Process.Kill() })
	p.step()
	waitForSegment(t, output, format.ClassProgress)
	p.step()
	p.expect("done")
	p.step() // the program ends, and the recorder with it
	if err := recorder.Wait(); err != nil {
		t.Fatalf("gpurec record: %v\n%s", err, messages)
	}
	if keepsHostFiles != "" {
		keepHostFiles(t, filepath.Join(keepsHostFiles, strings.ReplaceAll(v.String(), "/", "-")), output, p)
	}
	rec, err := format.Open(output)
	must(t, err)
	tl, err := timeline.Open(rec)
	must(t, err)
	tl.AddSourceLines(new(symbolize.Finder))
	run := &hostRun{t: t, variant: v, timeline: tl, offsetNs: rec.Meta.ClockOffsetNs}
	run.truth, run.operations = simtest.ReadHostTruth(t, p.truth), simtest.ReadOperationLedger(t, p.operations)
	checkHostTruth(t, v, run.truth)
	return run
}

// keepHostFiles copies recording and truth, so that they can be read after the test.
func keepHostFiles(t *testing.T, to, output string, p *hostProgram) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o755))
	for name, path := range map[string]string{"r.parquet": output, "truth.json": p.truth, "works.tsv": p.operations} {
		data, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, name), data, 0o644))
	}
}

// limitCPU moves a process into a new cgroup with a tenth of a processor.
func limitCPU(t *testing.T, pid int) {
	t.Helper()
	const quotaUs, periodUs = 10000, 100000
	name := fmt.Sprintf("gpurec-hostjobs-%d", pid)
	folder, limits := "/sys/fs/cgroup/cpu/"+name, map[string]string{
		"cpu.cfs_period_us": strconv.Itoa(periodUs), "cpu.cfs_quota_us": strconv.Itoa(quotaUs),
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		folder, limits = "/sys/fs/cgroup/"+name, map[string]string{"cpu.max": fmt.Sprintf("%d %d", quotaUs, periodUs)}
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		testclass.Missing(t, "no cgroup with a CPU limit: "+err.Error())
	}
	// The program has ended: its cleanup comes first, because it was added later.
	t.Cleanup(func() {
		waitFor(t, folder+" is empty", func() bool { return os.Remove(folder) == nil })
	})
	for file, value := range limits {
		must(t, os.WriteFile(filepath.Join(folder, file), []byte(value), 0o644))
	}
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		testclass.Missing(t, "the program cannot move into a cgroup: "+err.Error())
	}
}

// ---- truth ----

// hostSpan is a time in CLOCK_MONOTONIC ns.
type hostSpan struct{ from, to int64 }

// idleSpans returns the pauses between operations since the first step.
func (r *hostRun) idleSpans() (list []hostSpan) {
	first, offset := r.truth.Steps[0].FromNs, r.operations.Clocks[0].RealMinusMonotonicNs
	var operations []hostSpan
	for i := range r.operations.Operations {
		if w := &r.operations.Operations[i]; w.EndNs-offset > first {
			operations = append(operations, hostSpan{w.StartNs - offset, w.EndNs - offset})
		}
	}
	slices.SortFunc(operations, func(a, b hostSpan) int { return int(a.from - b.from) })
	until := first
	for _, w := range operations {
		if w.from-until >= minIdleNs {
			list = append(list, hostSpan{until, w.from})
		}
		until = max(until, w.to)
	}
	return list
}

// overlap returns for how long a span overlaps others, which do not overlap each other.
func (s hostSpan) overlap(others []hostSpan) (ns int64) {
	for _, o := range others {
		ns += max(0, min(s.to, o.to)-max(s.from, o.from))
	}
	return ns
}

// hostPart is a cause with its fault, and the idle time of the GPU in its holds.
type hostPart struct {
	kind, cause string
	fault       simtest.HostFault
	ns          int64
}

// parts returns the true causes of idle time, the longest first, and the idle time.
func (r *hostRun) parts() (list []hostPart, idleNs int64) {
	idle := r.idleSpans()
	for _, s := range idle {
		idleNs += s.to - s.from
	}
	sums := make(map[string]*hostPart)
	sum := func(f *simtest.HostFault, kind string) *hostPart {
		key := fmt.Sprint(f.Number, kind)
		if sums[key] == nil {
			sums[key] = &hostPart{kind: kind, cause: hostAnswers[kind].cause, fault: *f}
		}
		return sums[key]
	}
	for _, f := range r.truth.Faults {
		for _, h := range r.truth.Holds {
			if h.Fault != f.Number {
				continue
			}
			ns := hostSpan{h.FromNs, h.ToNs}.overlap(idle)
			queued := min(ns, h.QueuedNs)
			sum(&f, queuedKind).ns += queued
			sum(&f, h.Kind).ns += ns - queued
			if f.Kind != "spin" && (h.Kind == "cgroup" || h.Kind == "oversubscribed") {
				sum(&f, "spin").ns -= ns // a pause lies in a computation
			}
		}
	}
	for _, part := range sums {
		list = append(list, *part)
	}
	slices.SortFunc(list, func(a, b hostPart) int { return int(b.ns - a.ns) })
	return list, idleNs
}

// is reports whether a row of the table host has the cause and the line of a part. If another thread kept the launching
// thread waiting, the row has the wait of the launching thread, too, and names the thread.
func (p *hostPart) is(row map[string]any) bool {
	cause, at := row["cause"], row["line"]
	if row["waited_for"] != nil {
		cause, at = row["own_wait"], row["waited_at"]
		isOwner := row["waited_for"] == p.fault.Owner
		if namesOwner := p.kind == "mutex" || p.kind == "lock" || p.kind == "pipe"; namesOwner && !isOwner {
			return false
		}
	}
	line, _ := at.(string)
	return cause == p.cause && (p.kind == queuedKind || p.isAt(line))
}

// isAt reports whether a call site is that of the fault. A data loader has lines of its own.
func (p *hostPart) isAt(line string) bool {
	if line == fmt.Sprintf("%s (%s:%d)", p.fault.Function, filepath.Base(p.fault.File), p.fault.Line) {
		return true
	}
	return p.fault.Kind == "loader" && strings.Contains(line, "(dataloader.py:")
}

// ---- reports ----

// view runs a report over the steps.
func (r *hostRun) view(name string) *report.Report {
	r.t.Helper()
	return r.viewFrom(name, 0)
}

// viewFrom runs a report from a step on.
func (r *hostRun) viewFrom(name string, step int) *report.Report {
	r.t.Helper()
	var opt query.Options
	opt.FromNs = r.truth.Steps[step].FromNs + r.offsetNs
	out, err := analyze.FindReport(name).Run(r.timeline.NewView(), opt)
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return out
}

// hostRows returns the rows of the table host of gaps, the longest first.
func (r *hostRun) hostRows() []map[string]any { return r.hostRowsFrom(0) }

// hostRowsFrom returns the rows of the table host of gaps from a step on, the longest first.
func (r *hostRun) hostRowsFrom(step int) []map[string]any {
	gaps := r.viewFrom("gaps", step)
	if !slices.ContainsFunc(gaps.Tables, func(t report.Table) bool { return t.Name == "host" }) {
		return nil
	}
	return rowsOf(gaps, "host")
}

// describe returns a row as text.
func describe(row map[string]any) string {
	return fmt.Sprintf("%v at %v for %v ns, %v", row["cause"], row["line"], row["host_ns"], row["evidence"])
}

// checkLongest checks that the longest cause is a true one, with its line.
func (r *hostRun) checkLongest() (wrong []string) {
	parts, _ := r.parts()
	rows := r.hostRows()
	for i := range r.truth.Faults {
		switch {
		case i >= len(rows):
			wrong = append(wrong, "no row for "+fmt.Sprint(parts[i]))
		case !slices.ContainsFunc(parts, func(p hostPart) bool { return p.is(rows[i]) }):
			wrong = append(wrong, fmt.Sprintf("%s; the truth is %v", describe(rows[i]), parts))
		}
	}
	return wrong
}

// checkExplained checks how much of the idle time in holds has its cause and line.
func (r *hostRun) checkExplained() (wrong []string) {
	parts, _ := r.parts()
	rows := r.hostRows()
	all, explained := int64(0), int64(0)
	for i := range parts {
		p, found := &parts[i], int64(0)
		for _, row := range rows {
			if p.is(row) {
				found += row["host_ns"].(int64)
			}
		}
		all += p.ns
		explained += min(p.ns, found)
	}
	if float64(explained) < leastExplained*float64(all) {
		wrong = append(wrong, fmt.Sprintf("%d ns of %d ns are explained; the truth is %v", explained, all, parts))
		for _, row := range rows[:min(6, len(rows))] {
			wrong = append(wrong, "  "+describe(row))
		}
	}
	return wrong
}

// checkWrong checks how much idle time has a cause that is not true. Idle time outside of holds is that of
// launches, so it may have any cause of a thread that runs. A program without a fault has no other; checkRules
// checks that no rule names one.
func (r *hostRun) checkWrong() (wrong []string) {
	if len(r.truth.Faults) == 0 {
		return nil
	}
	parts, idleNs := r.parts()
	holds := int64(0)
	for _, p := range parts {
		holds += p.ns
	}
	bad := int64(0)
	for _, row := range r.hostRows() {
		isTrue := slices.ContainsFunc(parts, func(p hostPart) bool { return p.is(row) })
		cause := fmt.Sprint(row["cause"])
		if !isTrue && cause != "unknown" && cause != "waited, reason unknown" {
			bad += row["host_ns"].(int64)
			wrong = append(wrong, describe(row))
		}
	}
	if float64(bad-(idleNs-holds)) <= mostWrong*float64(idleNs) {
		return nil
	}
	return append([]string{fmt.Sprintf("%d of %d ns", bad, idleNs)}, wrong[:min(4, len(wrong))]...)
}

// checkSteps checks that the report runs.
func (r *hostRun) checkSteps() []string {
	if steps := r.view("steps"); len(steps.Tables) == 0 {
		return []string{"no tables"}
	}
	return nil
}

// checkRules checks that the rule of each long cause names it, and that no other rule about the host does.
func (r *hostRun) checkRules() (wrong []string) {
	parts, _ := r.parts()
	length := r.truth.Steps[len(r.truth.Steps)-1].ToNs - r.truth.Steps[0].FromNs
	needed, may := make(map[string]bool), make(map[string]bool)
	for _, p := range parts {
		for _, answer := range hostAnswers {
			if answer.cause == p.cause && answer.rule != "" && p.ns > 0 {
				may[answer.rule] = true
				needed[answer.rule] = needed[answer.rule] || float64(p.ns) >= leastRuleShare*float64(length)
			}
		}
	}
	hits := make(map[string]bool)
	for _, row := range rowsOf(r.view("rules"), "hits") {
		hits[fmt.Sprint(row["rule"])] = true
	}
	for _, rule := range hostRules {
		switch {
		case needed[rule] && !hits[rule]:
			wrong = append(wrong, rule+" does not fire")
		case hits[rule] && !may[rule]:
			wrong = append(wrong, rule+" fires")
		}
	}
	return wrong
}
