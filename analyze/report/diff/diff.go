package diff

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Per says by what the numbers of a comparison are divided: nothing (the zero value), seconds, or steps.
type Per struct {
	unit   string
	kernel *regexp.Regexp // a launch of such a kernel is a step
}

// ParsePer reads second, or step=REGEX of a kernel that is launched once a step.
func ParsePer(text string) (Per, error) {
	if text == "" || text == "second" {
		return Per{unit: text}, nil
	}
	pattern, ok := strings.CutPrefix(text, "step=")
	if !ok {
		return Per{}, fmt.Errorf("%q is neither second nor step=REGEX", text)
	}
	kernel, err := regexp.Compile(pattern)
	if err != nil {
		return Per{}, err
	}
	return Per{"step", kernel}, nil
}

// NoStepsError says that no launch of a recording is a step.
type NoStepsError struct{ Kernel string }

func (e *NoStepsError) Error() string {
	return fmt.Sprintf("no launch of a kernel that matches %q", e.Kernel)
}

// ReportFunc makes a report of a recording.
type ReportFunc func(*timeline.Timeline, query.Options) (*report.Report, error)

// Side is one of the two recordings of a comparison: the report on it, and what it was made on. It needs the recording no more.
type Side struct {
	Path   string
	report *report.Report
	setup  []report.Fact
	per    Per
	amount float64 // seconds or steps that numbers are divided by; 0: they are not
}

// NewSide makes a report for a comparison. Of the options, Sort and Top are those of the comparison, not of the report. It returns
// a *NoStepsError if there is nothing to divide by.
func NewSide(t *timeline.Timeline, make ReportFunc, opt query.Options, per Per) (*Side, error) {
	opt.Sort, opt.Top = "", 0
	r, err := make(t, opt)
	if err != nil {
		return nil, err
	}
	s := &Side{Path: t.Rec.Path, report: r, setup: setup(t), per: per}
	switch per.unit {
	case "second":
		s.amount = float64(r.Window.DurNs()) / 1e9
	case "step":
		steps, err := launchesOf(t, per.kernel, &opt.Filter)
		if err != nil {
			return nil, err
		}
		if s.amount = float64(steps); steps == 0 {
			return nil, &NoStepsError{per.kernel.String()}
		}
	}
	return s, nil
}

var setupColumns = []report.Column{
	{Key: "what", Title: "DIFFERENT", Unit: report.UnitText, About: "what the two recordings do not have in common; numbers can differ because of it"},
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "in the first recording"},
	{Key: "after", Title: "AFTER", Unit: report.UnitText, About: "in the second recording"},
}

// setup is what a recording was made on, and how.
func setup(t *timeline.Timeline) []report.Fact {
	m := &t.Rec.Meta
	var gpus, frameworks []string
	counts := make(map[string]int)
	for _, d := range t.Facts.Devices {
		counts[d.Name]++
	}
	for name, n := range counts {
		gpus = append(gpus, fmt.Sprintf("%d x %s", n, name))
	}
	for _, a := range t.Facts.Allocators {
		frameworks = append(frameworks, strings.TrimSpace(strings.Join([]string{a.Allocator, a.Version, a.Conf}, " ")))
	}
	slices.Sort(gpus)
	slices.Sort(frameworks)
	var list []report.Fact
	for _, f := range [][2]string{{"driver", m.DriverVersion}, {"CUDA", m.CUDAVersion}, {"GPUs", strings.Join(gpus, ", ")},
		{"framework", strings.Join(slices.Compact(frameworks), ", ")}, {"stacks", m.Stacks}, {"host", m.Host}, {"CPU", m.Machine.CPU},
		{"kernel", strings.TrimSpace(m.OSRelease + " " + m.Arch)}, {"gpurec", m.GpurecVersion}, {"attached by", m.Attach},
		{"processes", units.Plural(int64(len(t.Facts.Processes)), "process")}, {"ranks", t.RanksText()},
		{"complete", m.Complete}} {
		list = append(list, report.Fact{Column: report.Column{Key: f[0]}, Value: f[1]})
	}
	return list
}

// launchesOf counts launches of kernels of a name, and runs of graphs where the call is called that.
func launchesOf(t *timeline.Timeline, kernel *regexp.Regexp, f *query.Filter) (int64, error) {
	u := calls.NewCounter(t, f)
	if err := u.Scan(); err != nil {
		return 0, err
	}
	var n int64
	for name, s := range u.Kernels {
		if kernel.MatchString(name) {
			n += s.Calls - s.Captured - s.Errors
		}
	}
	for name, s := range u.Calls {
		if name.Kind == format.KindLaunch && catalog.BaseName(name.Name) == "cuGraphLaunch" && kernel.MatchString(name.Name) {
			n += s.Calls - s.Captured - s.Errors
		}
	}
	return n, nil
}

