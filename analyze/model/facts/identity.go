package facts

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// RankOfProcess returns the rank of a process. It returns false if the rank is unknown.
func (f *Facts) RankOfProcess(pid int32) (int32, bool) {
	if rank := f.Processes[pid].Identity.Rank; rank != nil {
		return int32(*rank), true
	}
	return 0, false
}

// RankText returns the rank of a process as text, or "" if the rank is unknown.
func (f *Facts) RankText(pid int32) string {
	if rank, ok := f.RankOfProcess(pid); ok {
		return strconv.Itoa(int(rank))
	}
	return ""
}

// setIdentityFlags sets HasRanks and SeveralJobs.
func (f *Facts) setIdentityFlags() {
	jobs := make(map[string]bool)
	for _, p := range f.Processes {
		f.HasRanks = f.HasRanks || p.Identity.Rank != nil
		if p.Identity.Job != "" {
			jobs[p.Identity.Job] = true
		}
	}
	f.SeveralJobs = len(jobs) > 1
}

// ShortContainerID returns the first 12 characters of a container id, as container engines print
// it.
func ShortContainerID(id string) string { return id[:min(12, len(id))] }

// PodName returns NAMESPACE/POD, or the pod's UID if its name is unknown.
func PodName(id *format.Identity) string {
	if id.Pod != "" && id.Namespace != "" {
		return id.Namespace + "/" + id.Pod
	}
	return cmp.Or(id.Pod, id.PodUID)
}

// CgroupPath returns the longest path in the text of /proc/PID/cgroup. That file has one line
// ID:CONTROLLERS:PATH for each hierarchy.
func CgroupPath(text string) string {
	path := ""
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && len(parts[2]) > len(path) {
			path = parts[2]
		}
	}
	return path
}
