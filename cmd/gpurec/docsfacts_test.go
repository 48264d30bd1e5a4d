//go:build linux

package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests in this file compare statements of documents with each other.

// measuredNumber matches a number or a range with a unit, a share such as "40 of 40", and a number
// of four or more digits.
var measuredNumber = func() *regexp.Regexp {
	const number = `\b[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?`
	const numbers, unit = number + `(?:–` + number + `)?`, ` ?(?:%|(?:[mµn]?s|min|h|[KMG]i?B)\b)`
	return regexp.MustCompile(
		numbers + ` of ` + numbers + `(?:` + unit + `)?|` + numbers + unit + `|\b[0-9]{1,3}(?:,[0-9]{3})+(?:–` + number + `)?`)
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
	readme := measuredNumbers(readDocument(t, "README.md").prose)
	benchmarks, quotes, ok := strings.Cut(readDocument(t, "docs/benchmarks.md").prose, "## Numbers that the README quotes")
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
