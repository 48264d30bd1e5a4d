package units

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// FormatRate formats a rate per second, with one decimal below 10.
func FormatRate(perSec float64) string {
	if perSec < 10 {
		return fmt.Sprintf("%.1f", perSec)
	}
	return FormatCount(RoundInt(perSec))
}

// ShortenText shortens text to a width in characters. A width of 0 or less means no limit. A number
// at the end that distinguishes equal names, as in "name #2", is kept.
func ShortenText(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	number := ""
	if i := strings.LastIndex(
		text,
		" #",
	); i >= 0 && len(text)-i < min(8, width-1) &&
		strings.Trim(text[i+2:], "0123456789") == "" {
		number = text[i:]
	}
	return string([]rune(text)[:width-1-len(number)]) + "…" + number
}

// JoinWithAnd joins names as "a, b and c".
func JoinWithAnd(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// TextOrNil returns the text, or nil for an empty text.
func TextOrNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// FormatBytes formats a number of bytes with a binary unit: 512 B, 1.5 KiB, 20.0 GiB.
func FormatBytes(n int64) string {
	v, sign := float64(n), ""
	if v < 0 {
		v, sign = -v, "-"
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if v < 1023.95 || unit == "TiB" {
			if unit == "B" {
				return fmt.Sprintf("%s%.0f B", sign, v)
			}
			return fmt.Sprintf("%s%.1f %s", sign, v, unit)
		}
		v /= 1024
	}
	return ""
}

// FormatDuration formats a duration in ns: 12.3us, 4.56s, 3m20s, 5h10m.
func FormatDuration(ns int64) string {
	d := time.Duration(ns)
	switch abs := d.Abs(); {
	case abs < time.Microsecond:
		return fmt.Sprintf("%dns", ns)
	case abs < time.Millisecond:
		return fmt.Sprintf("%.1fus", float64(ns)/1e3)
	case abs < time.Second:
		return fmt.Sprintf("%.1fms", float64(ns)/1e6)
	case abs < time.Minute:
		return fmt.Sprintf("%.2fs", float64(ns)/1e9)
	case abs < time.Hour:
		return d.Round(time.Second).String()
	}
	text, _ := strings.CutSuffix(d.Round(time.Minute).String(), "0s")
	return text
}

// FormatCount formats a number with thousands separators: 88,310.
func FormatCount(n int64) string {
	text := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(text) - 3; i > start; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// CountWithNoun formats a number with a noun: 1 call, 2 calls.
func CountWithNoun(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return FormatCount(n) + " " + PluralOf(noun)
}

// CountWithTitle formats a number with a title in the plural: 1 process seen late, 2 processes seen late.
// The noun of the title is its first word. If that is no plural, the noun is the last word before a
// preposition: lost frees, destroyed references to contexts.
func CountWithTitle(n int64, title string) string {
	words := strings.Split(title, " ")
	if n == 1 {
		noun := 0
		if SingularOf(words[0]) == words[0] {
			noun = slices.IndexFunc(append(words, "of"), isPreposition) - 1
		}
		if noun >= 0 {
			words[noun] = SingularOf(words[noun])
		}
	}
	return FormatCount(n) + " " + strings.Join(words, " ")
}

func isPreposition(word string) bool {
	return slices.Contains([]string{"at", "by", "in", "of", "the", "to", "with", "without"}, word)
}

// PluralOf returns the plural of a noun, or of words that end in a noun: process → processes.
func PluralOf(noun string) string {
	for _, ending := range []string{"s", "x", "z", "ch", "sh"} {
		if strings.HasSuffix(noun, ending) {
			return noun + "es"
		}
	}
	stem, ok := strings.CutSuffix(noun, "y")
	if ok && stem != "" && !strings.ContainsRune("aeiou", rune(stem[len(stem)-1])) {
		return stem + "ies"
	}
	return noun + "s"
}

// SingularOf returns the singular of a plural noun: processes → process. Among words in -ches, only
// those in -nches and -tches lose "es": launches → launch and batches → batch, but caches → cache.
func SingularOf(plural string) string {
	for _, ending := range []string{"series", "ss", "us"} { // also words that are no plural: asynchronous
		if strings.HasSuffix(plural, ending) {
			return plural
		}
	}
	for _, ending := range []string{"sses", "xes", "zzes", "nches", "tches", "shes"} {
		if strings.HasSuffix(plural, ending) {
			return strings.TrimSuffix(plural, "es")
		}
	}
	if stem, ok := strings.CutSuffix(plural, "ies"); ok && stem != "" {
		return stem + "y"
	}
	return strings.TrimSuffix(plural, "s")
}

// SanitizeText makes text from a recording safe to print, because names come from untrusted
// programs. It replaces control characters, line breaks and characters that change the writing
// direction by question marks.
func SanitizeText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' ||
			r == '\u2029' {
			return '?'
		}
		return r
	}, s)
}

// ReplaceInvalidUTF8 replaces invalid UTF-8 sequences by U+FFFD. Names from ELF files can contain
// any bytes.
func ReplaceInvalidUTF8(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
