//go:build linux

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// victim is a program that makes CUDA calls all the time. Its simcuda ledger is always up to date.
type victim struct {
	cmd    *exec.Cmd
	ledger string
}

// startVictim starts the simcuda program storm at rate calls a second and waits for its first
// calls.
func startVictim(t *testing.T, rate int) *victim {
	t.Helper()
	requireSimcuda(t, "storm", privilege.AttachAuto)
	v := &victim{ledger: filepath.Join(t.TempDir(), "ledger.tsv")}
	v.cmd = stormCommand(v.ledger, "--calls", "1000000000", "--seed", "4", "--rate", fmt.Sprint(rate))
	must(t, v.cmd.Start())
	t.Cleanup(func() { _ = v.cmd.Process.Kill(); _ = v.cmd.Wait() })
	waitFor(t, "the program makes calls", func() bool {
		info, err := os.Stat(v.ledger)
		return err == nil && info.Size() > 100_000
	})
	return v
}

// startRecorder starts gpurec on the victim and waits until all probes are attached.
func startRecorder(t *testing.T, v *victim, output string, args ...string) *exec.Cmd {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	ready := output + ".ready"
	cmd := exec.Command(gpurec, append([]string{
		"record", "-p", fmt.Sprint(v.cmd.Process.Pid), "-o", output,
		"--stacks", "fp", "--nvml-interval", "0", "--keep-returns", "--max-overhead", "off", "--ready-file", ready,
	}, args...)...)
	cmd.Stderr = os.Stderr
	if testing.Verbose() {
		cmd.Stderr = nil
	}
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	waitForFile(t, ready)
	return cmd
}

// waitForSegment waits until a segment with calls of a class is on disk.
func waitForSegment(t *testing.T, output string, c format.Class) {
	t.Helper()
	waitFor(t, "a segment is on disk", func() bool { return len(segmentsOf(output, c)) > 0 })
}

// segmentsOf returns the paths of the finished segments with calls of a class.
func segmentsOf(output string, c format.Class) []string {
	// Glob fails only for an invalid pattern
	paths, _ := filepath.Glob(filepath.Join(output+format.SegmentSuffix, "*-"+c.String()+".parquet"))
	return paths
}

// faultTimes returns the number of times to inject a fault: quick in a plain test run.
// scripts/faults.sh sets GPUREC_FAULTS to a percentage of often.
func faultTimes(t *testing.T, quick, often int) int {
	t.Helper()
	n := quick
	if share, err := strconv.Atoi(os.Getenv("GPUREC_FAULTS")); err == nil {
		n = max(quick, often*share/100)
	}
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			t.Logf("fault\t%s\t%d times\tpassed", strings.TrimPrefix(t.Name(), "TestFault"), n)
		}
	})
	return n
}

// call is a call with the fields that both the recording and the ledger have. Times are in ns.
type call struct {
	startNs, endNs int64
	name           string
}

// ledgerCalls returns the calls in the victim's ledger by thread, in order. Times are on
// CLOCK_MONOTONIC.
func (v *victim) ledgerCalls(t *testing.T) map[string][]call {
	t.Helper()
	file, err := os.Open(v.ledger)
	must(t, err)
	defer file.Close()
	calls := make(map[string][]call)
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 22 {
			continue // skip the header of the ledger, and the incomplete last line of a killed program
		}
		start, err1 := strconv.ParseInt(f[0], 10, 64)
		end, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 == nil && err2 == nil && !isUnrecorded(" "+f[4]) {
			calls[f[3]] = append(calls[f[3]], call{start, end, f[4]})
		}
	}
	must(t, lines.Err())
	for _, thread := range calls {
		slices.SortFunc(thread, func(a, b call) int { return int(a.startNs - b.startNs) })
	}
	return calls
}

// recording holds the recorded calls by thread. Times are on CLOCK_MONOTONIC.
type recording struct {
	threads map[string][]call
	// startNs is the time at which all probes were attached. lastNs is the time up to which
	// segments of both classes are on disk: a kill may come between the writes of the two classes.
	startNs, lastNs int64
}

