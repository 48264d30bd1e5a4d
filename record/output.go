//go:build linux

package record

import (
	"path/filepath"
	"strconv"
	"strings"
)

// makeOutputName returns the default file name, gpurec-COMM-PID-TIME.parquet. It replaces spaces,
// path separators and characters outside ASCII by _.
func makeOutputName(comm string, pid int, at string) string {
	clean := strings.Map(func(r rune) rune {
		if r == filepath.Separator || r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, comm)
	return "gpurec-" + clean + "-" + strconv.Itoa(pid) + "-" + at + ".parquet"
}
