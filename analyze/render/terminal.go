package render

import (
	"slices"
	"strings"
)

// ANSI escape sequences that start a colour, and that return to the default colour.
const (
	Red    = "\x1b[31m"
	Yellow = "\x1b[33m"
	Plain  = "\x1b[0m"
)

// colouredKeys are the keys of the columns with verdicts and severities.
var colouredKeys = []string{"verdict", "level", "severity", "class"}

// isColoured reports whether the cells of a column can have a colour.
func isColoured(key string) bool { return slices.Contains(colouredKeys, key) }

// verdictColours are the colours of verdicts and severities. Others have no colour.
var verdictColours = map[string]string{
	"growing": Red, "exit leak": Red, "retained": Yellow, // leaks
	"hanging": Red, "polling": Yellow, "waiting": Yellow, // hang
	"capacity": Red, "fragmentation": Red, "cached": Red, "limit": Red, "other process": Red, // oom
	"fragmented": Red, // frag
	"critical":   Red, "problem": Red, "error": Red, "warning": Yellow, "notice": Yellow,
}

// withColour returns text in the colour of a verdict or severity.
func withColour(text, verdict string) string {
	color, ok := verdictColours[verdict]
	if !ok {
		return text
	}
	return color + text + Plain
}

// asciiForms replaces each non-ASCII character of gpurec's text output by one ASCII character, so
// that the widths of columns do not change.
var asciiForms = strings.NewReplacer(
	"…",
	"~",
	"×",
	"x",
	"≥",
	">",
	"→",
	">",
	"–",
	"-",
	"▁",
	"_",
	"▂",
	".",
	"▃",
	"-",
	"▄",
	"=",
	"▅",
	"+",
	"▆",
	"*",
	"▇",
	"%",
	"█",
	"#",
)