func readRecording(t *testing.T, path string) (r recording, meta format.Meta) {
	t.Helper()
	rec, err := format.Open(path)
	must(t, err)
	defer rec.Close()
	r = recording{threads: make(map[string][]call)}
	last := make(map[format.Class]int64)
	offset := rec.Meta.ClockOffsetNs
	must(t, rec.Rows(func(row *format.Row) error {
		if !isUnrecorded(" "+row.Name) && row.Flags&format.FlagOpen == 0 {
			tid := fmt.Sprint(row.Tid)
			r.threads[tid] = append(
				r.threads[tid],
				call{row.StartNs - offset, row.StartNs + row.DurNs - offset, row.Name},
			)
			class := format.ClassOf(row.Kind)
			last[class] = max(last[class], row.StartNs+row.DurNs-offset)
		}
		return nil
	}, format.ClassMemory, format.ClassCall))
	r.lastNs = min(last[format.ClassMemory], last[format.ClassCall])
	for _, thread := range r.threads {
		slices.SortFunc(thread, func(a, b call) int { return int(a.startNs - b.startNs) })
	}
	return r, rec.Meta
}

// hasAll checks that the recording equals the ledger from startNs until shortly before lastNs: the
// same calls in the same order. It returns their number.
func (r *recording) hasAll(t *testing.T, ledger map[string][]call) (sum int) {
	t.Helper()
	for tid, happened := range ledger {
		n := 0
		have := r.threads[tid]
		from, _ := slices.BinarySearchFunc(
			happened,
			r.startNs,
			func(c call, ns int64) int { return int(c.startNs - ns) },
		)
		at, _ := slices.BinarySearchFunc(have, r.startNs, func(c call, ns int64) int { return int(c.startNs - ns) })
		if at > 0 && from < len(happened) && have[at-1].endNs >= happened[from].endNs {
			at-- // the probe hit just before startNs, the ledger line starts just after
		}
		for _, c := range happened[from:] {
			if c.endNs > r.lastNs-int64(50*time.Millisecond) {
				break
			}
			if at == len(have) {
				t.Fatalf(
					"thread %s: %s is missing, %v before the last recorded call",
					tid,
					c.name,
					time.Duration(r.lastNs-c.endNs),
				)
			}
			if h := have[at]; h.name != c.name || h.startNs > c.startNs || h.endNs < c.endNs {
				t.Errorf(
					"thread %s: recorded %s from %d to %d, happened %s from %d to %d, %d calls after the start "+
						"at %d and %v before the end",
					tid,
					h.name,
					h.startNs,
					h.endNs,
					c.name,
					c.startNs,
					c.endNs,
					n,
					r.startNs,
					time.Duration(r.lastNs-c.endNs),
				)
				for k := max(0, at-3); k < min(at+4, len(have)); k++ {
					t.Logf("recorded %d: %+v", k, have[k])
				}
				for k := max(0, from+n-3); k < min(from+n+4, len(happened)); k++ {
					t.Logf("happened %d: %+v", k, happened[k])
				}
				break
			}
			at++
			n++
		}
		sum += n
	}
	return sum
}

