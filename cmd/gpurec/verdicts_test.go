//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// verdictsDir is the folder with the test programs whose leaks are known, and their table.
const verdictsDir = "../../examples/verdicts"

// scenario is a line of scenarios.txt: a program, the way of recording it, and its leaks.
type scenario struct {
	name, program, how string
	always             bool
	grows              map[string]float64 // leaking function → growth in MiB per minute, 0 for any rate
	maybe              map[string]bool    // functions whose verdict may or may not be growing
	quiet              []string
}

// rateError is the accepted relative error of the growth rate: steps are late on a busy machine.
const rateError = 0.15

func (s *scenario) damaged() bool { return s.how != "whole" && s.how != "running" }

func readScenarios(t *testing.T) []scenario {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(verdictsDir, "scenarios.txt"))
	must(t, err)
	var list []scenario
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 5 {
			t.Fatalf("scenarios.txt: %q has %d columns", strings.TrimSpace(line), len(f))
		}
		s := scenario{name: f[0], program: f[1], grows: make(map[string]float64), maybe: make(map[string]bool)}
		s.how, s.always = strings.TrimSuffix(f[2], "*"), strings.HasSuffix(f[2], "*")
		for _, site := range sites(f[3]) {
			site, rate, _ := strings.Cut(site, "=")
			if may, ok := strings.CutSuffix(site, "?"); ok {
				s.maybe[may] = true
				continue
			}
			s.grows[site] = 0
			if rate != "" {
				s.grows[site], err = strconv.ParseFloat(rate, 64)
				must(t, err)
			}
		}
		s.quiet = sites(f[4])
		list = append(list, s)
	}
	return list
}

// sites splits a list of functions at its commas; "-" is the empty list.
func sites(s string) []string {
	if s == "-" {
		return nil
	}
	return strings.Split(s, ",")
}

// score counts correct, wrong and missed verdicts "growing", and wrong growth rates.
type score struct{ right, wrong, missed, rates int }

func (s score) String() string {
	ratio := func(n, of int) string {
		if of == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f", float64(n)/float64(of))
	}
	return fmt.Sprintf(
		"precision %s, recall %s (%d growing sites found, %d missed, %d false alarms, %d "+
			"rates off by more than %.0f%%)",
		ratio(
			s.right,
			s.right+s.wrong,
		),
		ratio(s.right, s.right+s.missed),
		s.right,
		s.missed,
		s.wrong,
		s.rates,
		100*rateError,
	)
}

// TestVerdicts records test programs whose leaks are known, and compares the verdicts of the leak
// report with these leaks. `make verdicts` runs all programs, a plain test run only a few.
func TestVerdicts(t *testing.T) {
	testclass.Root(t)
	needVerdicts(t)
	all := os.Getenv("GPUREC_VERDICTS") == "1"
	scenarios := slices.DeleteFunc(readScenarios(t), func(s scenario) bool { return !all && !s.always })
	// run the slowest programs first
	slices.SortStableFunc(scenarios, func(a, b scenario) int { return -cmp.Compare(a.program, b.program) })
	var whole, damaged score
	var lock sync.Mutex
	var wait sync.WaitGroup
	// Programs mostly sleep, so several run at once; complete stacks take a core to start.
	running, unwinding := make(chan bool, 6), make(chan bool, 2)
	for _, s := range scenarios {
		wait.Go(func() {
			if s.program == "Python" {
				unwinding <- true
				defer func() { <-unwinding }()
			}
			running <- true
			defer func() { <-running }()
			report, err := s.report(t.TempDir())
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				t.Errorf("%s, %s: %v", s.name, s.how, err)
				return
			}
			to := &whole
			if s.damaged() {
				to = &damaged
			}
			s.compare(t, report, to)
		})
	}
	wait.Wait()
	t.Logf("complete recordings: %v", whole)
	t.Logf("damaged recordings:  %v", damaged)
}

func needVerdicts(t *testing.T) {
	t.Helper()
	for _, path := range []string{"../../build/simcuda/verdicts", "../../build/simtorch/libc10_cuda.so"} {
		if _, err := os.Stat(path); err != nil || privilege.CheckAttach(privilege.AttachAuto) != nil {
			testclass.Missing(t, "attaching needs root, simcuda and simtorch")
		}
	}
}

// compare adds the verdicts of a leak report to the score, and fails the test for wrong ones.
func (s *scenario) compare(t *testing.T, r *report.Report, to *score) {
	table := &r.Tables[0]
	column := func(key string) int {
		return slices.IndexFunc(table.Columns, func(c report.Column) bool { return c.Key == key })
	}
	seen := make(map[string]bool)
	for i := range table.Rows {
		row := &table.Rows[i]
		site, verdict := row.Cells[column("function")].(string), row.Cells[column("verdict")].(string)
		site, _, _ = strings.Cut(site, ".<") // count a comprehension to its function
		site = site[strings.LastIndex(site, ".")+1:]
		rate := float64(row.Cells[column("growth_bytes_per_min")].(int64)) / (1 << 20)
		seen[site] = true
		want, grows := s.grows[site]
		report := func(problem string) {
			t.Errorf(
				"%s, %s: %s %s: verdict %s, %.1f MiB/min; %s",
				s.name,
				s.how,
				site,
				problem,
				verdict,
				rate,
				row.Evidence,
			)
		}
		switch {
		case grows && verdict != "growing":
			to.missed++
			if !s.damaged() {
				report("grows")
			}
		case grows:
			to.right++
			if want > 0 && math.Abs(rate-want) > rateError*want {
				to.rates++
				report(fmt.Sprintf("grows by %.1f MiB/min", want))
			}
		case verdict == "growing" && !s.maybe[site]:
			to.wrong++
			report("does not grow")
		}
	}
	for site := range s.grows {
		s.needSeen(t, r, seen, site)
	}
	for _, site := range s.quiet {
		s.needSeen(t, r, seen, site)
	}
	if s.how == "lossy" && r.Quality.LostMemoryEvents == 0 {
		t.Errorf("%s: no event was lost, so the scenario tests nothing", s.name)
	}
}

