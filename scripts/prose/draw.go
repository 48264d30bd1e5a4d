package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"path"
	"strings"
)

// itemsPerDraw is how many texts and how many names a draw has.
const itemsPerDraw = 40

// drawSample prints texts and names chosen by a seed, for a reader who is new to the project and
// sees nothing else. What the reader misunderstands needs better words. Of texts it takes comments
// and messages of at least minSentenceWords words outside of tests, of names those that packages
// declare.
func drawSample(w io.Writer, files []string, seed uint64) error {
	var candidates []text
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || path.Ext(file) == ".md" {
			continue
		}
		texts, err := readTexts(file)
		if err != nil {
			return err
		}
		if path.Ext(file) != ".go" {
			texts = selectComments(texts)
		} else {
			names = append(names, listDeclaredNames(file)...)
		}
		for _, t := range texts {
			if countWords(t.words) >= minSentenceWords {
				candidates = append(candidates, t)
			}
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	fmt.Fprintf(w, "%d of %d texts, seed %d\n", itemsPerDraw, len(candidates), seed)
	for i, k := range random.Perm(len(candidates))[:min(itemsPerDraw, len(candidates))] {
		t := candidates[k]
		fmt.Fprintf(w, "\n%d. %s\n%s\n", i+1, t.positionAt(byteSpan{}), strings.TrimSpace(t.words))
	}
	fmt.Fprintf(w, "\n%d of %d names\n\n", itemsPerDraw, len(names))
	for i, k := range random.Perm(len(names))[:min(itemsPerDraw, len(names))] {
		fmt.Fprintf(w, "%d. %s\n", i+1, names[k])
	}
	return nil
}

// selectComments cuts the text of a file without a parser into paragraphs, and returns those that
// look like prose: they have the end of a sentence and none of the signs of code.
func selectComments(texts []text) []text {
	var comments []text
	for _, t := range texts {
		line := t.line
		for _, paragraph := range strings.SplitAfter(t.words, "\n\n") {
			if strings.Contains(paragraph, ". ") && !strings.ContainsAny(paragraph, "{};=") {
				comments = append(comments, text{t.file, t.kind, paragraph, line})
			}
			line += strings.Count(paragraph, "\n")
		}
	}
	return comments
}

// listDeclaredNames returns the functions, methods, types, constants and variables that a Go file
// declares, with their package.
func listDeclaredNames(file string) []string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil // readTexts has reported the syntax error
	}
	pkg := path.Dir(file)
	var names []string
	add := func(kind, name string) {
		if name != "_" && name != "init" && name != "main" {
			names = append(names, fmt.Sprintf("%s %s (package %s)", kind, name, pkg))
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver := receiverTypeName(d); receiver != "" {
				add("method", receiver+"."+d.Name.Name)
			} else {
				add("func", d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add("type", s.Name.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(d.Tok.String(), name.Name)
					}
				}
			}
		}
	}
	return names
}