// TestFaultRecorderKilledAtRandomMoments kills the recorder with SIGKILL. All calls up to the last
// but one segment must be on disk, and the program must continue.
func TestFaultRecorderKilledAtRandomMoments(t *testing.T) {
	testclass.Root(t)
	// A segment starts every 0.3 s. Writing it takes longer if other processes write to the disk.
	const segment, slack = 300 * time.Millisecond, 4 * time.Second
	times := faultTimes(t, 3, 200)
	v := startVictim(t, 4000)
	dir := t.TempDir()
	var recordings []recording
	nothing, worst := 0, time.Duration(0)
	for i := range times {
		output := filepath.Join(dir, fmt.Sprintf("%d.parquet", i))
		args := []string{"--segment-interval", segment.String()}
		if i%2 == 1 {
			args = append(args, "--ring", "700ms")
		}
		recorder := startRecorder(t, v, output, args...)
		ready := time.Now()
		if i == 0 { // at least the first kill leaves a segment to recover
			waitForSegment(t, output, format.ClassMemory)
			waitForSegment(t, output, format.ClassCall)
		}
		time.Sleep(rand.N(1500 * time.Millisecond))
		must(t, recorder.Process.Kill())
		killed := time.Now()
		_ = recorder.Wait()
		lived := killed.Sub(ready)
		code := runCommandLine(t.Context(), []string{"recover", output + format.SegmentSuffix})
		var r recording
		var meta format.Meta
		if code == message.ExitOK {
			r, meta = readRecording(t, output)
		}
		if r.lastNs == 0 {
			if nothing++; lived > segment+slack {
				t.Fatalf("killed after %v: no call to recover, exit status %d", lived, code)
			}
			must(t, os.RemoveAll(output+format.SegmentSuffix))
			continue
		}
		r.startNs = max(ready.UnixNano(), meta.StartNs) - meta.ClockOffsetNs
		recordings = append(recordings, r)
		gap := time.Duration(killed.UnixNano() - meta.ClockOffsetNs - r.lastNs)
		worst = max(worst, gap)
		if gap > segment+slack {
			t.Errorf("the last %v before the kill are lost", gap)
		}
		must(t, os.Remove(output))
	}
	must(t, v.cmd.Process.Signal(syscall.Signal(0))) // the program still runs
	ledger := v.ledgerCalls(t)
	n := 0
	for i := range recordings {
		n += recordings[i].hasAll(t, ledger)
		if t.Failed() {
			t.Logf("recording %d", i)
		}
	}
	for _, thread := range ledger {
		if age := time.Duration(
			recordings[len(recordings)-1].lastNs - thread[len(thread)-1].endNs,
		); len(thread) > 1000 &&
			age > time.Second {
			t.Errorf("a thread of the program stopped %v before the last kill", age)
		}
	}
	t.Logf("%d calls before the kills equal the ledger; at most %v lost, %d times no segment was "+
		"finished", n, worst, nothing)
}

// TestFaultRecorderStopped stops the recorder with SIGSTOP. The program must continue, and gpurec
// must count the calls that did not fit into the ring buffer as lost.
func TestFaultRecorderStopped(t *testing.T) {
	testclass.Root(t)
	for range faultTimes(t, 1, 10) {
		v := startVictim(t, 20000)
		output := filepath.Join(t.TempDir(), "r.parquet")
		recorder := startRecorder(t, v, output, "--buffer", "256KiB")
		waitForCalls(t, v.ledger, 4000)
		must(t, recorder.Process.Signal(syscall.SIGSTOP))
		stopped := time.Now()
		waitForCalls(t, v.ledger, 14_000)
		must(t, recorder.Process.Signal(syscall.SIGCONT))
		resumed := time.Now()
		waitForCalls(t, v.ledger, 6000)
		must(t, recorder.Process.Signal(os.Interrupt))
		must(t, recorder.Wait())
		r, meta := readRecording(t, output)
		total := meta.Totals()
		if total.Seen != total.Recorded+total.Lost || total.Lost == 0 || total.Recorded < 2000 {
			t.Errorf("call counters: %+v", total)
		}
		meanwhile, after := 0, 0
		from, to := stopped.UnixNano()-meta.ClockOffsetNs, resumed.UnixNano()-meta.ClockOffsetNs
		for _, thread := range v.ledgerCalls(t) {
			for _, c := range thread {
				if c.startNs > from && c.endNs < to {
					meanwhile++
				}
			}
		}
		for _, thread := range r.threads {
			for _, c := range thread {
				if c.startNs > to {
					after++
				}
			}
		}
		if meanwhile < 5000 || after < 1000 {
			t.Errorf("the program made %d calls while the recorder was stopped; %d were recorded "+
				"afterwards", meanwhile, after)
		}
		t.Logf("%d calls while the recorder was stopped, %d calls lost in total", meanwhile, total.Lost)
	}
}
