package digest

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Limits of texts in characters: of names, of names in a list, and of sentences.
const (
	maxNameChars     = 160
	maxListedChars   = 40
	maxSentenceChars = 400
)

// sentenceKeys are the keys of values that are sentences.
var sentenceKeys = map[string]bool{
	"what": true, "advice": true, "evidence": true, "detail": true, "confidence_reasons": true, "meaning": true,
	"verdict": true, "because": true, "result": true, "fault": true, "hangs": true, "why": true, "processes": true,
	"programs": true, "devices": true,
}

// Sanitize makes text of a recording safe to show. It replaces characters that are not printable, that are
// invisible, or that change the writing direction by question marks, and backticks by apostrophes: the text
// then cannot end a code span of Markdown.
func Sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '`':
			return '\''
		case r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.Variation_Selector, r) ||
			unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
			return '?'
		}
		return r
	}, text)
}

// cutText shortens a text, and marks it with "…".
func cutText(text string, maxChars int) string { return units.ShortenText(text, maxChars) }

// quote returns a text of a recording in at most maxChars characters, safe to show. Spaces at its ends, and
// repeated ones, are omitted.
func quote(text string, maxChars int) string {
	return cutText(strings.Join(strings.Fields(Sanitize(text)), " "), maxChars)
}

// maxCharsOf returns the limit of a text by the key of its value.
func maxCharsOf(key string) int {
	if sentenceKeys[key] {
		return maxSentenceChars
	}
	return maxNameChars
}

// plain returns the value as it appears in JSON: a text is quoted.
func (v *Value) plain() any {
	switch value := v.Value.(type) {
	case string:
		return quote(value, maxCharsOf(v.Key))
	case []string:
		return quote(strings.Join(value, "; "), maxCharsOf(v.Key))
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) { // JSON has no such numbers
			return nil
		}
		return value
	case int64, bool, nil:
		return value
	}
	return quote(v.Unit.FormatValue(v.Value), maxCharsOf(v.Key))
}

// text returns the value with its unit. Texts of the recording are a code span.
func (v *Value) text() string {
	if text, ok := v.plain().(string); ok {
		return "`" + text + "`"
	}
	switch v.Unit {
	case report.UnitPercent:
		return v.Unit.FormatValue(v.Value) + " %"
	case report.UnitBytesRate:
		return v.Unit.FormatValue(v.Value) + "/min"
	}
	return v.Unit.FormatValue(v.Value)
}

// unitWords are the units in keys. Markdown omits them, because its values have units.
var unitWords = []string{"bytes", "ns", "pct", "per", "min"}

// label returns the key without units, as words.
func (v *Value) label() string {
	switch v.Key {
	case "dur_ns":
		return "duration"
	case "start_ns":
		return "started"
	}
	words := strings.Split(v.Key, "_")
	label := slices.DeleteFunc(words, func(word string) bool {
		return slices.Contains(unitWords, word) && (v.Unit != report.UnitPercent || word == "pct")
	})
	if len(label) == 0 {
		return v.Key
	}
	return strings.Join(label, " ")
}
