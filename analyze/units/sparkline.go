package units

import (
	"slices"
	"strings"
)

// Sparkline draws each value as a bar character. The largest value is a full bar, 0 is a space.
func Sparkline[T int64 | float64](values []T) string {
	if len(values) == 0 {
		return ""
	}
	bars := []rune(" ▁▂▃▄▅▆▇█")
	most := float64(slices.Max(values))
	var b strings.Builder
	for _, v := range values {
		level := 0
		if most > 0 && v > 0 {
			level = 1 + int(float64(v)/most*float64(len(bars)-2))
		}
		b.WriteRune(bars[level])
	}
	return b.String()
}
