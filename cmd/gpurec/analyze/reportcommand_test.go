package analyze

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestDefinitions checks that the definition of each report is complete, and names only flags that the report has.
func TestDefinitions(t *testing.T) {
	testclass.Unit(t)
	for _, d := range analyze.Reports {
		for what, text := range map[string]string{
			"short help": d.Short, "long help": d.Long, "example": d.Example, "question": d.Question,
		} {
			if text == "" {
				t.Errorf("%s has no %s", d.Name, what)
			}
		}
		if len(d.Sections) == 0 || d.Run == nil {
			t.Errorf("%s has no sections or no Run", d.Name)
		}
		if isJob := d.Recordings == report.WholeJob; isJob != (d.RunJob != nil) {
			t.Errorf("%s: RunJob and Recordings disagree", d.Name)
		}
		if !strings.Contains(d.Example, "gpurec analyze "+d.Name+" ") {
			t.Errorf("%s is not in its example", d.Name)
		}
		flags := newReportCommand(d).Flags()
		var named []string
		for name := range d.Flags.Values {
			named = append(named, name)
		}
		for _, u := range d.Flags.Unsupported {
			named = append(named, u.Names...)
		}
		for _, name := range named {
			if flags.Lookup(name) == nil {
				t.Errorf("%s has no flag --%s", d.Name, name)
			}
		}
	}
	names := reportNames()
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("two reports have the same name: %q", names)
	}
}

// TestFormerNameIsHidden checks that the command of a former name is that of the report, and that help does not list it.
func TestFormerNameIsHidden(t *testing.T) {
	testclass.Unit(t)
	cmd, _, err := New().Find([]string{"works"})
	if err != nil || cmd.Name() != "works" || cmd.IsAvailableCommand() {
		t.Fatalf("works is the command %v, %v", cmd.Name(), err)
	}
	if want := analyze.FindReport("operations"); cmd.Short != want.Short || cmd.RunE == nil {
		t.Errorf("works shows %q", cmd.Short)
	}
	if slices.Contains(reportNames(), "works") {
		t.Error("the shell completes works")
	}
}
