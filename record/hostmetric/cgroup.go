//go:build linux

package hostmetric

import (
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/record/process"
)

const (
	// maxFileBytes limits the text of a file in /proc or of a cgroup.
	maxFileBytes = 1 << 20
	// maxDepth limits the ancestors of a cgroup.
	maxDepth = 64
	// cpuController is the controller of cgroup v1 with CPU limits.
	cpuController = "cpu"
)

// mount is a mounted hierarchy of cgroups: of v2, or of the CPU controller of v1.
type mount struct {
	dir  string // where it is mounted
	root string // the cgroup that is mounted there
	isV2 bool
}

// parseMounts returns the hierarchies in the text of /proc/self/mountinfo: see proc_pid_mountinfo(5).
func parseMounts(text string) (mounts []mount) {
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		m := mount{dir: unescape(fields[4]), root: unescape(fields[3]), isV2: kind[0] == "cgroup2"}
		isCPU := kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), cpuController)
		if m.isV2 || isCPU {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// unescape replaces the octal escapes of mountinfo.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// membership has the cgroups of a process: of v2, and of the CPU controller of v1.
type membership struct {
	v2, cpu      string
	hasV2, hasV1 bool
}

// parseMembership returns the cgroups in the text of /proc/PID/cgroup: see cgroups(7).
func parseMembership(text string) (m membership) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[0] == "0" && fields[1] == "":
			m.v2, m.hasV2 = fields[2], true
		case slices.Contains(strings.Split(fields[1], ","), cpuController):
			m.cpu, m.hasV1 = fields[2], true
		}
	}
	return m
}

// cgroup is a cgroup that the recorder sees.
type cgroup struct {
	dir  string // in the file system
	path string // as in /proc/PID/cgroup
	isV2 bool
}

// cgroupOf returns the cgroup of a process in a mounted hierarchy. ok is false if the process has none
// there, or if the recorder does not see it.
func (m mount) cgroupOf(of membership) (c cgroup, ok bool) {
	own, ok := of.v2, of.hasV2
	if !m.isV2 {
		own, ok = of.cpu, of.hasV1
	}
	if !ok || !path.IsAbs(own) || slices.Contains(strings.Split(own, "/"), "..") {
		return cgroup{}, false // ".." leads out of the recorder's cgroup namespace
	}
	root := strings.TrimSuffix(m.root, "/")
	below, ok := strings.CutPrefix(own, root)
	if !ok || below != "" && below[0] != '/' {
		return cgroup{}, false
	}
	return cgroup{path.Join(m.dir, below), path.Clean(own), m.isV2}, true
}

// ancestors returns the cgroup and its ancestors that the mount shows, innermost first.
func (m mount) ancestors(c cgroup) (all []cgroup) {
	for len(all) < maxDepth {
		all = append(all, c)
		if c.dir == path.Clean(m.dir) || c.path == "/" {
			return all
		}
		c.dir, c.path = path.Dir(c.dir), path.Dir(c.path)
	}
	return all
}

// limit returns the CPU limit of a cgroup in cores. ok is false if it has none.
func (c cgroup) limit() (cores float64, ok bool) {
	if c.isV2 {
		text, err := readFile(path.Join(c.dir, "cpu.max"))
		if err != nil {
			return 0, false // a root, or the controller is not enabled
		}
		return parseMax(text)
	}
	quota, err := readFile(path.Join(c.dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, false
	}
	period, err := readFile(path.Join(c.dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false
	}
	return parseMax(strings.TrimSpace(quota) + " " + period)
}

// parseMax returns the limit in the text of cpu.max: quota and period in µs. The quota is "max", or -1 in
// cgroup v1, if there is no limit.
func parseMax(text string) (cores float64, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return 0, false
	}
	quota, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || quota <= 0 {
		return 0, false
	}
	period, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || period <= 0 {
		return 0, false
	}
	return float64(quota) / float64(period), true
}

// throttling has the counters of a CPU limit.
type throttling struct{ periods, throttled, throttledNs int64 }

// parseThrottling returns the counters in the text of cpu.stat. ok is false if it has none.
func parseThrottling(text string) (t throttling, ok bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch key {
		case "nr_periods":
			t.periods, ok = n, true
		case "nr_throttled":
			t.throttled = n
		case "throttled_time": // v1
			t.throttledNs = n
		case "throttled_usec":
			t.throttledNs = min(n, math.MaxInt64/1000) * 1000
		}
	}
	return t, ok
}

// limited is a cgroup with a CPU limit.
type limited struct {
	cgroup
	cores float64
}

// findLimit returns the tightest CPU limit of a process, of equal ones the innermost. ok is false if there
// is none. unseen says that the recorder does not see a cgroup of the process.
func findLimit(mounts []mount, of membership) (tightest limited, ok, unseen bool) {
	seesV1, seesV2 := false, false
	for _, m := range mounts {
		own, isSeen := m.cgroupOf(of)
		if !isSeen {
			continue
		}
		seesV1, seesV2 = seesV1 || !m.isV2, seesV2 || m.isV2
		for _, c := range m.ancestors(own) {
			if cores, has := c.limit(); has && (!ok || cores < tightest.cores) {
				tightest, ok = limited{c, cores}, true
			}
		}
	}
	return tightest, ok, of.hasV1 && !seesV1 || of.hasV2 && !seesV2
}

// findV2 returns the cgroup v2 of a process. ok is false if the recorder does not see it.
func findV2(mounts []mount, of membership) (c cgroup, ok bool) {
	for _, m := range mounts {
		if c, ok := m.cgroupOf(of); ok && m.isV2 {
			return c, true
		}
	}
	return cgroup{}, false
}

// readFile returns the text of a file of the kernel.
func readFile(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return process.ReadAtMost(file, maxFileBytes)
}

// rereadFile returns the text of an open file of the kernel from its start.
func rereadFile(file *os.File) (string, error) {
	return process.ReadAtMost(io.NewSectionReader(file, 0, maxFileBytes), maxFileBytes)
}
