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

// textKind says which rules a text must follow. All texts are searched for phrases.
type textKind int

const (
	kindComment  textKind = iota // a comment, or a string of a test: no rule about sentences
	kindDocument                 // Markdown
	kindMessage                  // a string of the program: help, messages, texts of reports
)

// byteSpan is a part of a text, as byte offsets.
type byteSpan struct{ start, end int }

// textPosition is a line of a file.
type textPosition struct {
	file string
	line int
}

func (p textPosition) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// text is a piece of prose: a group of comments, a string or a paragraph.
type text struct {
	file  string
	kind  textKind
	words string // lines of a paragraph are joined by \n; paragraphs are separated by \n\n
	line  int    // of the first line of words
}

// positionAt returns the line in which a part of the text begins.
func (t text) positionAt(s byteSpan) textPosition {
	return textPosition{t.file, t.line + strings.Count(t.words[:s.start], "\n")}
}

// readTexts returns the texts of a file. Of files other than Go and Markdown all lines are taken as
// comments, without the marks of comments.
func readTexts(file string) ([]text, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch ext := path.Ext(file); {
	case ext == ".go":
		return parseGoTexts(file, data)
	case ext == ".md":
		return parseMarkdownTexts(file, string(data)), nil
	case strings.Contains(" .c .h .cc .cpp .cu .js .mjs .css .html .py .sh .table .yml ", " "+ext+" "),
		path.Base(file) == "Makefile":
		return []text{{file, kindComment, commentMarkPattern.ReplaceAllString(string(data), ""), 1}}, nil
	}
	return nil, nil
}

// commentMarkPattern are the marks at the beginning of a line of a comment.
var commentMarkPattern = regexp.MustCompile(`(?m)^[ \t]*(//+|/\*+|\*+/?|#+)?[ \t]*`)

// parseGoTexts returns the comments and the strings of a Go file.
func parseGoTexts(file string, source []byte) ([]text, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var texts []text
	for _, group := range f.Comments {
		var lines []string
		for _, c := range group.List {
			lines = append(lines, commentMarkPattern.ReplaceAllString(c.Text, ""))
		}
		texts = append(texts, text{file, kindComment, strings.Join(lines, "\n"), set.Position(group.Pos()).Line})
	}
	kind := kindMessage
	if isTestFile(file) {
		kind = kindComment
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
			if words, ok := unquoteLiteral(n.(ast.Expr)); ok {
				texts = append(texts, text{file, kind, words, set.Position(n.Pos()).Line})
				return false
			}
		}
		return true
	})
	return texts, nil
}

// isTestFile reports whether a Go file is used by tests or by the build alone.
func isTestFile(file string) bool {
	return strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "analyze/analyzetest/") ||
		strings.HasPrefix(
			file,
			"record/simtest/",
		) || strings.HasPrefix(file, "examples/") || strings.HasPrefix(file, "scripts/")
}

// unquoteLiteral returns the value of a string, or of strings joined by +, in which X represents a
// part that is known at run time only. It reports false for other expressions.
func unquoteLiteral(e ast.Expr) (string, bool) {
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
		left, isLeft := unquoteLiteral(e.X)
		right, isRight := unquoteLiteral(e.Y)
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
	codeFencePattern    = regexp.MustCompile("^\\s*(```|~~~)")
	inlineCodePattern   = regexp.MustCompile("``[^\n]*?``|`[^`\n]*`")
	markdownLinkPattern = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	listItemPattern     = regexp.MustCompile(`^\s*([-*+]|\d+\.)\s+`)
	htmlTagPattern      = regexp.MustCompile(`<[^>\n]*>`)
)

// parseMarkdownTexts returns the paragraphs, list items, headings and cells of a Markdown file,
// without code, addresses and marks.
func parseMarkdownTexts(file, source string) []text {
	var texts []text
	var lines []string
	first, inCode := 0, false
	flush := func() {
		if len(lines) > 0 {
			texts = append(texts, text{file, kindDocument, strings.Join(lines, "\n"), first})
		}
		lines = nil
	}
	for i, line := range strings.Split(source, "\n") {
		isFence := codeFencePattern.MatchString(line)
		line = inlineCodePattern.ReplaceAllString(line, "CODE")
		line = htmlTagPattern.ReplaceAllString(markdownLinkPattern.ReplaceAllString(line, "$1"), "")
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
				texts = append(texts, text{file, kindDocument, strings.TrimSpace(cell), i + 1})
			}
		case strings.HasPrefix(trimmed, "#"):
			flush()
			texts = append(texts, text{file, kindDocument, strings.TrimLeft(trimmed, "# "), i + 1})
		default:
			if listItemPattern.MatchString(line) {
				flush()
			}
			if lines == nil {
				first = i + 1
			}
			lines = append(lines, listItemPattern.ReplaceAllString(trimmed, ""))
		}
	}
	flush()
	return texts
}
