package render

import (
	"slices"
	"strings"
)

// ANSI escape sequences that start a colour, and that return to the default colour.
const (
	ColourRed    = "\x1b[31m"
	ColourYellow = "\x1b[33m"
	ColourReset  = "\x1b[0m"
)

// colouredColumnKeys are the keys of the columns with verdicts and severities.
var colouredColumnKeys = []string{"verdict", "level", "severity", "class"}

// isColumnColoured reports whether the cells of a column can have a colour.
func isColumnColoured(key string) bool { return slices.Contains(colouredColumnKeys, key) }

// verdictColours are the colours of the verdicts and severities of all reports. Other texts have no
// colour.
var verdictColours = map[string]string{
	"growing":       ColourRed,
	"exit leak":     ColourRed,
	"retained":      ColourYellow,
	"hanging":       ColourRed,
	"polling":       ColourYellow,
	"waiting":       ColourYellow,
	"capacity":      ColourRed,
	"fragmentation": ColourRed,
	"cached":        ColourRed,
	"limit":         ColourRed,
	"other process": ColourRed,
	"fragmented":    ColourRed,
	"critical":      ColourRed,
	"problem":       ColourRed,
	"error":         ColourRed,
	"warning":       ColourYellow,
	"notice":        ColourYellow,
}

// colourVerdict returns text in the colour of a verdict or severity.
func colourVerdict(text, verdict string) string {
	color, ok := verdictColours[verdict]
	if !ok {
		return text
	}
	return color + text + ColourReset
}

// asciiReplacer replaces each non-ASCII character of gpurec's text output by one ASCII character,
// so that the widths of columns do not change.
var asciiReplacer = strings.NewReplacer(
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