var factColumns = []report.Column{
	{Key: "report", Title: "report", Unit: report.UnitText, About: "the report that is compared"},
	{Key: "before", Title: "before", Unit: report.UnitText, About: "first recording, and the length of its window"},
	{Key: "after", Title: "after", Unit: report.UnitText, About: "second recording, and the length of its window"},
	{Key: "per", Title: "per", Unit: report.UnitText, About: "by what counts, bytes and times are divided, and how many that are; shares, rates, extremes and moments are not divided"},
	{Key: "not_compared", Title: "not compared", Unit: report.UnitText, About: "tables whose rows have no counterpart: they are events, or are about one recording"},
}

var totalColumns = []report.Column{
	{Key: "changed", Title: "changed rows", Unit: report.UnitCount, About: "rows that both recordings have and that are different in some number or word"},
	{Key: "new", Title: "new", Unit: report.UnitCount, About: "rows that only the second recording has"},
	{Key: "gone", Title: "gone", Unit: report.UnitCount, About: "rows that only the first recording has"},
	{Key: "same", Title: "same", Unit: report.UnitCount, About: "rows that are equal"},
}

// nameColumns explains the names that a comparison makes of those of a report.
var nameColumns = []report.Column{
	{Key: "row", Title: "ROW", Unit: report.UnitText, About: "new, gone, changed or same"},
	{Key: "<column>_before", Title: "BEFORE", Unit: report.UnitText, About: "the column in the first recording; of the columns with numbers the first that is not left out for width is shown"},
	{Key: "<column>_after", Title: "AFTER", Unit: report.UnitText, About: "in the second recording"},
	{Key: "<column>_change", Title: "CHANGE", Unit: report.UnitText, About: "after - before; a new row was 0 before, a gone one is 0 after, and what is unknown has no change. +/- columns are the changes of further columns"},
	{Key: "<column>_change_pct", Title: "CHANGE%", Unit: report.UnitPercent, About: "that, in percent of before; absent where before is 0"},
	{Key: "<column>_per_second_..., _per_step_...", Title: "", Unit: report.UnitText, About: "the same with --per"},
	{Key: "<total>_before, _after, _change, _change_pct", Title: "", Unit: report.UnitText, About: "the same of facts and totals of the report; for --fail-on"},
	{Key: "new_<verdict>", Title: "", Unit: report.UnitCount, About: "rows with this verdict in the second recording that had another one, or were not there, in the first: new_growing"},
	{Key: "gone_<verdict>", Title: "", Unit: report.UnitCount, About: "rows with this verdict in the first recording that have another one, or are not there, in the second"},
}

// Run compares a report on two recordings: rows of tables are paired by the columns that say what they are about, several with
// equal ones in their order. Rows are ordered by the size of their change. Of opt only Sort and Top are used; it returns a
// *SortError for a column that no table has.
func Run(before, after *Side, opt query.Options) (*report.Report, error) {
	a, b := before.report, after.report
	r := &report.Report{Command: "diff", Window: b.Window, Quality: b.Quality, Before: &a.Quality, NoMatch: cmp.Or(b.NoMatch, a.NoMatch)}
	for _, n := range a.Notes {
		r.Notes = append(r.Notes, "before: "+n)
	}
	for _, n := range b.Notes {
		r.Notes = append(r.Notes, "after: "+n)
	}
	d := differ{before: before, after: after}
	r.Tables = []report.Table{setupTable(before, after), d.numberTable()}
	var skipped []string
	for i := range b.Tables {
		after := &b.Tables[i]
		at := slices.IndexFunc(a.Tables, func(t report.Table) bool { return t.Name == after.Name })
		if at < 0 || !isComparable(after) {
			skipped = append(skipped, after.Name)
			continue
		}
		r.Tables = append(r.Tables, d.join(&a.Tables[at], after))
	}
	r.Totals = d.totals()
	r.Facts = append(report.Fill(factColumns, b.Command, before.said(), after.said(), d.per(), strings.Join(skipped, ", ")), d.numbers...)
	return r, arrangeAny(r.Tables, opt.Sort, opt.Top)
}

// said names a recording.
func (s *Side) said() string { return s.Path + ", " + units.Duration(s.report.Window.DurNs()) }

// setupTable has what differs between the recordings.
func setupTable(before, after *Side) report.Table {
	table := report.Table{Name: "setup", Title: "different about the recordings", Columns: setupColumns, Aside: true}
	for i, f := range before.setup {
		if was, is := f.Value.(string), after.setup[i].Value.(string); was != is {
			table.Rows = append(table.Rows, report.Row{Cells: []any{f.Key, units.Known(was), units.Known(is)}})
		}
	}
	return table
}

// arrangeAny sorts all tables that have the column, and cuts them; setup and numbers stay whole.
func arrangeAny(tables []report.Table, by string, top int) error {
	var wrong error
	sorted := false
	for i := range tables {
		t := &tables[i]
		if i < 2 {
			continue
		}
		err := t.Arrange(by, 0)
		sorted = sorted || err == nil
		if wrong == nil {
			wrong = err
		}
		if err := t.Arrange("", top); err != nil {
			return err
		}
	}
	if sorted {
		return nil
	}
	return wrong
}
