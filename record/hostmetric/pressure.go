//go:build linux

package hostmetric

import (
	"math"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// machinePressures are the files in /proc/pressure and their metrics.
var machinePressures = []struct{ file, metric string }{
	{"cpu", format.HostMachineCPUPressure},
	{"io", format.HostMachineIOPressure},
	{"memory", format.HostMachineMemoryPressure},
}

// parsePressure returns for how long some thread has waited, in ns, from the text of a file with pressure stall
// information.
func parsePressure(text string) (ns int64, ok bool) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "some" {
			continue
		}
		for _, field := range fields[1:] {
			value, found := strings.CutPrefix(field, "total=")
			if n, err := strconv.ParseInt(value, 10, 64); found && err == nil && n >= 0 {
				return min(n, math.MaxInt64/1000) * 1000, true // the file has µs
			}
		}
	}
	return 0, false
}

// parseIO returns the bytes that a process has read from and written to disks, from the text of /proc/PID/io.
func parseIO(text string) (read, written int64, ok bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch key {
		case "read_bytes":
			read, ok = n, true
		case "write_bytes":
			written = n
		}
	}
	return read, written, ok
}
