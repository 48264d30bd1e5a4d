package testclass_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	slashpath "path"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// test is a test in the sources.
type test struct {
	Package string // folder, relative to the repository
	Name    string
	// Call is the function of package testclass that the test calls first, "" if there is none.
	Call string
	// Arguments are the further arguments of the call: properties, or the target of make in quotes.
	Arguments []string
}

func (c *test) String() string { return c.Package + " " + c.Name }

// isGate reports whether .ci/run runs a test of class root.
func (c *test) isGate() bool { return slices.Contains(c.Arguments, "testclass.Gate") }

// repository is the root folder of the sources.
var repository = os.DirFS("../..")

// readTests returns all tests of the repository, sorted by package and name.
func readTests(t *testing.T) []*test {
	t.Helper()
	var tests []*test
	err := fs.WalkDir(repository, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == "build" || path == ".git" || entry.Name() == "testdata"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(repository, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && isTest(f) {
				call, arguments := firstCall(f)
				tests = append(tests, &test{slashpath.Dir(path), f.Name.Name, call, arguments})
			}
		}
		return nil
	})
	if err != nil || len(tests) == 0 {
		t.Fatalf("%d tests, %v", len(tests), err)
	}
	slices.SortFunc(tests, func(a, b *test) int { return strings.Compare(a.String(), b.String()) })
	return tests
}

// isTest reports whether go test runs a function as a test.
func isTest(f *ast.FuncDecl) bool {
	parameters := f.Type.Params.List
	if f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "Test" || len(parameters) != 1 {
		return false
	}
	pointer, ok := parameters[0].Type.(*ast.StarExpr)
	return ok && expression(pointer.X) == "testing.T"
}

// firstCall returns the function and the further arguments of the first statement of a test, if that
// calls package testclass.
func firstCall(f *ast.FuncDecl) (name string, arguments []string) {
	if len(f.Body.List) == 0 {
		return "", nil
	}
	statement, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return "", nil
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return "", nil
	}
	name, ok = strings.CutPrefix(expression(call.Fun), "testclass.")
	if !ok {
		return "", nil
	}
	for _, argument := range call.Args[1:] {
		arguments = append(arguments, expression(argument))
	}
	return name, arguments
}

// expression returns the source of a name, a selector or a literal, "" for other expressions.
func expression(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.SelectorExpr:
		return expression(e.X) + "." + e.Sel.Name
	}
	return ""
}

func TestEveryTestStatesItsClass(t *testing.T) {
	testclass.Unit(t)
	for _, c := range readTests(t) {
		if !slices.Contains([]string{"Unit", "Browser", "Root", "Lab"}, c.Call) {
			t.Errorf("%s does not begin with a call of testclass.Unit, Browser, Root or Lab", c)
		}
	}
}

// TestGateHasEveryPackage checks that .ci/run runs tests of each package below record: real probes if the
// package has such tests.
func TestGateHasEveryPackage(t *testing.T) {
	testclass.Unit(t)
	type counts struct{ root, gate, unit int }
	packages := make(map[string]*counts)
	for _, c := range readTests(t) {
		n := packages[c.Package]
		if n == nil {
			n = new(counts)
			packages[c.Package] = n
		}
		switch {
		case c.isGate():
			n.gate++
		case c.Call == "Root":
			n.root++
		case c.Call == "Unit":
			n.unit++
		}
	}
	for name, n := range packages {
		if name != "record" && !strings.HasPrefix(name, "record/") {
			continue
		}
		if n.root > 0 && n.gate == 0 {
			t.Errorf("%s has %d tests of class root, but none with testclass.Gate", name, n.root)
		}
		if n.gate+n.unit == 0 {
			t.Errorf("%s has no test that .ci/run runs", name)
		}
	}
}

