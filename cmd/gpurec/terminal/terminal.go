// Package terminal tells how text can be written to standard output or standard error.
package terminal

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// Values of --color.
const (
	ColorAuto   = "auto"
	ColorAlways = "always"
	ColorNever  = "never"
)

// ColorModes lists the values of --color, the default first.
var ColorModes = []string{ColorAuto, ColorAlways, ColorNever}

// Inspect returns the width of lines in columns, 0 for no limit; whether to use colors; and whether to
// write ASCII only. color is a value of --color. For auto, the environment decides, then whether out
// is a terminal.
func Inspect(out *os.File, color string) (width int, paint, ascii bool) {
	isTerminal := term.IsTerminal(int(out.Fd()))
	if isTerminal {
		if columns, _, err := term.GetSize(int(out.Fd())); err == nil {
			width = columns
		}
	}
	return width, paints(color, isTerminal), isTerminal && !speaksUTF8()
}

// paints reports whether to use colors. It follows no-color.org and bixense.com/clicolors: NO_COLOR
// means no unless it is empty, CLICOLOR_FORCE means yes unless it is 0, CLICOLOR=0 means no. A
// terminal of type dumb gets no colors.
func paints(color string, isTerminal bool) bool {
	force := os.Getenv("CLICOLOR_FORCE")
	switch {
	case color == ColorAlways:
		return true
	case color == ColorNever, os.Getenv("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	}
	return isTerminal && os.Getenv("CLICOLOR") != "0" && os.Getenv("TERM") != "dumb"
}

// speaksUTF8 reports whether the locale's encoding is UTF-8. It assumes so if no locale is set, as in
// most containers.
func speaksUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(os.Getenv(name)); locale != "" {
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return true
}
