//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/internal/testclass"
)

// The tests in this file compare statements of documents with each other and with the code:
// measured numbers, decisions, rules, and commands of make.

// measuredNumber matches a number or a range with a unit, a share such as "40 of 40", and a number
// of four or more digits.
var measuredNumber = func() *regexp.Regexp {
	const number = `\b[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?`
	const numbers, unit = number + `(?:–` + number + `)?`, ` ?(?:%|(?:[mµn]?s|min|h|[KMG]i?B)\b)`
	return regexp.MustCompile(
		numbers + ` of ` + numbers + `(?:` + unit + `)?|` + numbers + unit + `|\b[0-9]{1,3}(?:,[0-9]{3})+(?:–` + number + `)?`,
	)
}()

var codeOrImage = regexp.MustCompile("`[^`]*`|!\\[[^\\]]*\\]")

// measuredNumbers returns the measured numbers of a text of Markdown. Code and pictures have none.
func measuredNumbers(text string) []string {
	return measuredNumber.FindAllString(codeOrImage.ReplaceAllString(text, "`"), -1)
}

// tableRows returns the cells of each row of the tables in a text of Markdown.
func tableRows(text string) (rows [][]string) {
	for line := range strings.Lines(text) {
		if cells, ok := strings.CutPrefix(strings.TrimSpace(line), "| "); ok {
			rows = append(rows, strings.Split(strings.TrimSuffix(cells, " |"), " | "))
		}
	}
	return rows
}

// TestNumbersOfReadme compares the measured numbers of README.md with docs/benchmarks.md. The last
// table there lists each number of the README, and the row that has it.
func TestNumbersOfReadme(t *testing.T) {
	testclass.Unit(t)
	readme := measuredNumbers(readDocument(t, "README.md").prose)
	benchmarks, quotes, ok := strings.Cut(
		readDocument(t, "docs/benchmarks.md").prose,
		"## Numbers that the README quotes",
	)
	if !ok {
		t.Fatal("docs/benchmarks.md does not list the numbers of the README")
	}
	measured := make(map[string][]string) // by the first cell of a row
	for _, row := range tableRows(benchmarks) {
		measured[row[0]] = append(measured[row[0]], measuredNumbers(strings.Join(row, " | "))...)
	}
	quoted := make(map[string]bool)
	for _, row := range tableRows(quotes)[1:] {
		for _, number := range measuredNumbers(row[0]) {
			quoted[number] = true
			if !slices.Contains(measured[row[1]], number) {
				t.Errorf("docs/benchmarks.md: the row %q has no number %s", row[1], number)
			}
			if !slices.Contains(readme, number) {
				t.Errorf("docs/benchmarks.md quotes %s, but the README does not have it", number)
			}
		}
	}
	for _, number := range readme {
		if !quoted[number] {
			t.Errorf("README.md has %s, but docs/benchmarks.md does not list it", number)
		}
	}
	if len(readme) < 20 {
		t.Errorf("the README has only the numbers %v", readme)
	}
}

// TestDecisions checks that docs/adr/README.md and ARCHITECTURE.md list the records of docs/adr in
// order, with their titles. ARCHITECTURE.md leaves out superseded decisions.
func TestDecisions(t *testing.T) {
	testclass.Unit(t)
	paths, err := filepath.Glob(filepath.Join(docsRoot, "docs/adr/[0-9]*.md"))
	must(t, err)
	var numbered, current []string
	for i, path := range paths {
		data, err := os.ReadFile(path)
		must(t, err)
		name, lines := filepath.Base(path), strings.Split(string(data), "\n")
		title, ok := strings.CutPrefix(lines[0], fmt.Sprintf("# %d. ", i+1))
		if !ok || !strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)) {
			t.Errorf("%s begins with %q, and is record %d", name, lines[0], i+1)
		}
		numbered = append(numbered, fmt.Sprintf("| [%d](%s) | %s |", i+1, name, title))
		if !strings.Contains(lines[2], "superseded by") {
			current = append(current, fmt.Sprintf("- [%s](docs/adr/%s)", title, name))
		}
	}
	list := regexp.MustCompile(`\| \[[0-9]+\]\([^)]*\) \| [^|]* \|`)
	compareLists(t, "docs/adr/README.md", list.FindAllString(readDocument(t, "docs/adr/README.md").prose, -1), numbered)
	list = regexp.MustCompile(`- \[[^\]]*\]\(docs/adr/[0-9][^)]*\)`)
	text := strings.Join(strings.Fields(readDocument(t, "ARCHITECTURE.md").prose), " ")
	compareLists(t, "ARCHITECTURE.md", list.FindAllString(text, -1), current)
}

// compareLists reports the lines that a document lacks, has too many or has in another order.
func compareLists(t *testing.T, document string, got, want []string) {
	t.Helper()
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s lacks %s", document, line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s has %s", document, line)
		}
	}
	if !t.Failed() && !slices.Equal(got, want) {
		t.Errorf("%s has another order: %q", document, got)
	}
}

// TestRulesAreDocumented compares docs/reports/rules.md with the rules, and its number of rules.
func TestRulesAreDocumented(t *testing.T) {
	testclass.Unit(t)
	d := readDocument(t, "docs/reports/rules.md")
	var got, want []string
	for _, row := range tableRows(d.prose[strings.Index(d.prose, "## The rules"):])[1:] {
		got = append(got, strings.Trim(row[0], "`"))
	}
	for _, r := range rules.AllRules() {
		want = append(want, r.ID)
	}
	compareLists(t, d.path, got, want)
	if number := fmt.Sprintf("%d rules", len(want)); !strings.Contains(d.prose, number) {
		t.Errorf("%s does not say that there are %s", d.path, number)
	}
}

// TestMakeTargetsExist checks that the Makefile has the targets that documents name.
func TestMakeTargetsExist(t *testing.T) {
	testclass.Unit(t)
	makefile, err := os.ReadFile(filepath.Join(docsRoot, "Makefile"))
	must(t, err)
	command := regexp.MustCompile("(?m)(?:`|^ *)(?:sudo )?make ([a-z][a-z0-9-]*)")
	named := 0
	for _, d := range documents(t) {
		if !d.hasCommands() {
			continue
		}
		for _, m := range command.FindAllStringSubmatch(strings.Join(d.lines, "\n"), -1) {
			named++
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", d.path, m[1])
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d commands of make were found", named)
	}
}
