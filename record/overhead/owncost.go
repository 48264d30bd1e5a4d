//go:build linux

package overhead

import (
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// ReadOwnCost returns the CPU time of this process in ns and its peak memory in bytes.
func ReadOwnCost() format.Cost {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return format.Cost{}
	}
	return format.Cost{
		CPUNs:    usage.Utime.Nano() + usage.Stime.Nano(),
		RSSBytes: usage.Maxrss << 10, // Linux counts in KiB
	}
}
