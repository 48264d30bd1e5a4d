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

// readMachineFacts returns the CPU model, the number of CPUs and the memory size of the host.
func readMachineFacts() format.Machine {
	m := format.Machine{CPUs: runtime.NumCPU(), CPU: readCPUModel()}
	if online, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if n := countCPUList(strings.TrimSpace(string(online))); n > 0 {
			m.CPUs = n // the CPUs of the machine; this process may be restricted to fewer
		}
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		m.MemoryBytes = int64(info.Totalram) * int64(info.Unit)
	}
	return m
}

// readCPUModel returns the model name of the first CPU, or "" if /proc/cpuinfo has none, as on
// arm64.
func readCPUModel() string {
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

// countCPUList returns the number of members in a kernel list such as 0-3,8. It returns 0 for a
// malformed list.
func countCPUList(list string) int {
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

// ReadClocks reads CLOCK_MONOTONIC, REALTIME and BOOTTIME together. Of 16 readings it returns the
// fastest, which is the most exact.
func ReadClocks() format.ClockSnapshot {
	var best format.ClockSnapshot
	for i := range 16 {
		before := clock.ReadNs(unix.CLOCK_MONOTONIC)
		wall, boot := clock.ReadNs(unix.CLOCK_REALTIME), clock.ReadNs(unix.CLOCK_BOOTTIME)
		took := clock.ReadNs(unix.CLOCK_MONOTONIC) - before
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
