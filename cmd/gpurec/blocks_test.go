//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/blocks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestCommandsOfBlocks checks the commands that the report blocks prints.
func TestCommandsOfBlocks(t *testing.T) {
	testclass.Unit(t)
	for key, recording := range map[string]*analyzetest.TestRecording{
		"next": analyzetest.BlocksRecording(t), "result": analyzetest.TrainingRecording(t),
	} {
		r, err := blocks.Run(recording.Timeline(), query.Options{})
		must(t, err)
		i := slices.IndexFunc(r.Facts, func(f report.Fact) bool { return f.Key == key })
		_, command, ok := strings.Cut(fmt.Sprint(r.Facts[i].Value), "sudo gpurec ")
		command, _, _ = strings.Cut(command, ";")
		args := strings.Fields(strings.Replace(command, "PID", "4242", 1))
		if err := errors.Join(parse(args), checkOperands(args)); !ok || err != nil {
			t.Errorf("%s: %q: %v", key, command, err)
		}
	}
	for _, line := range strings.Split(blocks.Definition.Example, "\n") {
		for _, words := range shellWords(line) {
			if args, ok := gpurecArgs(words); ok {
				must(t, errors.Join(parse(args), checkOperands(args)))
			}
		}
	}
}

// blocksReport is the part of the report blocks that TestBlocksOfPrograms reads.
type blocksReport struct {
	Totals struct {
		Readings          int64
		Growing           int64
		Steady            int64
		Churn             int64
		GrowingAllocators int64 `json:"growing_allocators"`
		WithoutVerdict    int64 `json:"without_verdict"`
		Unused            int64
	}
	Sizes []struct {
		Verdict   string
		Live      int64   `json:"live_bytes"`
		Grown     int64   `json:"grown_bytes"`
		Requested int64   `json:"requested_bytes"`
		PerMin    float64 `json:"growth_bytes_per_min"`
	}
}

// TestBlocksOfPrograms reads the blocks of programs on simtorch ten times a second, without events of the allocator. It
// compares the sizes that grow with what the programs print about themselves.
func TestBlocksOfPrograms(t *testing.T) {
	testclass.Root(t)
	requireSimcuda(t, "storm", privilege.AttachAuto)
	for _, c := range []struct {
		name    string
		command []string
		size    int64 // of the blocks that grow; 0: none
	}{
		{"tensorleak", []string{"../../build/simtorch/tensorleak"}, 256 << 10},
		{"leak_list.py", []string{"python3", "-B", "../../examples/simtorch/leak_list.py"}, 128 << 10},
		{"no_leak.py", []string{"python3", "-B", "../../examples/simtorch/no_leak.py"}, 0},
		{"longer_inputs.py", []string{"python3", "-B", "../../examples/simtorch/longer_inputs.py"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, leaked, perMin := recordBlocks(t, c.command)
			stdout, messages, code := runGpurec(t, "analyze", "blocks", "--format", "json", path)
			if code != 0 {
				t.Fatalf("analyze: exit %d\n%s", code, messages)
			}
			var r blocksReport
			must(t, json.Unmarshal([]byte(stdout), &r))
			t.Logf("%+v", r.Totals)
			if r.Totals.WithoutVerdict > 0 || r.Totals.Unused > 0 || r.Totals.Steady+r.Totals.Churn == 0 {
				t.Errorf("totals: %+v", r.Totals)
			}
			if c.size == 0 {
				if r.Totals.Growing+r.Totals.GrowingAllocators > 0 {
					t.Errorf("growing: %+v", r)
				}
				return
			}
			if r.Totals.Growing != 1 || r.Totals.GrowingAllocators != 1 || len(r.Sizes) == 0 {
				t.Fatalf("totals: %+v", r.Totals)
			}
			first := r.Sizes[0]
			t.Logf("%+v; the program leaked %d bytes, %.0f a minute", first, leaked, perMin)
			if first.Verdict != "growing" || first.Requested != c.size || first.Live != leaked {
				t.Errorf("the first size is %+v, want %d bytes of blocks of %d", first, leaked, c.size)
			}
			if off := math.Abs(float64(first.Grown)/float64(leaked) - 1); off > 0.05 {
				t.Errorf("grew by %d bytes, want %d", first.Grown, leaked)
			}
			if off := math.Abs(first.PerMin/perMin - 1); off > 0.1 {
				t.Errorf("grew by %.0f bytes a minute, want %.0f", first.PerMin, perMin)
			}
		})
	}
}

