package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestSentences(t *testing.T) {
	testclass.Unit(t)
	for words, want := range map[string][]int{
		"Close releases the probes of gpurec.":                         {6},
		"One two three four five. Six seven eight nine ten eleven.":    {5, 6},
		"It waits, e.g. for the ring buffer of 32 MiB, at most 2.5 s.": {14},
		"too short":              nil,
		"a b c d e\n\nf g h i j": {5, 5},
		"run it so, for example:\n  gpurec record -p PID -d 60s": {5, 6},
	} {
		var got []int
		for _, s := range splitSentences(words) {
			got = append(got, countWords(words[s.start:s.end]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v words, want %v", words, got, want)
		}
	}
}

func TestGoTexts(t *testing.T) {
	testclass.Unit(t)
	source := `package p

// A comment
// of two lines.
var x = "a message " + name + " of parts"

type s struct {
	f int ` + "`json:\"tag\"`" + `
}
`
	texts, err := parseGoTexts("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	want := []text{
		{"p.go", kindComment, "A comment\nof two lines.", 3},
		{"p.go", kindMessage, "a message X of parts", 5},
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%+v, want %+v", texts, want)
	}
}

func TestMarkdownTexts(t *testing.T) {
	testclass.Unit(t)
	source := "# Head\nA [link](to/it) and `some code`\nin two lines.\n\n```\ncode is left out\n```\n| a cell | another |\n|---|---|\n- an item\n  of a list\n"
	want := []text{
		{"f.md", kindDocument, "Head", 1},
		{"f.md", kindDocument, "A link and CODE\nin two lines.", 2},
		{"f.md", kindDocument, "a cell", 8},
		{"f.md", kindDocument, "another", 8},
		{"f.md", kindDocument, "an item\nof a list", 10},
	}
	if texts := parseMarkdownTexts("f.md", source); !slices.Equal(texts, want) {
		t.Errorf("%+v, want %+v", texts, want)
	}
}

func TestPhrasesAreFound(t *testing.T) {
	testclass.Unit(t)
	phrases, err := parsePhrases()
	if err != nil {
		t.Fatal(err)
	}
	// The * keeps the program from finding its own test.
	for masked, want := range map[string]int{
		"An event is\nt*ld by a function.":    1,
		"Besides, it stands out.":             0,
		"It was T*LD OF twice.":               2,
		"It reads S* far\nas the file lasts.": 1,
		"It reads how far the file lasts.":    0,
		"Two calls, one\n*f which failed.":    1,
		"It drops what is kn*wn of a file.":   1,
		"It runs with*ut GPU or root.":        1,
	} {
		words, n := strings.ReplaceAll(masked, "*", "o"), 0
		for _, p := range phrases {
			n += len(p.findInText(words))
		}
		if n != want {
			t.Errorf("%q: %d phrases, want %d", words, n, want)
		}
	}
}

// TestCheckFails checks that the program fails on a file with one of each finding, and names their
// lines.
func TestCheckFails(t *testing.T) {
	testclass.Unit(t)
	file := filepath.Join(t.TempDir(), "p.go")
	long := strings.Repeat("word ", maxSentenceWords+1)
	source := "package p\n\n// It " + strings.ReplaceAll(
		"g*es",
		"*",
		"o",
	) + " on.\nvar x = \"" + long + "\"\n\nvar Y = 1\n"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkFiles([]string{file}); err == nil || !strings.HasPrefix(err.Error(), "4 findings") {
		t.Errorf("%v, want 4 findings: a phrase, a long sentence, a name without comment, the mean", err)
	}
	if names := findUndocumentedNames(file); len(names) != 1 || names[0].String() != file+":6" {
		t.Errorf("undocumented: %v", names)
	}
}

func TestDrawDependsOnTheSeed(t *testing.T) {
	testclass.Unit(t)
	files := []string{"main.go", "text.go", "rules.go", "draw.go"}
	var first, again, other strings.Builder
	for seed, w := range map[uint64]*strings.Builder{1: &first, 2: &other} {
		if err := drawSample(w, files, seed); err != nil {
			t.Fatal(err)
		}
	}
	if err := drawSample(&again, files, 1); err != nil || first.String() != again.String() {
		t.Errorf("two draws of one seed differ, error %v", err)
	}
	if first.String() == other.String() ||
		!strings.Contains(first.String(), "func draw") && !strings.Contains(first.String(), "40. ") {
		t.Errorf("draws of two seeds are the same, or lack texts or names:\n%s", first.String())
	}
}
