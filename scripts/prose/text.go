package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// kind says which rules a text must follow. All texts are searched for phrases.
type kind int

const (
	comment  kind = iota // a comment, or a string of a test: no rule about sentences
	document             // Markdown
	message              // a string of the program: help, messages, texts of reports
)

// span is a part of a text, as byte offsets.
type span struct{ start, end int }

// place is a line of a file.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// text is a piece of prose: a group of comments, a string or a paragraph.
type text struct {
	file  string
	kind  kind
	words string // lines of a paragraph are joined by \n; paragraphs are separated by \n\n
	line  int    // of the first line of words
}

// at returns the line in which a part of the text begins.
func (t text) at(s span) place {
	return place{t.file, t.line + strings.Count(t.words[:s.start], "\n")}
}

// textsOf returns the texts of a file. Of files other than Go and Markdown all lines are taken as
// comments, without the marks of comments.
func textsOf(file string) ([]text, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch ext := path.Ext(file); {
	case ext == ".go":
		return goTexts(file, data)
	case ext == ".md":
		return markdownTexts(file, string(data)), nil
	case strings.Contains(" .c .h .cc .cpp .cu .js .mjs .css .html .py .sh .table .yml ", " "+ext+" "),
		path.Base(file) == "Makefile":
		return []text{{file, comment, commentMarks.ReplaceAllString(string(data), ""), 1}}, nil
	}
	return nil, nil
}

// commentMarks are the marks at the beginning of a line of a comment.
var commentMarks = regexp.MustCompile(`(?m)^[ \t]*(//+|/\*+|\*+/?|#+)?[ \t]*`)

// goTexts returns the comments and the strings of a Go file.
func goTexts(file string, source []byte) ([]text, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var texts []text
	for _, group := range f.Comments {
		var lines []string
		for _, c := range group.List {
			lines = append(lines, commentMarks.ReplaceAllString(c.Text, ""))
		}
		texts = append(texts, text{file, comment, strings.Join(lines, "\n"), set.Position(group.Pos()).Line})
	}
	kind := message
	if isTest(file) {
		kind = comment
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			if n.Tag != nil {
				n.Tag = nil
			}
		case *ast.BinaryExpr, *ast.BasicLit:
			if words, ok := literal(n.(ast.Expr)); ok {
				texts = append(texts, text{file, kind, words, set.Position(n.Pos()).Line})
				return false
			}
		}
		return true
	})
	return texts, nil
}

// isTest reports whether a Go file is used by tests or by the build alone.
func isTest(file string) bool {
	return strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "analyze/analyzetest/") ||
		strings.HasPrefix(
			file,
			"record/simtest/",
		) || strings.HasPrefix(file, "examples/") || strings.HasPrefix(file, "scripts/")
}

// literal returns the value of a string, or of strings joined by +, in which X represents a part
// that is known at run time only. It reports false for other expressions.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, isLeft := literal(e.X)
		right, isRight := literal(e.Y)
		if !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = "X"
		}
		if !isRight {
			right = "X"
		}
		return left + right, true
	}
	return "", false
}

var (
	fence      = regexp.MustCompile("^\\s*(```|~~~)")
	inlineCode = regexp.MustCompile("``[^\n]*?``|`[^`\n]*`")
	link       = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	listItem   = regexp.MustCompile(`^\s*([-*+]|\d+\.)\s+`)
	htmlTag    = regexp.MustCompile(`<[^>\n]*>`)
)

// markdownTexts returns the paragraphs, list items, headings and cells of a Markdown file, without
// code, addresses and marks.
func markdownTexts(file, source string) []text {
	var texts []text
	var lines []string
	first, inCode := 0, false
	flush := func() {
		if len(lines) > 0 {
			texts = append(texts, text{file, document, strings.Join(lines, "\n"), first})
		}
		lines = nil
	}
	for i, line := range strings.Split(source, "\n") {
		isFence := fence.MatchString(line)
		line = inlineCode.ReplaceAllString(line, "CODE")
		line = htmlTag.ReplaceAllString(link.ReplaceAllString(line, "$1"), "")
		trimmed := strings.TrimSpace(strings.TrimLeft(line, "> "))
		switch {
		case isFence:
			flush()
			inCode = !inCode
		case inCode:
		case trimmed == "" || strings.Trim(trimmed, "-|: ") == "":
			flush()
		case strings.HasPrefix(trimmed, "|"):
			flush()
			for _, cell := range strings.Split(strings.Trim(trimmed, "|"), "|") {
				texts = append(texts, text{file, document, strings.TrimSpace(cell), i + 1})
			}
		case strings.HasPrefix(trimmed, "#"):
			flush()
			texts = append(texts, text{file, document, strings.TrimLeft(trimmed, "# "), i + 1})
		default:
			if listItem.MatchString(line) {
				flush()
			}
			if lines == nil {
				first = i + 1
			}
			lines = append(lines, listItem.ReplaceAllString(trimmed, ""))
		}
	}
	flush()
	return texts
}
