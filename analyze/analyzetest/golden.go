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

// update is set if the tests rewrite the golden files.
var update = os.Getenv("GPUREC_UPDATE") == "1"

// Golden compares got with a file in testdata of the tested package.
func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if update {
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

// Skip skips a test that lacks a tool. With GPUREC_MUST_RUN=1 it fails the test.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("GPUREC_MUST_RUN") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Goldens compares a report with its golden files as a table of the given width, JSON and CSV.
func Goldens(t *testing.T, r *report.Report, name string, width int) {
	t.Helper()
	Golden(t, name+".table", Rendered(t, r, render.Options{Width: width}))
	Golden(t, name+".json", Rendered(t, r, render.Options{Format: "json"}))
	Golden(t, name+".csv", Rendered(t, r, render.Options{Format: "csv"}))
}

// Cells returns the values of a column in all rows of a table.
func Cells(t *testing.T, r *report.Report, table, key string) []string {
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

// Rendered returns a report in the format of the options.
func Rendered(t *testing.T, r *report.Report, opt render.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := render.WriteReport(&b, r, opt); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Safe checks that a report has no control characters for terminals, and that its JSON and CSV are
// valid.
func Safe(t *testing.T, r *report.Report) {
	t.Helper()
	for _, f := range []string{"table", "md"} {
		for _, c := range string(Rendered(t, r, render.Options{Format: f, Width: 100})) {
			if c != '\n' &&
				(unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == utf8.RuneError) {
				t.Fatalf("%s as %s: %q", r.Command, f, c)
			}
		}
	}
	if !json.Valid(Rendered(t, r, render.Options{Format: "json"})) {
		t.Error("not JSON")
	}
	if _, err := csv.NewReader(bytes.NewReader(Rendered(t, r, render.Options{Format: "csv"}))).ReadAll(); err != nil {
		t.Error(err)
	}
}

// AddCopy adds a copy on stream 7. kind is the copy kind, e.g. "HtoD".
func (tp *Tape) AddCopy(name, kind string, at, dur, dst, src, bytes int64) *format.Row {
	r := tp.Call(format.KindMemcpy, name, at, dur)
	r.CopyKind, r.Ptr, r.SrcPtr, r.Bytes, r.Stream = kind, dst, src, bytes, 7
	return r
}

// AddPinned adds an allocation of pinned host memory that takes no time.
func (tp *Tape) AddPinned(at, ptr, bytes int64) *format.Row {
	r := tp.Memory(format.KindAlloc, format.MemoryHost, at, ptr, bytes)
	r.Name, r.DurNs = "cuMemHostAlloc", 0
	return r
}

// Numbers compares values that --fail-on can test with those computed by hand.
func Numbers(t *testing.T, r *report.Report, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if got, ok, _ := r.Number(name); !ok || got != v {
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

// Root returns the root folder of the repository.
func Root(t testing.TB) string {
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

// InRoot returns the path of a file below the root folder of the repository.
func InRoot(t testing.TB, elements ...string) string {
	t.Helper()
	return filepath.Join(append([]string{Root(t)}, elements...)...)
}

func writeGolden(path string, got []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, got, 0o644)
}
