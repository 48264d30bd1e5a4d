// Package size reads sizes as they are typed on a command line.
package size

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads a size such as 64MiB, 64M or 65536, in bytes. Units are powers of 1024 up to TiB.
func Parse(text string) (int64, error) {
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
