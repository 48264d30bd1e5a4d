package main

import (
	"fmt"
	"strconv"
	"strings"
)

// binaryUnits are the units of sizes, each 1024 times the one before.
var binaryUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// parseSize reads a size such as 64MiB, 64M or 65536; units are powers of 1024.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTibkmgt")
	unit := strings.ToUpper(strings.TrimRight(text[len(digits):], "iBb"))
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no size", text)
	}
	shift := strings.Index("KMGT", unit)*10 + 10
	if unit == "" {
		shift = 0
	} else if len(unit) != 1 || shift < 10 {
		return 0, fmt.Errorf("%q is no size", text)
	}
	if n > 1<<62>>shift {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return n << shift, nil
}

// formatSize writes bytes in the largest unit that keeps at least one digit before
// the point.
func formatSize(bytes int64) string {
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(binaryUnits)-1 {
		value /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, binaryUnits[unit])
}

// count writes a number with thousands separated.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// parsePercent reads a share such as 5% or 0.5, from 0.1 to 100 percent.
func parsePercent(text string) (float64, error) {
	pct, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(pct >= 0.1 && pct <= 100) {
		return 0, fmt.Errorf("%q is no share from 0.1%% to 100%%", text)
	}
	return pct, nil
}