// recordBlocks records a program from before its first step until after its last one. It returns the bytes that the
// program says it leaked, in all and in a minute.
func recordBlocks(t *testing.T, command []string) (path string, leaked int64, perMin float64) {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	dir := t.TempDir()
	path = filepath.Join(dir, "r.parquet")
	target := exec.Command(command[0], append(command[1:], "--wait", "--steps", "800", "--step-ms", "10")...)
	target.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simcudaDir(), "SIMCUDA_STATE="+filepath.Join(dir, "state"))
	stdin, err := target.StdinPipe()
	must(t, err)
	stdout, err := target.StdoutPipe()
	must(t, err)
	must(t, target.Start())
	defer func() { _ = target.Process.Kill(); _ = target.Wait() }()
	lines := bufio.NewReader(stdout)
	expectLine(t, lines, "ready")

	recorder := exec.Command(gpurec, "record", "--record", "memory", "--allocator=off", "--blocks-every", "100ms",
		"--stacks", "fp", "--max-overhead", "off", "--nvml-interval", "0", "--segment-interval", "100ms", "-o", path,
		"-p", strconv.Itoa(target.Process.Pid))
	stderr, err := recorder.StderrPipe()
	must(t, err)
	must(t, recorder.Start())
	messages := bufio.NewReader(stderr)
	for text := ""; !strings.Contains(text, "attached to"); {
		if text, err = messages.ReadString('\n'); err != nil {
			t.Fatalf("record: %v", recorder.Wait())
		}
	}
	if strings.HasSuffix(command[len(command)-1], ".py") { // it has weights
		waitForReading(t, path+".d", 0)
	}
	_, err = io.WriteString(stdin, "x")
	must(t, err)
	expectLine(t, lines, "done")
	waitForReading(t, path+".d", time.Now().UnixNano())
	leaked, perMin = readLeakTruth(t, lines)
	must(t, recorder.Process.Signal(syscall.SIGINT))
	rest, _ := io.ReadAll(messages)
	if err := recorder.Wait(); err != nil {
		t.Fatalf("record: %v\n%s", err, rest)
	}
	return path, leaked, perMin
}

// readLeakTruth returns the bytes that a program says it leaked, in all and in a minute. It reads the first line that
// begins with "truth": both numbers are at its end.
func readLeakTruth(t *testing.T, lines *bufio.Reader) (leaked int64, perMin float64) {
	t.Helper()
	text, err := lines.ReadString('\n')
	must(t, err)
	fields := strings.Fields(text)
	if len(fields) != 5 || fields[0] != "truth" {
		t.Fatalf("not the truth: %q", text)
	}
	leaked, err = strconv.ParseInt(fields[3], 10, 64)
	must(t, err)
	perMin, err = strconv.ParseFloat(fields[4], 64)
	must(t, err)
	return leaked, perMin
}

// waitForReading waits until the segments of a running recording have a reading of blocks after a time, Unix ns.
func waitForReading(t *testing.T, folder string, afterNs int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		rec, err := format.Open(folder)
		if errors.Is(err, format.ErrNoSegments) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		found := false
		err = rec.Rows(func(r *format.Row) error {
			found = found || r.Name == format.BlocksRead && r.StartNs > afterNs
			return nil
		}, format.ClassBlock)
		must(t, errors.Join(err, rec.Close()))
		if found {
			return
		}
	}
	t.Fatal("no reading of blocks")
}