// needSeen fails the test if a function has no row in the report. Its verdict is then untested.
func (s *scenario) needSeen(t *testing.T, r *report.Report, seen map[string]bool, site string) {
	if !seen[site] && !s.damaged() {
		t.Errorf(
			"%s, %s: no row for %s; the rows are %q; notes %q",
			s.name,
			s.how,
			site,
			slices.Sorted(maps.Keys(seen)),
			r.Notes,
		)
	}
}

// report records the scenario and returns the leak report by function.
func (s *scenario) report(dir string) (*report.Report, error) {
	output, err := s.record(dir)
	if err != nil {
		return nil, err
	}
	rec, err := format.Open(output)
	if err != nil {
		return nil, err
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		return nil, err
	}
	return leaks.Run(tl, query.Options{GroupBy: "function"})
}

// record records the scenario's program and returns the path of the recording.
func (s *scenario) record(dir string) (string, error) {
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	if err != nil {
		return "", err
	}
	output := filepath.Join(dir, "r.parquet")
	args := []string{
		"record",
		"--max-overhead",
		"off",
		"-o",
		output,
		"--nvml-interval",
		"0",
		"--segment-interval",
		"200ms",
		"--stacks",
		"fp",
	}
	program := []string{filepath.Join(simcudaDir(), "verdicts"), "--scenario", s.name}
	if s.program == "Python" {
		args[len(args)-1] = "auto"
		program = []string{"python3", filepath.Join(verdictsDir, "verdicts.py"), s.name}
	}
	env := append(
		os.Environ(),
		"LD_LIBRARY_PATH="+simcudaDir(),
		"SIMCUDA_TIME=off",
		"SIMCUDA_STATE="+filepath.Join(dir, "state"),
	)
	if s.how == "lossy" {
		args = append(args, "--buffer", "64KiB")
	}
	if s.how == "running" {
		return output, recordRunning(gpurec, args, program, env, filepath.Join(dir, "ledger.tsv"))
	}
	recorder := exec.Command(gpurec, append(append(args, "--"), program...)...)
	recorder.Env = env
	recorder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	switch s.how {
	case "whole":
		return output, runQuietly(recorder)
	case "lossy":
		return output, runWithStops(recorder)
	}
	return cutOff(recorder, output, s.how == "recovered")
}

// runQuietly runs a command. Its output is part of the error if the command fails.
func runQuietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// runWithStops runs the recorder and stops it with SIGSTOP for a tenth of the time.
func runWithStops(recorder *exec.Cmd) error {
	if err := recorder.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- recorder.Wait() }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(450 * time.Millisecond):
			_ = recorder.Process.Signal(syscall.SIGSTOP) // the error means that the recorder has just ended
			time.Sleep(50 * time.Millisecond)
			_ = recorder.Process.Signal(syscall.SIGCONT)
		}
	}
}

// cutOff kills the recorder after about three seconds of the program, and leaves the program
// running. It returns the folder of segments or, if recovered is true, the recovered file.
func cutOff(recorder *exec.Cmd, output string, recovered bool) (string, error) {
	if err := recorder.Start(); err != nil {
		return "", err
	}
	defer func() { _ = syscall.Kill(-recorder.Process.Pid, syscall.SIGKILL) }()
	segments := output + format.SegmentSuffix
	for end := time.Now().Add(patience); lengthOnDisk(segments) < 3*time.Second; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return "", fmt.Errorf("%s has less than 3 s of memory calls", segments)
		}
	}
	if err := recorder.Process.Kill(); err != nil {
		return "", err
	}
	_ = recorder.Wait() // the error is always "signal: killed"
	if !recovered {
		return segments, nil
	}
	_, err := format.Recover(segments, output, format.Options{})
	return output, err
}

// lengthOnDisk returns the time from the first memory call in the finished segments to the end of
// the last segment. It returns 0 if there is no memory call.
func lengthOnDisk(segments string) time.Duration {
	rec, err := format.Open(segments)
	if err != nil {
		return 0 // no segment is finished yet
	}
	defer rec.Close()
	for _, g := range rec.Groups() {
		if g.Class() == format.ClassMemory {
			start := slices.Min(g.Int64("start_ns", nil))
			return time.Duration(rec.Meta.EndNs - start)
		}
	}
	return 0
}

// recordRunning attaches to a running program, after the program has made some hundred CUDA calls
// according to its ledger.
func recordRunning(gpurec string, args, program, env []string, ledger string) error {
	target := exec.Command(program[0], append(program[1:], "--wait")...)
	target.Env = append(env, "SIMCUDA_LEDGER="+ledger, "SIMCUDA_LEDGER_SYNC=1")
	stdin, err := target.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := target.StdoutPipe()
	if err != nil {
		return err
	}
	if err := target.Start(); err != nil {
		return err
	}
	defer func() { _ = target.Process.Kill(); _ = target.Wait() }()
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return err
	}
	if _, err := io.WriteString(stdin, "x"); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(ledger)
		if calls := bytes.Count(text, []byte("\n")); err == nil && calls >= 300 {
			break
		}
		if time.Now().After(end) {
			return errors.New("the program does not use CUDA")
		}
	}
	return runQuietly(exec.Command(gpurec, append(args, "-p", strconv.Itoa(target.Process.Pid))...))
}
