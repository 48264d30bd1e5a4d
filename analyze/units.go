package analyze

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// bytesText writes bytes for people: 512 B, 1.5 KiB, 20 GiB.
func bytesText(n int64) string {
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

// durText writes a duration in ns for people: 12.3us, 4.56s, 3m20s, 5h10m.
func durText(ns int64) string {
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

// thousands writes a number with separators: 88,310.
func thousands(n int64) string {
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

// plural writes a number with what it counts: 1 call, 2 calls.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + pluralOf(noun)
}

// pluralOf returns the plural of a noun, or of words that end in one: process, processes.
func pluralOf(noun string) string {
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

// singularOf returns the noun that a heading has in its plural: processes, process. Of -ches only
// -tches is known to end in -ch: batches, but caches.
func singularOf(plural string) string {
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

// oneLine makes text from a recording safe to print: names come from programs that
// nobody vouches for. Control characters, line breaks and characters that change
// the direction of writing become question marks.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, s)
}

// text shows a value in its unit; what is not known is a dash.
func (u Unit) text(v any) string {
	if n, ok := asNumber(v); ok && u&unitSigned != 0 {
		u &^= unitSigned
		if n > 0 {
			return "+" + u.text(v)
		}
	}
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return oneLine(v)
	case bool:
		return strconv.FormatBool(v)
	case []string:
		return oneLine(strings.Join(v, "; "))
	case []int64:
		return sparkline(v)
	case []float64:
		return sparkline(v)
	case measured:
		return v.text()
	case float64:
		switch u {
		case UnitPercent:
			return strconv.FormatFloat(v, 'f', 1, 64)
		case UnitBytes, UnitBytesRate:
			return bytesText(roundInt(v))
		case UnitNs:
			return durText(roundInt(v))
		}
		return strconv.FormatFloat(v, 'f', 2, 64)
	case int64:
		switch u {
		case UnitBytes, UnitBytesRate:
			return bytesText(v)
		case UnitNs:
			return durText(v)
		case UnitID:
			return strconv.FormatInt(v, 10)
		case UnitTime:
			return time.Unix(0, v).UTC().Format(time.RFC3339)
		}
		return thousands(v)
	}
	return fmt.Sprint(v)
}

// validUTF8 is for formats that demand it; names are bytes from somebody's ELF file.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
