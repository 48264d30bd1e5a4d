//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gpurec/gpurec/analyze/live"
)

// cpuMeter measures the CPU time of processes between two snapshots. The zero value has measured none. It is not safe
// for concurrent use.
type cpuMeter struct{ last map[int32]cpuReading }

// cpuReading is the CPU time of a process at a time.
type cpuReading struct {
	ticks int64
	at    time.Time
}

// ticksPerSecond is USER_HZ, the unit of CPU times in /proc on all architectures that Go supports.
const ticksPerSecond = 100

// addTo sets the CPU time of the processes of a snapshot since the last one.
func (m *cpuMeter) addTo(s *live.Snapshot) {
	readings := make(map[int32]cpuReading, len(s.Processes))
	for i := range s.Processes {
		p := &s.Processes[i]
		p.CPUPercent = -1
		ticks, err := readCPUTicks(p.Pid)
		if p.Exited || err != nil {
			continue
		}
		now := cpuReading{ticks, time.Now()}
		readings[p.Pid] = now
		if last, ok := m.last[p.Pid]; ok && ticks >= last.ticks {
			seconds := now.at.Sub(last.at).Seconds()
			p.CPUPercent = 100 * float64(ticks-last.ticks) / ticksPerSecond / max(seconds, 1.0/ticksPerSecond)
		}
	}
	m.last = readings
}

// readCPUTicks returns the user and system time of a process in units of ticksPerSecond.
func readCPUTicks(pid int32) (int64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// utime and stime are the 12th and the 13th field after the name, which may have spaces and brackets.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(string(fields[11]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(fields[12]), 10, 64)
	return user + system, err
}