// TestGateHasEveryKind checks that testdata/gate.txt names a test of .ci/run for each kind of row, and that
// all named tests exist. A test of cmd/gpurec checks the commands.
func TestGateHasEveryKind(t *testing.T) {
	testclass.Unit(t)
	text, err := os.ReadFile("testdata/gate.txt")
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]*test)
	for _, c := range readTests(t) {
		tests[c.String()] = c
	}
	var named []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 4 {
			t.Fatalf("%q: want a subject, a name, a package and a test", line)
		}
		if fields[0] == "kind" {
			named = append(named, fields[1])
		}
		if c := tests[fields[2]+" "+fields[3]]; c == nil || !c.isGate() && c.Call != "Unit" {
			t.Errorf("%s %s: .ci/run does not run %s of %s", fields[0], fields[1], fields[3], fields[2])
		}
	}
	slices.Sort(named)
	if kinds := readKinds(t); !slices.Equal(named, kinds) {
		t.Errorf("testdata/gate.txt has the kinds %q, package format has %q", named, kinds)
	}
}

// readKinds returns the values of the constants format.Kind*, sorted.
func readKinds(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(repository, "format/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, path := range files {
		text, err := fs.ReadFile(repository, path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if c, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(c.Names[0].Name, "Kind") && len(c.Values) == 1 {
				kinds = append(kinds, strings.Trim(expression(c.Values[0]), `"`))
			}
			return true
		})
	}
	slices.Sort(kinds)
	return kinds
}

// TestTargetsExist checks that the Makefile has the targets that run tests of class lab.
func TestTargetsExist(t *testing.T) {
	testclass.Unit(t)
	text, err := fs.ReadFile(repository, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range readTests(t) {
		if c.Call != "Lab" {
			continue
		}
		if target := strings.Trim(
			strings.Join(c.Arguments, ""),
			`"`,
		); !strings.Contains(
			string(text),
			"\n"+target+": ",
		) {
			t.Errorf("%s names the target %q, which the Makefile lacks", c, target)
		}
	}
}

// The marks of CONTRIBUTING.md between which the tables of tests are.
const (
	tablesBegin = "<!-- Written by GPUREC_UPDATE=1 go test ./internal/testclass -->\n"
	tablesEnd   = "<!-- End of the written tables -->\n"
)

// TestContributingHasTheTests compares the tables of tests in CONTRIBUTING.md with the sources.
func TestContributingHasTheTests(t *testing.T) {
	testclass.Unit(t)
	const path = "../../CONTRIBUTING.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tablesBegin)
	_, after, ok2 := strings.Cut(rest, tablesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the line %q or %q", path, tablesBegin, tablesEnd)
	}
	want := before + tablesBegin + writeTables(readTests(t)) + tablesEnd + after
	if os.Getenv("GPUREC_UPDATE") == "1" {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Error("CONTRIBUTING.md has other tests than the sources; run GPUREC_UPDATE=1 go test ./internal/testclass")
	}
}

// writeTables returns the tables of CONTRIBUTING.md: tests of class root that .ci/run runs, by package,
// and tests of class lab, by target.
func writeTables(tests []*test) string {
	gate, lab := make(map[string][]string), make(map[string][]string)
	for _, c := range tests {
		switch {
		case c.isGate():
			gate[c.Package] = append(gate[c.Package], c.Name)
		case c.Call == "Lab":
			target := strings.Trim(strings.Join(c.Arguments, ""), `"`)
			lab[target] = append(lab[target], c.Name)
		}
	}
	var b strings.Builder
	b.WriteString("\n| package | tests with real probes in `.ci/run` |\n|---|---|\n")
	writeRows(&b, gate, "")
	b.WriteString("\n| command | tests of class lab |\n|---|---|\n")
	writeRows(&b, lab, "make ")
	b.WriteString("\n")
	return b.String()
}

// writeRows writes a row of a table for each group of tests.
func writeRows(b *strings.Builder, groups map[string][]string, prefix string) {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(b, "| `%s%s` | %s |\n", prefix, name, "`"+strings.Join(groups[name], "`<br>`")+"`")
	}
}
