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
	"github.com/gpurec/gpurec/record/privilege"
)

// verdictsDir holds the programs of which it is known what leaks, and the table of them.
const verdictsDir = "../../examples/verdicts"

// scenario is a line of the table: a program, how it is recorded, and the truth.
type scenario struct {
	name, program, how string
	always             bool
	grows              map[string]float64 // site → MiB a minute, 0: any
	maybe              map[string]bool    // sites that may be said to grow, but need not
	quiet              []string
}

// rateError is how far the growth may be off: steps are late on a busy machine.
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

// sites splits a list of sites; - is none.
func sites(s string) []string {
	if s == "-" {
		return nil
	}
	return strings.Split(s, ",")
}

// score counts what the verdict growing was right and wrong about.
type score struct{ right, wrong, missed, rates int }

func (s score) String() string {
	ratio := func(n, of int) string {
		if of == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f", float64(n)/float64(of))
	}
	return fmt.Sprintf(
		"precision %s, recall %s (%d growing sites found, %d missed, %d said to grow that do not, %d "+
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

// TestVerdicts records programs of which it is known what leaks, and compares. `make
// verdicts` runs all of them, other tests a few.
func TestVerdicts(t *testing.T) {
	needVerdicts(t)
	all := os.Getenv("GPUREC_VERDICTS") == "1"
	scenarios := slices.DeleteFunc(readScenarios(t), func(s scenario) bool { return !all && !s.always })
	// those that take longest first
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
			s.judge(t, report, to)
		})
	}
	wait.Wait()
	t.Logf("complete recordings: %v", whole)
	t.Logf("damaged recordings:  %v", damaged)
}

func needVerdicts(t *testing.T) {
	t.Helper()
	for _, path := range []string{"../../build/simcuda/verdicts", "../../build/simtorch/libc10_cuda.so"} {
		if _, err := os.Stat(path); err != nil || privilege.Check(privilege.AttachAuto) != nil {
			if os.Getenv("GPUREC_MUST_RUN") == "1" {
				t.Fatalf("must run, but attaching is not permitted or there is no %s", path)
			}
			t.Skip("attaching needs root, simcuda and simtorch")
		}
	}
}

// judge compares a report with the truth.
func (s *scenario) judge(t *testing.T, r *report.Report, to *score) {
	table := &r.Tables[0]
	column := func(key string) int {
		return slices.IndexFunc(table.Columns, func(c report.Column) bool { return c.Key == key })
	}
	seen := make(map[string]bool)
	for i := range table.Rows {
		row := &table.Rows[i]
		site, verdict := row.Cells[column("function")].(string), row.Cells[column("verdict")].(string)
		site, _, _ = strings.Cut(site, ".<") // a comprehension is its function's
		site = site[strings.LastIndex(site, ".")+1:]
		rate := float64(row.Cells[column("growth_bytes_per_min")].(int64)) / (1 << 20)
		seen[site] = true
		want, grows := s.grows[site]
		say := func(what string) {
			t.Errorf(
				"%s, %s: %s %s: verdict %s, %.1f MiB/min; %s",
				s.name,
				s.how,
				site,
				what,
				verdict,
				rate,
				row.Evidence,
			)
		}
		switch {
		case grows && verdict != "growing":
			to.missed++
			if !s.damaged() {
				say("grows")
			}
		case grows:
			to.right++
			if want > 0 && math.Abs(rate-want) > rateError*want {
				to.rates++
				say(fmt.Sprintf("grows by %.1f MiB/min", want))
			}
		case verdict == "growing" && !s.maybe[site]:
			to.wrong++
			say("does not grow")
		}
	}
	for site := range s.grows {
		s.needSeen(t, r, seen, site)
	}
	for _, site := range s.quiet {
		s.needSeen(t, r, seen, site)
	}
	if s.how == "lossy" && r.Quality.LostMemoryEvents == 0 {
		t.Errorf("%s: nothing was lost", s.name)
	}
}

// needSeen fails if a site is not in the report: then it proves nothing.
func (s *scenario) needSeen(t *testing.T, r *report.Report, seen map[string]bool, site string) {
	if !seen[site] && !s.damaged() {
		t.Errorf("%s, %s: no row of %s, but of %q; %q", s.name, s.how, site, slices.Sorted(maps.Keys(seen)), r.Notes)
	}
}

// report records the scenario and analyzes it.
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

// record runs the scenario's program under the recorder, and returns the recording.
func (s *scenario) record(dir string) (string, error) {
	gpurec, err := exec.LookPath("gpurec") // this test binary, put there by testscript.Main
	if err != nil {
		return "", err
	}
	output := filepath.Join(dir, "r.parquet")
	args := []string{"record", "-o", output, "--nvml-interval", "0", "--segment-interval", "200ms", "--stacks", "fp"}
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
		return output, quietly(recorder)
	case "lossy":
		return output, haltingly(recorder)
	}
	return cutOff(recorder, output, s.how == "recovered")
}

// quietly runs a command and has its messages only if it fails.
func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// haltingly runs a recorder that is stopped for a tenth of the time.
func haltingly(recorder *exec.Cmd) error {
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
			_ = recorder.Process.Signal(syscall.SIGSTOP) // or it has just ended
			time.Sleep(50 * time.Millisecond)
			_ = recorder.Process.Signal(syscall.SIGCONT)
		}
	}
}

// cutOff kills the recorder, but not the program, after about three seconds of it, and
// returns the folder of segments, or what recover makes of it.
func cutOff(recorder *exec.Cmd, output string, recovered bool) (string, error) {
	if err := recorder.Start(); err != nil {
		return "", err
	}
	defer func() { _ = syscall.Kill(-recorder.Process.Pid, syscall.SIGKILL) }()
	segments := output + format.SegmentSuffix
	for end := time.Now().Add(patience); lengthOnDisk(segments) < 3*time.Second; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return "", fmt.Errorf("no 3 s of memory calls in %s", segments)
		}
	}
	if err := recorder.Process.Kill(); err != nil {
		return "", err
	}
	_ = recorder.Wait() // killed it was
	if !recovered {
		return segments, nil
	}
	_, err := format.Recover(segments, output, format.Options{})
	return output, err
}

// lengthOnDisk returns the time between the first memory call in the finished segments and the time
// at which the last of them was finished; 0 if there is no memory call.
func lengthOnDisk(segments string) time.Duration {
	rec, err := format.Open(segments)
	if err != nil {
		return 0 // there is none yet
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

// recordRunning attaches to a program that has used CUDA already: it has made some hundred calls,
// by its ledger.
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
	return quietly(exec.Command(gpurec, append(args, "-p", strconv.Itoa(target.Process.Pid))...))
}
