//go:build linux

package process

import (
	"os"
	"slices"
	"strconv"
)

// Descendants returns the running descendants of the processes pids, sorted by pid.
func Descendants(pids []int) []int {
	parents := make(map[int]int)
	for _, pid := range AllPids() {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
			parents[pid] = parseParentPid(stat)
		}
	}
	var found []int
	for pid := range parents {
		for up := parents[pid]; up > 0; up = parents[up] {
			if slices.Contains(pids, up) {
				found = append(found, pid)
				break
			}
		}
	}
	slices.Sort(found)
	return found
}

// AllPids returns the pids of all processes, or nil if /proc cannot be read.
func AllPids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
