package analyze_test

import (
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/internal/testclass"
)

// formerKeys are the former keys of columns and facts, by report.
var formerKeys = map[string][]string{
	"gaps":       {"late_works", "untimed_works", "works"},
	"hang":       {"gpu_work", "work"},
	"operations": {"extra_works", "unpaired_works", "works"},
	"steps":      {"extra_works", "kernel_works", "slow_works", "works"},
	"sync":       {"last_work"},
}

// TestFormerNames checks that a report is found by its former name, and which former keys columns have. A former key is
// no key of another column.
func TestFormerNames(t *testing.T) {
	testclass.Unit(t)
	if d := analyze.FindReport("works"); d == nil || d.Name != "operations" {
		t.Errorf("works is %+v", d)
	}
	for _, d := range analyze.Reports {
		for _, name := range d.Aliases {
			if analyze.FindReport(name) != d {
				t.Errorf("%s and another report have the name %s", d.Name, name)
			}
		}
		var former []string
		for _, s := range d.Sections {
			for _, c := range s.Columns {
				if c.OldKey == "" {
					continue
				}
				former = append(former, c.OldKey)
				for _, o := range s.Columns {
					if o.Key == c.OldKey {
						t.Errorf("%s, %s: %s is a former key, and a key", d.Name, s.Title, o.Key)
					}
				}
			}
		}
		slices.Sort(former)
		if former = slices.Compact(former); !slices.Equal(former, formerKeys[d.Name]) {
			t.Errorf("%s has the former keys %q, want %q", d.Name, former, formerKeys[d.Name])
		}
	}
}
