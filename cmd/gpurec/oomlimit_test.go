//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestOOMUnderALimit records a program on simtorch that runs out of memory under a memory limit. It
// compares the causes and byte counts of the report with those that the program prints.
func TestOOMUnderALimit(t *testing.T) {
	testclass.Root(t)
	needVerdicts(t)
	for _, conf := range []string{"expandable_segments:False", "expandable_segments:True"} {
		t.Run(conf, func(t *testing.T) {
			path, truth := recordOOM(t, conf)
			rec, err := format.Open(path)
			must(t, err)
			defer rec.Close()
			tl, err := timeline.Open(rec)
			must(t, err)
			report, err := oom.Run(tl, query.Options{})
			must(t, err)
			rows := rowsOf(report, "failures")
			if len(rows) != 2 || len(truth) != 2 {
				t.Fatalf("%d failed allocations, want %d", len(rows), len(truth))
			}
			for i, row := range rows {
				want := truth[i]
				also := any(nil)
				if want.fits {
					also = "fragmentation"
				}
				if row["class"] != "limit" || row["also"] != also || row["requested_bytes"] != want.requested ||
					row["unused_bytes"] != want.unused {
					t.Errorf(
						"%v, also %v, %v requested, %v unused; want %+v",
						row["class"],
						row["also"],
						row["requested_bytes"],
						row["unused_bytes"],
						want,
					)
				}
				if least, below := row["limit_least_bytes"].(int64), row["limit_below_bytes"].(int64); least > want.allowed ||
					below <= want.allowed {
					t.Errorf("limit of %d is not in [%d, %d)", want.allowed, least, below)
				}
			}
			if text := report.Tables[0].Rows[0].Evidence; !strings.Contains(text, "the request of 102.0 MiB would "+
				"have succeeded ") || !strings.Contains(text, "or without the limit of") {
				t.Error(text)
			}
			checkFragmentationRule(t, tl, strings.HasSuffix(conf, "True"))
		})
	}
}

// checkFragmentationRule fails the test unless the advice of the rule names remedies against the
// limit and against fragmentation.
func checkFragmentationRule(t *testing.T, tl *timeline.Timeline, expandable bool) {
	t.Helper()
	found, err := rules.RunWithOptions(tl, rules.Options{Rules: []string{"oom-fragmentation"}})
	must(t, err)
	hits := rowsOf(found, "hits")
	if len(hits) != 1 {
		t.Fatalf("%d findings of the rule", len(hits))
	}
	advice := fmt.Sprint(hits[0]["advice"])
	if !strings.Contains(advice, "set_per_process_memory_fraction") ||
		strings.Contains(advice, "expandable_segments:True") == expandable {
		t.Errorf("wrong advice %q", advice)
	}
}

// failedRequest is a failed allocation as printed by the program. Sizes are in bytes.
type failedRequest struct {
	requested, unused, allowed int64
	fits                       bool
}

// recordOOM records the program from before its first allocation. It returns the path of the
// recording and the failed allocations that the program prints.
func recordOOM(t *testing.T, conf string) (path string, truth []failedRequest) {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	dir := t.TempDir()
	path = filepath.Join(dir, "r.parquet")
	target := exec.Command("python3", "-B", "../../examples/simtorch/oom_limit.py", "--wait")
	target.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simcudaDir(), "SIMCUDA_TIME=off", "SIMCUDA_MEMORY=32G",
		"SIMCUDA_STATE="+filepath.Join(dir, "state"), "PYTORCH_CUDA_ALLOC_CONF="+conf)
	stdin, err := target.StdinPipe()
	must(t, err)
	stdout, err := target.StdoutPipe()
	must(t, err)
	must(t, target.Start())
	defer func() { _ = target.Process.Kill(); _ = target.Wait() }()
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatal("the program does not start")
	}
	recorder := exec.Command(
		gpurec,
		"record",
		"--max-overhead",
		"off",
		"-o",
		path,
		"--nvml-interval",
		"0",
		"-p",
		strconv.Itoa(target.Process.Pid),
	)
	stderr, err := recorder.StderrPipe()
	must(t, err)
	must(t, recorder.Start())
	messages := bufio.NewScanner(stderr)
	output := ""
	for messages.Scan() {
		output += messages.Text() + "\n"
		if strings.Contains(messages.Text(), "attached to") {
			_, err := io.WriteString(stdin, "x")
			must(t, err)
		}
	}
	if err := recorder.Wait(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 5 && f[0] == "truth" {
			truth = append(truth, readFailedRequest(t, f[1:]))
		}
	}
	return path, truth
}

func readFailedRequest(t *testing.T, fields []string) failedRequest {
	t.Helper()
	var n [3]int64
	for i := range n {
		var err error
		n[i], err = strconv.ParseInt(fields[i], 10, 64)
		must(t, err)
	}
	return failedRequest{n[0], n[1], n[2], fields[3] == "fits"}
}
