package analyze

import (
	"slices"
	"strings"
)

// Colours are for what somebody should look at, and for nothing else.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// paintedKeys are the columns that judge.
var paintedKeys = []string{"verdict", "level", "severity", "class"}

func isPainted(key string) bool { return slices.Contains(paintedKeys, key) }

// paints are the colours of judgements; others have none.
var paints = map[string]string{
	"growing": red, "exit leak": red, "retained": yellow, // leaks
	"hanging": red, "polling": yellow, "waiting": yellow, // hang
	"capacity": red, "fragmentation": red, "cached": red, "limit": red, "other process": red, // oom
	"fragmented": red, // frag
	"critical":   red, "problem": red, "error": red, "warning": yellow, "notice": yellow,
}

// paint puts text into the colour of a judgement.
func paint(text, judgement string) string {
	color, ok := paints[judgement]
	if !ok {
		return text
	}
	return color + text + plain
}

// asciiForms are the characters of text output that a terminal without UTF-8 cannot show, each as one that it can: widths stay.
var asciiForms = strings.NewReplacer("…", "~", "×", "x", "≥", ">", "→", ">", "–", "-", "▁", "_", "▂", ".", "▃", "-", "▄", "=", "▅", "+", "▆", "*", "▇", "%", "█", "#")
