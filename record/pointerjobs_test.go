//go:build linux

package record

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	analysis "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/pointers"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// pointerTruth is the truth about a program of examples/simcuda/pointers.c.
type pointerTruth struct {
	Seed                                  int
	Fault, Allocated, Freed, Site, Kernel string
	Bytes, Offset                         int64
}

// finding returns the error in the words of pointerFindings, "" if there is none.
func (p *pointerTruth) finding() string {
	switch p.Fault {
	case "double-free":
		return fmt.Sprintf("double free: %s, %s, %s", p.Allocated, p.Freed, p.Site)
	case "foreign-free":
		return fmt.Sprintf("unknown pointer: , , %s", p.Site)
	case "inside-free":
		return fmt.Sprintf("inside a block: %s, , %s", p.Allocated, p.Site)
	case "use-after-free":
		return fmt.Sprintf("freed: %s, %s, %s of %s, offset %d of %d", p.Allocated, p.Freed, p.Site, p.Kernel, p.Offset,
			p.Bytes)
	}
	return ""
}

// TestPointerJobs records programs that use device memory, half of them with a double free, a foreign free or a use
// after free at a random place. It compares analyze pointers, and the rules, with the truth: the error with both
// sites, and nothing else. GPUREC_SEEDS is the number of programs; by default, there are eight.
func TestPointerJobs(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	seeds := []int{1, 2, 3, 4, 8, 11, 13, 20} // five with an error, and three without
	if n, err := strconv.Atoi(os.Getenv("GPUREC_SEEDS")); err == nil {
		seeds = seeds[:0]
		for seed := range n {
			seeds = append(seeds, seed+1)
		}
	}
	var n pointerCounts
	for _, seed := range seeds {
		n.addProgram(t, seed)
	}
	t.Logf("%d programs: %d errors named with their sites, %d missed; %d others accused, %d programs without an error "+
		"not accused", len(seeds), n.named, n.missed, n.accused, n.quiet)
	if n.named == 0 || n.quiet == 0 {
		t.Error("no error named, or no program without one")
	}
}

// pointerCounts counts errors, and findings that are none.
type pointerCounts struct{ named, missed, accused, quiet int }

// addProgram records a program, and compares the findings with its truth.
func (c *pointerCounts) addProgram(t *testing.T, seed int) {
	t.Helper()
	truth, findings, ids := recordPointers(t, seed)
	want := truth.finding()
	i := slices.Index(findings, want)
	switch {
	case i >= 0:
		c.named++
		findings = slices.Delete(findings, i, i+1)
	case want != "":
		c.missed++
		t.Errorf("seed %d: no finding %q", seed, want)
	case len(findings) == 0:
		c.quiet++
	}
	c.accused += len(findings)
	for _, f := range findings {
		t.Errorf("seed %d (%s): accused: %s", seed, truth.Fault, f)
	}
	wantRule := ""
	switch truth.Fault {
	case "use-after-free":
		wantRule = "use-after-free"
	case "double-free", "foreign-free", "inside-free":
		wantRule = "invalid-free"
	}
	if got := strings.Join(ids, ","); got != wantRule {
		t.Errorf("seed %d (%s): rules %q, want %q", seed, truth.Fault, got, wantRule)
	}
}

// recordPointers records a program. It returns the truth that the program prints, all findings of the report, and
// the rules about pointers that fire.
func recordPointers(t *testing.T, seed int) (truth pointerTruth, findings, ids []string) {
	t.Helper()
	p := startSim(t, []string{"SIMCUDA_CHECK=arguments"}, "pointers", "--seed", strconv.Itoa(seed), "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.KernelArgs = 16
	result := runWhile(t, start(t, opt), func() {
		p.step()
		if err := json.Unmarshal([]byte(`{"seed"`+p.expect(`{"seed"`)), &truth); err != nil {
			t.Fatal(err)
		}
		p.expect("finished")
	})
	p.finish()
	rec, err := format.Open(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pointers.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"invalid-free", "use-after-free"} {
		hits, err := rules.RunWithOptions(tl, rules.Options{Rules: []string{id}})
		if err != nil {
			t.Fatal(err)
		}
		if len(tableRows(hits, "hits")) > 0 {
			ids = append(ids, id)
		}
	}
	return truth, pointerFindings(r), ids
}

// tableRows returns the rows of a table as maps from column key to value.
func tableRows(r *analysis.Report, name string) (rows []map[string]any) {
	i := slices.IndexFunc(r.Tables, func(t analysis.Table) bool { return t.Name == name })
	for _, row := range r.Tables[i].Rows {
		cells := make(map[string]any)
		for k, c := range r.Tables[i].Columns {
			cells[c.Key] = row.Cells[k]
		}
		rows = append(rows, cells)
	}
	return rows
}

// siteFunction returns the function of a call site, "" without one.
func siteFunction(site any) string {
	text, _ := site.(string)
	function, _, _ := strings.Cut(text, " ")
	return function
}

// pointerFindings returns the rows of the report about pointers, with the functions of their sites.
func pointerFindings(r *analysis.Report) (findings []string) {
	for _, row := range tableRows(r, "invalid_frees") {
		findings = append(findings, fmt.Sprintf("%s: %s, %s, %s", row["verdict"], siteFunction(row["allocated_site"]),
			siteFunction(row["freed_site"]), siteFunction(row["site"])))
	}
	for _, row := range tableRows(r, "arguments") {
		findings = append(findings, fmt.Sprintf(
			"%s: %s, %s, %s of %s, offset %v of %v",
			row["state"],
			siteFunction(
				row["allocated_site"],
			),
			siteFunction(row["freed_site"]),
			siteFunction(row["site"]),
			row["kernel"],
			row["offset_bytes"],
			row["bytes"],
		))
	}
	return findings
}
