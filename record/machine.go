//go:build linux

package record

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// watchMachine starts what is recorded beside the calls: the GPUs and their errors.
func (s *Session) watchMachine(c clock) {
	s.machine = s.scribe.sender()
	if s.nvml != nil {
		s.helpers.Go(func() { s.nvml.run(c, s.opt.NVMLInterval, s.machine, s.stop) })
	}
	s.watchXids(c)
	s.helpers.Go(func() { s.noteModules(c, s.stop) })
}

// endMachine adds to the metadata what that took, when the helpers have ended.
func (s *Session) endMachine() {
	dropped := s.machine.close()
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta.Cost.RowsDropped = dropped
	if s.nvml != nil {
		s.meta.Cost.Sampling = s.nvml.costs()
	}
	s.meta.Clocks = append(s.meta.Clocks, readClocks())
}

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

// readClocks reads the kernel's clocks together. Of several readings the one taken in
// the shortest time is the most exact.
func readClocks() format.ClockSnapshot {
	var best format.ClockSnapshot
	for i := range 16 {
		before := clockNs(unix.CLOCK_MONOTONIC)
		wall, boot := clockNs(unix.CLOCK_REALTIME), clockNs(unix.CLOCK_BOOTTIME)
		took := clockNs(unix.CLOCK_MONOTONIC) - before
		if i == 0 || took < best.UncertainNs {
			best = format.ClockSnapshot{MonotonicNs: before + took/2, RealtimeNs: wall, BoottimeNs: boot, UncertainNs: took}
		}
	}
	return best
}
