package identity

import (
	"regexp"
	"strings"
)

// slurmCgroupPattern matches cgroups of Slurm jobs. In cgroup v2 they are below slurmstepd.scope,
// whose name may start with the node's name. In v1 they are below slurm or slurm_NODE and the UID.
// A job can create cgroups below its own, so the leftmost match counts.
var slurmCgroupPattern = regexp.MustCompile(
	`/(?:[^/\n]*slurmstepd\.scope|slurm[^/\n]*/uid_[0-9]+)/job_([0-9]{1,20})` +
		`(?:/step_([0-9]{1,20}|batch|extern|interactive)(?:/user)?(?:/task_([0-9]{1,10}))?)?(?:/|\n|$)`)

// podCgroupPattern matches cgroups of Kubernetes pods. The cgroupfs driver of kubelet names them
// podUID, the systemd driver …-podUID.slice with "_" for "-". UIDs of static pods have 32 digits
// without dashes.
var podCgroupPattern = regexp.MustCompile(
	`[/-]pod([0-9a-f]{8}(?:[_-][0-9a-f]{4}){3}[_-][0-9a-f]{12}|[0-9a-f]{32})` +
		`(?:\.slice)?(?:/|\n|$)`)

// readCgroup sets the values in the names of the process's cgroups.
func (f *identityFinder) readCgroup(cgroup string) {
	set := func(to *string, key, value string) {
		if value != "" {
			*to, f.id.Sources[key] = strings.Clone(value), "cgroup"
		}
	}
	if m := slurmCgroupPattern.FindStringSubmatch(cgroup); m != nil {
		set(&f.id.SlurmJob, "slurm_job", m[1])
		set(&f.id.SlurmStep, "slurm_step", m[2])
		if f.id.SlurmTask = parseNumber(m[3], 0); f.id.SlurmTask != nil {
			f.id.Sources["slurm_task"] = "cgroup"
		}
	}
	if m := podCgroupPattern.FindStringSubmatch(cgroup); m != nil {
		set(&f.id.PodUID, "pod_uid", strings.ReplaceAll(m[1], "_", "-"))
	}
}
