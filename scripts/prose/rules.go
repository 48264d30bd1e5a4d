package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"unicode"
)

const (
	maxSentenceWords     = 30 // most words of one sentence
	maxMeanSentenceWords = 17 // words of a sentence, on average over all of a kind
	minSentenceWords     = 5  // a text with fewer words is a label, not a sentence
)

//go:embed phrases.tsv
var phraseTable string

// wordyPhrase is an expression with a plainer form.
type wordyPhrase struct {
	expression *regexp.Regexp
	instead    string
}

// parsePhrases returns the phrases of phrases.tsv.
func parsePhrases() ([]wordyPhrase, error) {
	var phrases []wordyPhrase
	for _, line := range strings.Split(phraseTable, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expression, instead, ok := strings.Cut(line, "\t")
		if !ok {
			return nil, fmt.Errorf("phrases.tsv: %q has no tab", line)
		}
		// A phrase may be broken at the end of a line.
		re, err := regexp.Compile("(?i)" + strings.ReplaceAll(expression, " ", `\s+`))
		if err != nil {
			return nil, fmt.Errorf("phrases.tsv: %w", err)
		}
		phrases = append(phrases, wordyPhrase{re, instead})
	}
	return phrases, nil
}

// findInText returns where the phrase is in a text.
func (p wordyPhrase) findInText(words string) []byteSpan {
	var spans []byteSpan
	for _, m := range p.expression.FindAllStringIndex(words, -1) {
		spans = append(spans, byteSpan{m[0], m[1]})
	}
	return spans
}

// sentenceLengths sums up the words of sentences.
type sentenceLengths struct{ count, words int }

func (l *sentenceLengths) addSentence(words int) { l.count++; l.words += words }

// meanWords returns the words of a sentence on average, 0 without sentences.
func (l *sentenceLengths) meanWords() float64 {
	if l.count == 0 {
		return 0
	}
	return float64(l.words) / float64(l.count)
}

// sentenceEndPattern is the end of a sentence and what begins the next one, the end of a paragraph,
// or the beginning of a line that is indented, such as an example in a help text.
var sentenceEndPattern = regexp.MustCompile(`[.!?][")'*_]*\s+(?:["'(*_]*[A-Z0-9%-])|\n\s*\n|\n[ \t]+`)

// splitSentences returns the sentences of a text that have at least minSentenceWords words.
func splitSentences(words string) []byteSpan {
	var spans []byteSpan
	add := func(s byteSpan) {
		if countWords(words[s.start:s.end]) >= minSentenceWords {
			spans = append(spans, s)
		}
	}
	start := 0
	for start < len(words) {
		m := sentenceEndPattern.FindStringIndex(words[start:])
		if m == nil {
			break
		}
		end := start + m[1]
		if !unicode.IsSpace(rune(words[end-1])) {
			end-- // the first letter of the next sentence
		}
		add(byteSpan{start, end})
		start = end
	}
	add(byteSpan{start, len(words)})
	return spans
}

// countWords returns the number of words: what blanks separate and has a letter or a digit.
func countWords(s string) int {
	n := 0
	for _, field := range strings.Fields(s) {
		if strings.ContainsFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

// undocumentedName is a declared name and where it is.
type undocumentedName struct {
	textPosition
	name string
}

// findUndocumentedNames returns the exported functions, types, variables and constants of a Go file
// that have no doc comment. A comment on a group of constants or variables covers all of them.
// Methods that implement an interface of the standard library need none.
func findUndocumentedNames(file string) []undocumentedName {
	if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
		return nil
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil // readTexts has reported the syntax error
	}
	var names []undocumentedName
	miss := func(name *ast.Ident) {
		names = append(names, undocumentedName{textPosition{file, set.Position(name.Pos()).Line}, name.Name})
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && !standardInterfaceMethods[d.Name.Name] && hasExportedReceiver(d) {
				miss(d.Name)
			}
		case *ast.GenDecl:
			if d.Doc == nil {
				eachUndocumentedSpec(d, miss)
			}
		}
	}
	return names
}

// standardInterfaceMethods are those of fmt.Stringer, error, errors.Unwrap, sort.Interface and
// heap.Interface.
var standardInterfaceMethods = map[string]bool{
	"String": true, "Error": true, "Unwrap": true, "Is": true,
	"Len": true, "Less": true, "Swap": true, "Push": true, "Pop": true,
}

// hasExportedReceiver reports whether a function is no method, or one of an exported type.
func hasExportedReceiver(d *ast.FuncDecl) bool {
	receiver := receiverTypeName(d)
	return receiver == "" || ast.IsExported(receiver)
}

// receiverTypeName returns the type whose method a function is, "" for a function.
func receiverTypeName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch u := t.(type) {
		case *ast.StarExpr:
			t = u.X
		case *ast.IndexExpr:
			t = u.X
		case *ast.IndexListExpr:
			t = u.X
		case *ast.Ident:
			return u.Name
		default:
			return ""
		}
	}
}

// eachUndocumentedSpec calls miss with each exported name of a declaration that has no comment
// before it or in its line.
func eachUndocumentedSpec(d *ast.GenDecl, miss func(*ast.Ident)) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Doc == nil && s.Comment == nil && s.Name.IsExported() {
				miss(s.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if s.Doc == nil && s.Comment == nil && name.IsExported() {
					miss(name)
				}
			}
		}
	}
}
