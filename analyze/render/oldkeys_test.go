package render_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

// reportWithKeys returns a report whose keys begin with new, and have a former key or not.
func reportWithKeys(key func(suffix string) (key, oldKey string)) *report.Report {
	column := func(suffix string) report.Column {
		k, old := key(suffix)
		return report.Column{Key: k, OldKey: old, Title: "TITLE", Unit: report.UnitCount}
	}
	name, oldName := key("table")
	table := report.Table{Name: name, OldName: oldName, Columns: []report.Column{column("count"), {Key: "pid"}}}
	for i := range int64(3) {
		table.Rows = append(table.Rows, report.Row{Cells: []any{i, "a"}, Evidence: "because"})
	}
	table.OmittedRows = 2
	return &report.Report{
		Command: "test",
		Facts:   []report.Fact{{Column: column("fact"), Value: "text"}},
		Totals: []report.Fact{
			{Column: column("total"), Value: int64(5)},
			{Column: report.Column{Key: "pids"}, Value: 1.5},
		},
		Tables: []report.Table{table},
	}
}

// TestJSONKeepsOldKeys removes the new keys from the JSON of a report with former keys. The rest is the JSON from before
// the keys were renamed. Other formats have the new keys only.
func TestJSONKeepsOldKeys(t *testing.T) {
	testclass.Unit(t)
	renamed := reportWithKeys(func(s string) (string, string) { return "new_" + s, "old_" + s })
	before := reportWithKeys(func(s string) (string, string) { return "old_" + s, "" })
	after := reportWithKeys(func(s string) (string, string) { return "new_" + s, "" })
	asJSON := render.Options{Format: "json"}
	got := string(analyzetest.RenderReport(t, renamed, asJSON))
	if want := string(analyzetest.RenderReport(t, before, asJSON)); withoutKeys(got, "new_") != want {
		t.Errorf("without new keys:\n%s\nwant:\n%s", withoutKeys(got, "new_"), want)
	}
	if want := string(analyzetest.RenderReport(t, after, asJSON)); withoutKeys(got, "old_") != want {
		t.Errorf("without old keys:\n%s\nwant:\n%s", withoutKeys(got, "old_"), want)
	}
	for _, format := range []string{"table", "csv", "md"} {
		opt := render.Options{Format: format}
		if !bytes.Equal(analyzetest.RenderReport(t, renamed, opt), analyzetest.RenderReport(t, after, opt)) {
			t.Errorf("%s has former keys", format)
		}
	}
}

// withoutKeys removes the lines of keys with a prefix, with the lines of their lists. A comma before the end of an object
// goes, too.
func withoutKeys(text, prefix string) string {
	var kept []string
	skipTo := ""
	for _, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		indent := line[:len(line)-len(trimmed)]
		switch {
		case skipTo != "":
			if strings.TrimRight(line, ",") == skipTo {
				skipTo = ""
			}
		case strings.HasPrefix(trimmed, `"`+prefix):
			if strings.HasSuffix(line, "[") {
				skipTo = indent + "]"
			}
		default:
			if n := len(kept) - 1; n >= 0 && strings.HasPrefix(trimmed, "}") {
				kept[n] = strings.TrimSuffix(kept[n], ",")
			}
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
