package sql

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// QuoteText returns an expression of SQL for text. No text can end the literal. The expression has no
// control characters: it names them by chr(). It returns an error for text that SQL cannot hold: invalid
// UTF-8, and NUL.
func QuoteText(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("%q is not valid UTF-8", text)
	}
	if strings.ContainsRune(text, 0) {
		return "", fmt.Errorf("%q has a NUL", text)
	}
	var b strings.Builder
	b.WriteByte('\'')
	for _, c := range text {
		switch {
		case c == '\'':
			b.WriteString("''")
		case !unicode.IsPrint(c): // it ends a line, controls a terminal or changes the text direction
			fmt.Fprintf(&b, "' || chr(%d) || '", c)
		default:
			b.WriteRune(c) // a backslash has no meaning in a literal
		}
	}
	b.WriteByte('\'')
	return b.String(), nil
}
