//go:build linux

package record

import (
	"path/filepath"
	"strconv"
	"strings"
)

// defaultOutput is where a recording goes unless told: gpurec-COMM-PID-TIME.parquet.
func defaultOutput(comm string, pid int, at string) string {
	clean := strings.Map(func(r rune) rune {
		if r == filepath.Separator || r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, comm)
	return "gpurec-" + clean + "-" + strconv.Itoa(pid) + "-" + at + ".parquet"
}
