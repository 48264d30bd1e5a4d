//go:build linux

package host

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// machineFacts describes the host.
func machineFacts() format.Machine {
	m := format.Machine{CPUs: runtime.NumCPU(), CPU: cpuModel()}
	if online, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if n := countList(strings.TrimSpace(string(online))); n > 0 {
			m.CPUs = n // of the machine; this process may be allowed fewer
		}
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		m.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	return m
}

// cpuModel is the name of the first CPU; arm64 kernels have none.
func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// countList counts what a list of the kernel names, such as 0-3,8.
func countList(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil {
				return 0
			}
		}
		n += to - from + 1
	}
	return n
}

// ReadClocks reads the kernel's clocks together. It returns the most exact of 16 readings, the one
// that took the least time.
func ReadClocks() format.ClockSnapshot {
	var best format.ClockSnapshot
	for i := range 16 {
		before := clock.Ns(unix.CLOCK_MONOTONIC)
		wall, boot := clock.Ns(unix.CLOCK_REALTIME), clock.Ns(unix.CLOCK_BOOTTIME)
		took := clock.Ns(unix.CLOCK_MONOTONIC) - before
		if i == 0 || took < best.UncertainNs {
			best = format.ClockSnapshot{
				MonotonicNs: before + took/2,
				RealtimeNs:  wall,
				BoottimeNs:  boot,
				UncertainNs: took,
			}
		}
	}
	return best
}
