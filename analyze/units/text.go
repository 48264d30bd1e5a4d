package units

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

func RateText(perSec float64) string {
	if perSec < 10 {
		return fmt.Sprintf("%.1f", perSec)
	}
	return Count(RoundInt(perSec))
}

// Cut shortens text to a width in characters; 0 and less do not cut. A number that
// tells equal names apart ("name #2") stays.
func Cut(text string, width int) string {
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

// Enumerated joins names: a, b and c.
func Enumerated(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// Known is a text, nil if there is none.
func Known(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Bytes writes bytes for people: 512 B, 1.5 KiB, 20 GiB.
func Bytes(n int64) string {
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

// Duration writes a duration in ns for people: 12.3us, 4.56s, 3m20s, 5h10m.
func Duration(ns int64) string {
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

// Count writes a number with separators: 88,310.
func Count(n int64) string {
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

// Plural writes a number with what it counts: 1 call, 2 calls.
func Plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + PluralOf(noun)
}

// PluralOf returns the plural of a noun, or of words that end in one: process, processes.
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

// SingularOf returns the noun that a heading has in its plural: processes, process. Of -ches only
// -tches is known to end in -ch: batches, but caches.
func SingularOf(plural string) string {
	for _, ending := range []string{"sses", "xes", "zzes", "tches", "shes"} {
		if strings.HasSuffix(plural, ending) {
			return strings.TrimSuffix(plural, "es")
		}
	}
	if stem, ok := strings.CutSuffix(plural, "ies"); ok && stem != "" {
		return stem + "y"
	}
	return strings.TrimSuffix(plural, "s")
}

// OneLine makes text from a recording safe to print: names come from programs that
// nobody vouches for. Control characters, line breaks and characters that change
// the direction of writing become question marks.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' ||
			r == '\u2029' {
			return '?'
		}
		return r
	}, s)
}

// ValidUTF8 is for formats that demand it; names are bytes from somebody's ELF file.
func ValidUTF8(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
