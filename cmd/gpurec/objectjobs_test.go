//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// objectTruth is the truth about a program of examples/objectleaks.
type objectTruth struct {
	Seed  int
	Tasks []objectTask
}

// objectTask is a function of the program that creates objects of one kind.
type objectTask struct{ Kind, Site, Pattern string }

// name returns the kind and the function.
func (o objectTask) name() string { return o.Kind + " at " + o.Site }

// TestObjectJobs records programs that create objects of the driver, half of them with a leak, and
// compares the verdicts of analyze objects with their truth. GPUREC_SEEDS is the number of programs; by
// default, there are four.
func TestObjectJobs(t *testing.T) {
	testclass.Root(t)
	program := requireSimcuda(t, "objectleaks", privilege.AttachAuto)
	seeds := []int{3, 8, 11, 14} // two with a leak, and two without
	if n, err := strconv.Atoi(os.Getenv("GPUREC_SEEDS")); err == nil {
		seeds = seeds[:0]
		for seed := range n {
			seeds = append(seeds, seed+1)
		}
	}
	var found, missed, accused, quiet int
	var lock sync.Mutex
	var wait sync.WaitGroup
	running := make(chan bool, 4) // the programs mostly sleep
	for _, seed := range seeds {
		wait.Go(func() {
			running <- true
			defer func() { <-running }()
			truth, r, err := recordObjects(t.TempDir(), program, seed)
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				return
			}
			rows := objectRows(r)
			for _, task := range truth.Tasks {
				row, ok := rows[task.name()]
				leaks, grows := task.Pattern == "leak", row.verdict == objects.VerdictGrowing.String()
				switch {
				case !ok:
					t.Errorf("seed %d: no row for %s (%s)", seed, task.name(), task.Pattern)
				case leaks && grows:
					found++
				case leaks:
					missed++
					t.Errorf("seed %d: %s leaks, but is %s: %s", seed, task.name(), row.verdict, row.evidence)
				case !grows:
					quiet++
				}
				delete(rows, task.name())
				if grows && !leaks {
					accused++
					t.Errorf("seed %d: %s (%s) is accused: %s", seed, task.name(), task.Pattern, row.evidence)
				}
			}
			for name, row := range rows { // the set-up, and contexts of tasks
				if row.verdict == objects.VerdictGrowing.String() {
					accused++
					t.Errorf("seed %d: %s is accused: %s", seed, name, row.evidence)
				}
			}
			if r.Quality.LostEvents > 0 {
				t.Errorf("seed %d: %d calls were lost", seed, r.Quality.LostEvents)
			}
		})
	}
	wait.Wait()
	t.Logf("%d programs: %d leaks found, %d missed; %d others accused, %d not accused", len(seeds), found, missed,
		accused, quiet)
	if found == 0 || quiet == 0 {
		t.Error("no leak found, or no other task")
	}
}

// objectRow is a row of the table sites.
type objectRow struct{ verdict, evidence string }

// objectRows returns the rows of the table sites by kind and function.
func objectRows(r *report.Report) map[string]objectRow {
	rows := make(map[string]objectRow)
	table := &r.Tables[0]
	for i := range table.Rows {
		row := &table.Rows[i]
		name := objectTask{Kind: table.Cell(row, "kind").(string), Site: table.Cell(row, "function").(string)}.name()
		rows[name] = objectRow{table.Cell(row, "verdict").(string), row.Evidence}
	}
	return rows
}

// recordObjects records a program. It returns the truth that the program prints, and the report by
// function.
func recordObjects(dir, program string, seed int) (*objectTruth, *report.Report, error) {
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	if err != nil {
		return nil, nil, err
	}
	output := filepath.Join(dir, "r.parquet")
	recorder := exec.Command(gpurec, "record", "--max-overhead", "off", "-o", output, "--nvml-interval", "0",
		"--segment-interval", "200ms", "--stacks", "fp", "--", program, "--seed", strconv.Itoa(seed))
	recorder.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simcudaDir(), "SIMCUDA_TIME=off",
		"SIMCUDA_STATE="+filepath.Join(dir, "state"))
	out, err := recorder.CombinedOutput()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, `{"seed"`) })
	if i < 0 {
		return nil, nil, fmt.Errorf("the program printed no truth: %s", out)
	}
	truth := new(objectTruth)
	if err := json.Unmarshal([]byte(lines[i]), truth); err != nil {
		return nil, nil, err
	}
	rec, err := format.Open(output)
	if err != nil {
		return nil, nil, err
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		return nil, nil, err
	}
	r, err := objects.Run(tl, query.Options{GroupBy: "function"})
	return truth, r, err
}
