//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// hostChainKinds are the programs with chains of a plain test run, by language.
var hostChainKinds = map[string][]string{"c": {"condition"}, "python": {"queue"}}

// moreHostChainKinds are recorded with GPUREC_SEEDS only.
var moreHostChainKinds = map[string][]string{
	"c":      {"queue", "pipe_chain", "futex", "mutex_disk", "pool", "processes"},
	"python": {"condition", "pipe_chain", "pool", "processes", "gil_chain"},
}

// Bounds of the answers about chains, in percent of the true waiting time.
const (
	leastRightPct       = 90 // with the right thread, activity and line
	leastPartPct        = 75 // of each activity and line: lines of CPU time come from samples
	leastLoadRightPct   = 60 // next to busy processes
	mostWrongPct        = 10
	mostUnknownPct      = 10
	mostLoadUnknownPct  = 40
	busyProcesses       = 2 // with GPUREC_HOST_LOAD=1
	busyStrangers       = 4
	delaysToFindAThread = 6 // a recorder finds one thread of a chain after the other
)

// hostChainVariants returns the variants of the programs.
func hostChainVariants() (list []hostVariant) {
	seeds, all := hostSeeds()
	for _, language := range []string{"c", "python"} {
		kinds := hostChainKinds[language]
		if all {
			kinds = slices.Concat(kinds, moreHostChainKinds[language])
		}
		for _, k := range kinds {
			for seed := 1; seed <= seeds; seed++ {
				list = append(list, hostVariant{language: language, kinds: k, seed: seed})
			}
		}
	}
	return list
}

// TestHostChains records programs whose launching thread waits for a chain of threads and processes, and compares the
// ends of the chains in analyze gaps with their truth.
//
// GPUREC_SEEDS is the number of variants of each program, and GPUREC_HOST_LOAD=1 starts busy processes next to them.
// GPUREC_HOST_KEEP is a folder that gets the recordings and their truth.
func TestHostChains(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	_, all := hostSeeds()
	loaded := os.Getenv("GPUREC_HOST_LOAD") == "1"
	if loaded {
		startBusy(t, busyProcesses)
	}
	results := make(map[string][]chainResult)
	for _, v := range hostChainVariants() {
		v.loaded = loaded
		t.Run(v.String(), func(t *testing.T) {
			r := compareChains(t, recordHostJob(t, v))
			key := fmt.Sprintf("%-6s %-10s", v.language, v.kinds)
			results[key] = append(results[key], r)
			t.Log(r)
			r.check(t, all && !loaded)
		})
	}
	for _, key := range slices.Sorted(maps.Keys(results)) {
		t.Log(key, summary(results[key], all && !loaded))
	}
}

// TestHostChainStrangers records programs next to processes that have nothing to do with them: busy ones, and one that
// timers interrupt all the time. None of them may be named as the cause or the end of a wait.
func TestHostChainStrangers(t *testing.T) {
	testclass.Root(t)
	strangers := startBusy(t, busyStrangers)
	strangers[startTimers(t)] = true
	seeds, _ := hostSeeds()
	for _, language := range []string{"c", "python"} {
		for seed := 1; seed <= seeds; seed++ {
			v := hostVariant{language: language, kinds: hostChainKinds[language][0], seed: seed, loaded: true}
			t.Run(v.String(), func(t *testing.T) {
				run := recordHostJob(t, v)
				defer run.timeline.Rec.Close()
				run.checkStrangers(strangers)
			})
		}
	}
}

// startBusy starts processes that compute until the end of the test. It returns their pids.
func startBusy(t *testing.T, n int) map[int]bool {
	t.Helper()
	pids := make(map[int]bool)
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		pids[cmd.Process.Pid] = true
	}
	return pids
}

