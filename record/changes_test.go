//go:build linux && cgo

package record

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	analysis "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/simtest"
)

// changeCase is a program of simcuda's changing, and the series that must change.
type changeCase struct {
	fault, quiet string
	series       []string
	seconds      int
}

// changeCases are ten programs with a fault, and ten without one. The first of each half are in the ordinary
// tests.
var changeCases = []changeCase{
	{"clock", "noise", []string{"SM clock"}, 14},
	{"none", "epochs", nil, 14},
	{"steps", "noise", []string{"step time", "launch rate"}, 20},
	{"launches", "noise", []string{"launch rate"}, 20},
	{"memory", "noise", []string{"driver memory", "memory used"}, 20},
	{"temperature", "noise", []string{"temperature"}, 40},
	{"pcie", "noise", []string{"PCIe received"}, 25},
	{"errors", "noise", []string{"NVLink replays"}, 60},
	{"clock", "checkpoints", []string{"SM clock"}, 20},
	{"steps", "checkpoints", []string{"step time", "launch rate"}, 20},
	{"memory", "epochs", []string{"driver memory", "memory used"}, 20},
	{"none", "noise", nil, 20},
	{"none", "noise", nil, 40},
	{"none", "checkpoints", nil, 20},
	{"none", "checkpoints", nil, 40},
	{"none", "epochs", nil, 20},
	{"none", "epochs", nil, 40},
	{"none", "plateau", nil, 20},
	{"none", "plateau", nil, 40},
	{"none", "plateau", nil, 60},
}

// TestChangesAreFound records programs with a value that moves to another level, and programs without a
// fault. It compares the report changes with their truth. GPUREC_SEEDS is the number of variants of all
// programs. By default there is one variant of the first two.
func TestChangesAreFound(t *testing.T) {
	testclass.Root(t)
	simtest.LoadSimulatedNVML(t, simcudaDir)
	seeds, err := strconv.Atoi(os.Getenv("GPUREC_SEEDS"))
	cases := changeCases
	if err != nil {
		cases, seeds = changeCases[:2], 1
	}
	for seed := 1; seed <= seeds; seed++ {
		for _, c := range cases {
			t.Run(
				fmt.Sprintf("%s/%s/%d s/%d", c.fault, c.quiet, c.seconds, seed),
				func(t *testing.T) { c.run(t, seed) },
			)
		}
	}
}

// run records a variant of the program, and checks the report.
func (c *changeCase) run(t *testing.T, seed int) {
	needKernel(t)
	nvml := []string{"SIMCUDA_NVML=" + os.Getenv("SIMCUDA_NVML"), "SIMCUDA_STATE=" + os.Getenv("SIMCUDA_STATE")}
	p := startSim(
		t, nvml, "changing", c.fault, c.quiet, "--seconds", fmt.Sprint(c.seconds), "--seed", fmt.Sprint(seed), "--wait",
	)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.NVMLInterval = 100 * time.Millisecond
	s := start(t, opt)
	var faultNs int64
	result := runWhile(t, s, func() {
		p.step()
		if c.series != nil {
			faultNs, _ = strconv.ParseInt(p.expect("fault"), 10, 64)
		}
		p.expect("done")
	})
	p.finish()
	rec, err := format.Open(opt.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := analyze.FindReport("changes").Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.check(t, tableOf(r, "changes"), faultNs+result.Meta.ClockOffsetNs)
	if t.Failed() {
		for _, row := range tableOf(r, "series").Rows {
			t.Log(row.Cells...)
		}
	}
}

// check compares the changes with the time of the fault, Unix ns.
func (c *changeCase) check(t *testing.T, table *analysis.Table, faultNs int64) {
	const toleranceNs = 1_500_000_000 // a sample of GPM is an average of half a second
	isFound := false
	for i := range table.Rows {
		row := &table.Rows[i]
		series, at := table.Cell(row, "series").(string), table.Cell(row, "time_ns").(int64)
		before := at - table.Cell(row, "within_ns").(int64)
		isAt := c.series != nil && faultNs >= before-toleranceNs && faultNs <= at+toleranceNs
		isFound = isFound || isAt && slices.Contains(c.series, series)
		if !isAt {
			t.Errorf(
				"%s changed from %v to %v at %d, within %d ns; the fault is at %d",
				series,
				table.Cell(row, "from"),
				table.Cell(row, "to"),
				at,
				at-before,
				faultNs,
			)
		}
	}
	if !isFound && c.series != nil {
		t.Errorf("%s is not found; %d changes", c.fault, len(table.Rows))
	}
}
