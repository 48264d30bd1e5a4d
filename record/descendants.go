//go:build linux

package record

import (
	"os"
	"slices"
	"strconv"
)

// descendants returns the processes of now that have one of the pids as an ancestor.
func descendants(pids []int) []int {
	parents := make(map[int]int)
	for _, pid := range allPids() {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
			parents[pid] = parentOf(stat)
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

func allPids() []int {
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

// driverUsers returns those of the processes that have libcuda mapped.
func driverUsers(pids []int) []int {
	var users []int
	for _, pid := range pids {
		if uses, err := (&process{pid: pid}).mapsDriver(); err == nil && uses {
			users = append(users, pid)
		}
	}
	return users
}
