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
	files, err := trackedFiles(flag.Args())
	switch {
	case err != nil:
	case *seed != 0:
		err = draw(os.Stdout, files, *seed)
	default:
		err = check(files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

// check prints every finding of the files and returns an error if there is one.
func check(files []string) error {
	phrases, err := readPhrases()
	if err != nil {
		return err
	}
	findings := 0
	report := func(where place, format string, args ...any) {
		findings++
		fmt.Printf("%s: %s\n", where, fmt.Sprintf(format, args...))
	}
	var documents, messages lengths
	for _, file := range files {
		texts, err := textsOf(file)
		if err != nil {
			return err
		}
		for _, t := range texts {
			for _, p := range phrases {
				for _, i := range p.find(t.words) {
					report(t.at(i), "%q: write %s", strings.ToLower(t.words[i.start:i.end]), p.instead)
				}
			}
			sum := &messages
			switch t.kind {
			case comment:
				continue
			case document:
				sum = &documents
			}
			for _, s := range sentences(t.words) {
				n := countWords(t.words[s.start:s.end])
				sum.add(n)
				if n > maxWords {
					report(
						t.at(s),
						"%d words in a sentence: make two: %.60s…",
						n,
						strings.TrimSpace(t.words[s.start:s.end]),
					)
				}
			}
		}
		for _, name := range undocumented(file) {
			report(name.place, "%s is exported and has no doc comment", name.name)
		}
	}
	findings += reportMean("documents", documents)
	findings += reportMean("help and messages", messages)
	if findings > 0 {
		return fmt.Errorf("%d findings", findings)
	}
	return nil
}

// reportMean prints the mean length of the sentences of a kind, and returns 1 if it is too long.
func reportMean(kind string, l lengths) int {
	fmt.Printf("%s: %d sentences, %.1f words on average\n", kind, l.count, l.mean())
	if l.mean() > maxMean {
		fmt.Printf("%s: more than %d words on average: shorten sentences\n", kind, maxMean)
		return 1
	}
	return 0
}

// trackedFiles returns the files that git knows under the given paths, without those that other
// projects wrote or a program made.
func trackedFiles(paths []string) ([]string, error) {
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
		return file == "" || isForeign(file)
	}), nil
}

// isForeign reports whether the file is a library of another project, generated, or an output that
// tests compare.
func isForeign(file string) bool {
	base := path.Base(file)
	return strings.Contains(file, "/web/lib/") || strings.Contains(file, "/testdata/") && path.Ext(file) != ".go" ||
		base == "bundle.js" ||
		strings.Contains(base, "_bpfel")
}
