package analyzetest

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// updateGoldens is set if the tests rewrite the golden files.
var updateGoldens = os.Getenv("GPUREC_UPDATE") == "1"

// CompareGolden compares got with a file in testdata of the tested package.
func CompareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if updateGoldens {
		if err := writeGolden(path, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run GPUREC_UPDATE=1 go test ./analyze/... to write it", err)
	}
	if string(want) != string(got) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}

// CompareGoldenReports compares a report with its golden files as a table of the given width, JSON
// and CSV.
func CompareGoldenReports(t *testing.T, r *report.Report, name string, width int) {
	t.Helper()
	CompareGolden(t, name+".table", RenderReport(t, r, render.Options{Width: width}))
	CompareGolden(t, name+".json", RenderReport(t, r, render.Options{Format: "json"}))
	CompareGolden(t, name+".csv", RenderReport(t, r, render.Options{Format: "csv"}))
}

// ColumnTexts returns the values of a column in all rows of a table.
func ColumnTexts(t *testing.T, r *report.Report, table, key string) []string {
	t.Helper()
	for i := range r.Tables {
		if r.Tables[i].Name != table {
			continue
		}
		column := slices.IndexFunc(r.Tables[i].Columns, func(c report.Column) bool { return c.Key == key })
		var list []string
		for _, row := range r.Tables[i].Rows {
			list = append(list, fmt.Sprint(row.Cells[column]))
		}
		return list
	}
	t.Fatalf("no table %s", table)
	return nil
}

// RenderReport returns a report in the format of the options.
func RenderReport(t *testing.T, r *report.Report, opt render.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := render.WriteReport(&b, r, opt); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// CheckSafeToPrint checks that a report has no control characters for terminals, and that its JSON
// and CSV are valid.
func CheckSafeToPrint(t *testing.T, r *report.Report) {
	t.Helper()
	for _, f := range []string{"table", "md"} {
		for _, c := range string(RenderReport(t, r, render.Options{Format: f, Width: 100})) {
			if c != '\n' &&
				(unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == utf8.RuneError) {
				t.Fatalf("%s as %s: %q", r.Command, f, c)
			}
		}
	}
	if !json.Valid(RenderReport(t, r, render.Options{Format: "json"})) {
		t.Error("not JSON")
	}
	if _, err := csv.NewReader(bytes.NewReader(RenderReport(t, r, render.Options{Format: "csv"}))).
		ReadAll(); err != nil {
		t.Error(err)
	}
}

// AddCopy adds a copy on stream 7. kind is the copy kind, e.g. "HtoD".
func (recording *TestRecording) AddCopy(name, kind string, at, dur, dst, src, bytes int64) *format.Row {
	r := recording.AddCall(format.KindMemcpy, name, at, dur)
	r.CopyKind, r.Ptr, r.SrcPtr, r.Bytes, r.Stream = kind, dst, src, bytes, 7
	return r
}

// AddPinned adds an allocation of pinned host memory that takes no time.
func (recording *TestRecording) AddPinned(at, ptr, bytes int64) *format.Row {
	r := recording.AddMemoryCall(format.KindAlloc, format.MemoryHost, at, ptr, bytes)
	r.Name, r.DurNs = "cuMemHostAlloc", 0
	return r
}

// CheckNumbers compares values that --fail-on can test with those computed by hand.
func CheckNumbers(t *testing.T, r *report.Report, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if got, ok, _ := r.FindNumber(name); !ok || got != v {
			t.Errorf("%s: %s = %v (%v), want %v", r.Command, name, got, ok, v)
		}
	}
}

// ParseSuppressions parses the text of a suppressions file.
func ParseSuppressions(t testing.TB, text string) *query.Suppressions {
	t.Helper()
	s, err := query.ParseSuppressions("known.supp", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// RepositoryRoot returns the root folder of the repository.
func RepositoryRoot(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	for ; err == nil; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			break
		}
	}
	t.Fatalf("no go.mod above %s: %v", folder, err)
	return ""
}

// RepositoryPath returns the path of a file below the root folder of the repository.
func RepositoryPath(t testing.TB, elements ...string) string {
	t.Helper()
	return filepath.Join(append([]string{RepositoryRoot(t)}, elements...)...)
}

func writeGolden(path string, got []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, got, 0o644)
}