// startTimers starts a process that computes while timers interrupt it, until the end of the test.
func startTimers(t *testing.T) (pid int) {
	t.Helper()
	const program = `import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while True: sum(range(1000))`
	cmd := exec.Command(hostInterpreters(t)[0], "-c", program)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// checkStrangers checks that no wait was ended by a stranger, and that no row names one as the end of a chain.
func (r *hostRun) checkStrangers(strangers map[int]bool) {
	r.t.Helper()
	named, wakers := 0, 0
	err := r.timeline.Rec.Rows(func(row *format.Row) error {
		if row.Kind != format.KindWait || row.WakerPid == 0 {
			return nil
		}
		wakers++
		if strangers[int(row.WakerPid)] {
			named++
			r.t.Logf("a wait of thread %d: %s", row.Tid, row.Message)
		}
		return nil
	}, format.ClassHost)
	must(r.t, err)
	for _, row := range r.hostRows() {
		if pid, _ := row["waited_for_pid"].(int64); strangers[int(pid)] {
			named++
			r.t.Log(describe(row))
		}
	}
	if named > 0 || wakers == 0 {
		r.t.Errorf("strangers are named %d times, %d waits have a waker", named, wakers)
	}
}

// ---- truth and answers ----

// chainAnswers has the activity in the table host by the activity of an end.
var chainAnswers = map[string]string{"sleep": "slept", "spin": "ran on the CPU", "file": "waited for a file"}

// chainPart sums up an activity at a line at the end of chains, in the idle time of the GPU.
type chainPart struct {
	activity, line string
	links          int
	waitedAt       string
	threads        map[[2]int64]bool // pid and tid
	ns, foundNs    int64
}

// settledStep returns the first step in which a recorder can have found all threads of the chains.
func (r *hostRun) settledStep() int {
	links := 0
	for _, e := range r.truth.Ends {
		links = max(links, e.Links)
	}
	delays := delaysToFindAThread * links
	if delays >= len(r.truth.Holds) {
		r.t.Fatalf("only %d delays", len(r.truth.Holds))
	}
	return r.truth.Holds[delays].Step
}

// chainParts returns the truth from a step on: parts, the part of holds in which the GPU was idle, and idle time
// outside of holds.
func (r *hostRun) chainParts(step int) (parts map[string]*chainPart, holdsNs, otherNs int64) {
	parts = make(map[string]*chainPart)
	idle := r.idleSpans()
	idle = slices.DeleteFunc(idle, func(s hostSpan) bool { return s.to <= r.truth.Steps[step].FromNs })
	for _, s := range idle {
		otherNs += s.to - s.from
	}
	for _, h := range r.truth.Holds {
		if h.Step >= step {
			holdsNs += hostSpan{h.FromNs, h.ToNs}.overlap(idle)
		}
	}
	for _, e := range r.truth.Ends {
		if e.Step < step {
			continue
		}
		f := r.truth.Faults[e.Fault]
		line := placeText(e.Function, e.File, e.Line)
		p := parts[e.Activity+line]
		if p == nil {
			p = &chainPart{
				activity: chainAnswers[e.Activity], line: line, links: e.Links,
				waitedAt: placeText(f.Function, f.File, f.Line), threads: make(map[[2]int64]bool),
			}
			parts[e.Activity+line] = p
		}
		p.threads[[2]int64{int64(e.Pid), int64(e.Tid)}] = true
		ns := hostSpan{e.FromNs, e.ToNs}.overlap(idle)
		p.ns += max(0, ns-e.QueuedNs)
	}
	return parts, holdsNs, otherNs - holdsNs
}

// placeText returns a place as tables have it.
func placeText(function, file string, line int) string {
	return fmt.Sprintf("%s (%s:%d)", function, file[strings.LastIndexByte(file, '/')+1:], line)
}

// chainResult compares the table host with the truth of chains. Shares are in percent.
type chainResult struct {
	// right is the share of the time at the ends of chains with the right thread, activity and line.
	right float64
	// leastPart is right of the activity and line with the smallest one, of delays with two causes.
	leastPart float64
	// wrong, unknown and queued are shares of the delays: with a cause that is not true; without a cause or a line, or
	// with one that stops in the middle of the chain; and in run queues.
	wrong, unknown, queued float64
	// links and waitedAt are the shares of the right time with the right number of links, and with the right line of
	// the launching thread.
	links, waitedAt float64
	fromFirst       float64 // right, from the first step on
	details         []string
}

func (c chainResult) String() string {
	return fmt.Sprintf(
		"right %.1f%%, each cause at least %.1f%%, wrong %.1f%%, unknown %.1f%%, queued %.1f%%, links %.1f%%, waited at %.1f%%, "+
			"right from the first step %.1f%%",
		c.right,
		c.leastPart,
		c.wrong,
		c.unknown,
		c.queued,
		c.links,
		c.waitedAt,
		c.fromFirst,
	)
}

// compareChains compares a recording with its truth, and closes it.
func compareChains(t *testing.T, run *hostRun) chainResult {
	t.Helper()
	defer run.timeline.Rec.Close()
	run.t = t
	result := run.compareFrom(run.settledStep())
	result.fromFirst = run.compareFrom(0).right
	return result
}

// compareFrom compares the table host from a step on.
func (r *hostRun) compareFrom(step int) (c chainResult) {
	parts, holdsNs, otherNs := r.chainParts(step)
	var wrong, unknown, queued, own, links, waitedAt, found int64
	for _, row := range r.hostRowsFrom(step) {
		ns := row["host_ns"].(int64)
		p := partOfRow(parts, row)
		switch kind := kindOfRow(row); {
		case p != nil:
			p.foundNs += ns
			found += ns
			if row["links"] == int64(p.links) {
				links += ns
			}
			if row["waited_at"] == p.waitedAt {
				waitedAt += ns
			}
		case kind == rowOwn:
			own += ns
		case kind == rowUnknown:
			unknown += ns
		case kind == rowQueued:
			queued += ns
		default:
			wrong += ns
		}
		text := fmt.Sprintf("%s, %v links, waited at %v", describe(row), row["links"], row["waited_at"])
		c.details = append(c.details, text)
	}
	allNs, rightNs := int64(0), int64(0)
	c.leastPart = 100
	for _, p := range parts {
		allNs += p.ns
		rightNs += min(p.ns, p.foundNs)
		c.leastPart = min(c.leastPart, pctOf(min(p.ns, p.foundNs), p.ns))
		wrong += max(0, p.foundNs-p.ns)
		c.details = append(
			c.details,
			fmt.Sprintf("truth: %s at %s for %d ns, %d links", p.activity, p.line, p.ns, p.links),
		)
	}
	wrong += max(0, own-otherNs)
	c.right, c.wrong, c.unknown = pctOf(rightNs, allNs), pctOf(wrong, holdsNs), pctOf(unknown, holdsNs)
	c.queued, c.links, c.waitedAt = pctOf(queued, holdsNs), pctOf(links, found), pctOf(waitedAt, found)
	return c
}

// pctOf returns a share in percent.
func pctOf(part, all int64) float64 { return 100 * float64(part) / float64(max(1, all)) }

// partOfRow returns the part with the thread, the activity and the line of a row; nil: none.
func partOfRow(parts map[string]*chainPart, row map[string]any) *chainPart {
	pid, _ := row["waited_for_pid"].(int64)
	tid, _ := row["waited_for_tid"].(int64)
	for _, p := range parts {
		if row["activity"] == p.activity && row["line"] == p.line && p.threads[[2]int64{pid, tid}] {
			return p
		}
	}
	return nil
}

// rowKind tells apart the rows that name no true end of a chain.
type rowKind int

const (
	rowWrong   rowKind = iota
	rowOwn             // what the launching thread did itself
	rowUnknown         // no cause, no line, or a chain that stops too early
	rowQueued          // a wait for a processor
)

// kindOfRow returns the kind of a row.
func kindOfRow(row map[string]any) rowKind {
	activity, _ := row["activity"].(string)
	isOther := row["waited_for_tid"] != nil
	switch {
	case isOther && row["line"] == nil && activity != "waited for a CPU":
		return rowUnknown
	case activity == "waited for a CPU", activity == "was throttled by its CPU limit":
		return rowQueued
	case activity == "unknown", activity == "waited, reason unknown", activity == "waited for a lock",
		activity == "waited for a pipe", activity == "waited for the network", activity == "waited for the GIL",
		activity == "waited for another process's queue":
		return rowUnknown
	case !isOther:
		return rowOwn
	}
	return rowWrong
}

// check checks the bounds. Strict ones are for an idle machine.
func (c *chainResult) check(t *testing.T, strict bool) {
	t.Helper()
	if c.isGood(strict) {
		return
	}
	t.Errorf("%v", c)
	for _, text := range c.details {
		t.Log(text)
	}
}

// isGood reports whether the answers are within the bounds.
func (c *chainResult) isGood(strict bool) bool {
	leastRight, leastPart, mostUnknown := float64(leastLoadRightPct), 0.0, float64(mostLoadUnknownPct)
	if strict {
		leastRight, leastPart, mostUnknown = leastRightPct, leastPartPct, mostUnknownPct
	}
	return c.right >= leastRight && c.leastPart >= leastPart && c.wrong <= mostWrongPct && c.unknown <= mostUnknown &&
		c.links >= leastRightPct && c.waitedAt >= leastRightPct
}

// summary returns a line of the table of all programs.
func summary(list []chainResult, strict bool) string {
	var sum chainResult
	good, least := 0, 100.0
	for i := range list {
		c := &list[i]
		if c.isGood(strict) {
			good++
		}
		least = min(least, c.right)
		n := float64(len(list))
		sum.right += c.right / n
		sum.leastPart += c.leastPart / n
		sum.wrong += c.wrong / n
		sum.unknown += c.unknown / n
		sum.queued += c.queued / n
		sum.links += c.links / n
		sum.waitedAt += c.waitedAt / n
		sum.fromFirst += c.fromFirst / n
	}
	return strconv.Itoa(
		good,
	) + " of " + strconv.Itoa(
		len(list),
	) + " good, " + fmt.Sprintf(
		"least right %.1f%%; ",
		least,
	) +
		"means: " + sum.String()
}
