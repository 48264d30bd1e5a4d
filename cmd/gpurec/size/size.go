// Package size parses byte sizes of command line flags.
package size

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse parses a size such as 64MiB, 64M or 65536 and returns it in bytes, from 0 to 2^62. Units
// are powers of 1024 up to TiB. It returns an error for other text.
func Parse(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTibkmgt")
	unit := strings.ToUpper(strings.TrimRight(text[len(digits):], "iBb"))
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a size such as 64MiB", text)
	}
	shift := strings.Index("KMGT", unit)*10 + 10
	if unit == "" {
		shift = 0
	} else if len(unit) != 1 || shift < 10 {
		return 0, fmt.Errorf("%q is not a size such as 64MiB", text)
	}
	if n > 1<<62>>shift {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return n << shift, nil
}
