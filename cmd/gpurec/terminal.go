package main

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// When to paint.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

var colorModes = []string{colorAuto, colorAlways, colorNever}

// terminal says how text is to be written to a file: the width of lines, 0 is no limit; whether to paint, where the flag is asked
// before the environment and that before what the file is; and whether the locale has no UTF-8.
func terminal(out *os.File, color string) (width int, paint, ascii bool) {
	isTerminal := term.IsTerminal(int(out.Fd()))
	if isTerminal {
		if columns, _, err := term.GetSize(int(out.Fd())); err == nil {
			width = columns
		}
	}
	return width, paints(color, isTerminal), isTerminal && !speaksUTF8()
}

// paints follows no-color.org and bixense.com/clicolors: NO_COLOR, if it is not empty, is no; CLICOLOR_FORCE, if it is not 0, is
// yes; CLICOLOR=0 is no. A terminal that calls itself dumb has no colours.
func paints(color string, isTerminal bool) bool {
	force := os.Getenv("CLICOLOR_FORCE")
	switch {
	case color == colorAlways:
		return true
	case color == colorNever, os.Getenv("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	}
	return isTerminal && os.Getenv("CLICOLOR") != "0" && os.Getenv("TERM") != "dumb"
}

// speaksUTF8 reports whether the locale's characters are UTF-8. Where no locale is set, as in most containers, terminals do.
func speaksUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(os.Getenv(name)); locale != "" {
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return true
}
