package analyze

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

// The marks between which documents have a table of reports.
const (
	tableBegin = "<!-- Written by GPUREC_UPDATE=1 go test ./cmd/gpurec/analyze -run TablesOfReports -->\n"
	tableEnd   = "<!-- End of the written table -->\n"
)

// tableEntry is a report or a verb in a table of documents.
type tableEntry struct {
	name, question string
	subject        report.Subject
	isFeatured     bool
}

// tableEntries returns the reports and the verbs with a question, by subject.
func tableEntries() (list []tableEntry) {
	for _, d := range analyze.Reports {
		list = append(list, tableEntry{d.Name, d.Question, d.Subject, d.IsFeatured})
	}
	for _, v := range verbs {
		if v.question != "" {
			list = append(list, tableEntry{v.newCommand().Name(), v.question, v.subject, true})
		}
	}
	slices.SortStableFunc(list, func(a, b tableEntry) int { return cmp.Compare(a.subject, b.subject) })
	return list
}

// TestTablesOfReports compares the tables of reports in documents with the definitions of reports.
func TestTablesOfReports(t *testing.T) {
	testclass.Unit(t)
	for path, table := range map[string]string{
		"README.md":       writeReadmeTable(),
		"docs/README.md":  writeIndexTable(),
		"ARCHITECTURE.md": writeArchitectureTable(),
	} {
		checkWrittenTable(t, filepath.Join("../../..", path), table)
	}
}

// checkWrittenTable compares the part of a document between the marks with a table. With GPUREC_UPDATE=1 it writes
// the table into the document.
func checkWrittenTable(t *testing.T, path, table string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the line %q or %q", path, tableBegin, tableEnd)
	}
	want := before + tableBegin + "\n" + table + "\n" + tableEnd + after
	switch {
	case string(text) == want:
	case os.Getenv("GPUREC_UPDATE") == "1":
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table of reports; run GPUREC_UPDATE=1 go test ./cmd/gpurec/analyze -run "+
			"TablesOfReports", path)
	}
}

// writeReadmeTable returns the table of README.md: featured reports, and verbs.
func writeReadmeTable() string {
	var b strings.Builder
	b.WriteString("| question | command | page |\n|---|---|---|\n")
	for _, e := range tableEntries() {
		if e.isFeatured {
			fmt.Fprintf(&b, "| %s | `gpurec analyze %s` | [%s](docs/reports/%[2]s.md) |\n", e.question, e.name, e.name)
		}
	}
	return b.String()
}

// writeIndexTable returns the table of docs/README.md, which has a table of its own for exports.
func writeIndexTable() string {
	var b strings.Builder
	b.WriteString("| question | report |\n|---|---|\n")
	for _, e := range tableEntries() {
		if e.subject != report.SubjectExport {
			fmt.Fprintf(&b, "| %s | [%s](reports/%[2]s.md) |\n", e.question, e.name)
		}
	}
	return b.String()
}

// writeArchitectureTable returns the table of ARCHITECTURE.md: reports in the order of the list, with the classes of
// calls that they need.
func writeArchitectureTable() string {
	var b strings.Builder
	b.WriteString("| report | section of the page | needed classes |\n|---|---|---|\n")
	for _, d := range analyze.Reports {
		needs := strings.Join(d.Needs, ", ")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", d.Name, cmp.Or(d.Page.Title, "–"), cmp.Or(needs, "–"))
	}
	return b.String()
}
