package size

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestParse(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]int64{
		"0": 0, "65536": 65536, "7B": 7, "1k": 1 << 10, "64M": 64 << 20, "64MiB": 64 << 20, "64mib": 64 << 20,
		"2GiB": 2 << 30, "3TB": 3 << 40,
	} {
		if got, err := Parse(text); got != want || err != nil {
			t.Errorf("Parse(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "is not a size", "B": "is not a size", "-1": "is not a size", "1.5G": "is not a size", "1MM": "is not a size",
		"1P": "is not a size", "9223372036854775807T": "is too large", "5000000T": "is too large",
	} {
		if n, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %d, %v, want %q", text, n, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"64MiB", "9223372036854775807T", "1k", "B"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := Parse(text); n < 0 || err != nil && n != 0 {
			t.Errorf("Parse(%q) = %d, %v", text, n, err)
		}
	})
}
