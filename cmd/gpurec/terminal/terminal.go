// Package terminal reports the line width, color support and character set of standard output or
// standard error.
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

// Inspect returns the line width in columns (0 for no limit), whether to use colors, and whether to
// write ASCII only. color is a value of --color. For ColorAuto, environment variables decide first;
// without them, colors are used on a terminal.
func Inspect(out *os.File, color string) (width int, paint, ascii bool) {
	isTerminal := term.IsTerminal(int(out.Fd()))
	if isTerminal {
		if columns, _, err := term.GetSize(int(out.Fd())); err == nil {
			width = columns
		}
	}
	return width, shouldUseColor(color, isTerminal), isTerminal && !isUTF8Locale()
}

// shouldUseColor reports whether to use colors. It follows no-color.org and bixense.com/clicolors.
// A non-empty NO_COLOR means no, CLICOLOR_FORCE other than 0 means yes, and CLICOLOR=0 means no.
// TERM=dumb means no.
func shouldUseColor(color string, isTerminal bool) bool {
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

// isUTF8Locale reports whether the encoding of the locale is UTF-8. It returns true if no locale is
// set, as in most containers.
func isUTF8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(os.Getenv(name)); locale != "" {
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return true
}
