// Command prose checks the texts of the project: comments, messages, help and documents. It fails
// on phrases that have a plainer form, on long sentences, and on exported names without a doc
// comment. CONTRIBUTING.md has the rules.
//
// With -draw SEED it prints forty texts and forty names instead, for a reader who is new to the
// project: what such a reader misunderstands needs better words.
//
//	scripts/prose.sh [-draw SEED] [FILE or FOLDER ...]
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

func main() {
	seed := flag.Uint64("draw", 0, "print forty texts and names chosen by `SEED`")
	flag.Parse()
	files, err := listTrackedFiles(flag.Args())
	switch {
	case err != nil:
	case *seed != 0:
		err = drawSample(os.Stdout, files, *seed)
	default:
		err = checkFiles(files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

// checkFiles prints every finding of the files and returns an error if there is one.
func checkFiles(files []string) error {
	phrases, err := parsePhrases()
	if err != nil {
		return err
	}
	findings := 0
	report := func(where textPosition, format string, args ...any) {
		findings++
		fmt.Printf("%s: %s\n", where, fmt.Sprintf(format, args...))
	}
	var documents, messages sentenceLengths
	for _, file := range files {
		texts, err := readTexts(file)
		if err != nil {
			return err
		}
		for _, t := range texts {
			for _, p := range phrases {
				for _, i := range p.findInText(t.words) {
					report(t.positionAt(i), "%q: write %s", strings.ToLower(t.words[i.start:i.end]), p.instead)
				}
			}
			sum := &messages
			switch t.kind {
			case kindComment:
				continue
			case kindDocument:
				sum = &documents
			}
			for _, s := range splitSentences(t.words) {
				n := countWords(t.words[s.start:s.end])
				sum.addSentence(n)
				if n > maxSentenceWords {
					report(
						t.positionAt(s),
						"%d words in a sentence: make two: %.60s…",
						n,
						strings.TrimSpace(t.words[s.start:s.end]),
					)
				}
			}
		}
		for _, name := range findUndocumentedNames(file) {
			report(name.textPosition, "%s is exported and has no doc comment", name.name)
		}
	}
	findings += printMeanWords("documents", documents)
	findings += printMeanWords("help and messages", messages)
	if findings > 0 {
		return fmt.Errorf("%d findings", findings)
	}
	return nil
}

// printMeanWords prints the mean length of the sentences of a kind, and returns 1 if it is too
// long.
func printMeanWords(kind string, l sentenceLengths) int {
	fmt.Printf("%s: %d sentences, %.1f words on average\n", kind, l.count, l.meanWords())
	if l.meanWords() > maxMeanSentenceWords {
		fmt.Printf("%s: more than %d words on average: shorten sentences\n", kind, maxMeanSentenceWords)
		return 1
	}
	return 0
}

// listTrackedFiles returns the files that git knows under the given paths, without those that other
// projects wrote or a program made.
func listTrackedFiles(paths []string) ([]string, error) {
	args := append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, paths...)
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(file string) bool {
		if _, err := os.Stat(file); err != nil {
			return true // deleted, and not yet committed
		}
		return file == "" || isForeignFile(file)
	}), nil
}

// isForeignFile reports whether the file is a library of another project, generated, or an output
// that tests compare.
func isForeignFile(file string) bool {
	base := path.Base(file)
	return strings.Contains(file, "/web/lib/") || strings.Contains(file, "/testdata/") && path.Ext(file) != ".go" ||
		base == "bundle.js" ||
		strings.Contains(base, "_bpfel")
}
