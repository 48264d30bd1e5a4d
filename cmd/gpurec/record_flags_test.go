//go:build linux

package main

import (
	"testing"
)

func FuzzParsePercent(f *testing.F) {
	for _, text := range []string{"5%", "0.5", "0.01", "101%", "NaN", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if pct, err := parseMaxOverhead(text); err == nil && text != "off" && !(pct >= 0.1 && pct <= 100) {
			t.Errorf("%q is %v percent", text, pct)
		}
	})
}
