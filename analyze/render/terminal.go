package render

import (
	"slices"
	"strings"
)

// Colours are for what somebody should look at, and for nothing else.
const (
	Red    = "\x1b[31m"
	Yellow = "\x1b[33m"
	Plain  = "\x1b[0m"
)

// paintedKeys are the columns that judge.
var paintedKeys = []string{"verdict", "level", "severity", "class"}

func isPainted(key string) bool { return slices.Contains(paintedKeys, key) }

// paints are the colours of judgements; others have none.
var paints = map[string]string{
	"growing": Red, "exit leak": Red, "retained": Yellow, // leaks
	"hanging": Red, "polling": Yellow, "waiting": Yellow, // hang
	"capacity": Red, "fragmentation": Red, "cached": Red, "limit": Red, "other process": Red, // oom
	"fragmented": Red, // frag
	"critical":   Red, "problem": Red, "error": Red, "warning": Yellow, "notice": Yellow,
}

// paint puts text into the colour of a judgement.
func paint(text, judgement string) string {
	color, ok := paints[judgement]
	if !ok {
		return text
	}
	return color + text + Plain
}

// asciiForms are the characters of text output that a terminal without UTF-8 cannot show, each as
// one that it can: widths stay.
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
