// Package identity finds the role of a process in its job: rank, node, scheduler, pod. It reads an
// allow-list of environment variables and the cgroup. It does no I/O and stores no other variables.
package identity

import (
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gpurec/gpurec/format"
)

// Limits of values in environment variables. Larger numbers and longer texts are ignored.
const (
	maxRankOrSize = 1 << 24 // ranks, sizes, restarts
	maxValueBytes = 256     // bytes
)

// launcherVariables has the environment variables that a launcher sets. "" means that it does not
// set one.
type launcherVariables struct{ rank, worldSize, localRank, localWorldSize string }

// Priority of sources. The first launcher with a rank or a local rank counts. A later launcher adds
// missing values if its ranks agree: srun with PMIx sets PMIX_RANK, and Slurm sets the number of
// tasks. The innermost launcher is first: if srun starts torchrun, SLURM_PROCID is the rank of
// torchrun and RANK that of the program. For all other values, the first valid variable counts.
//
//	rank, sizes  see launchers
//	node_rank    GROUP_RANK, NODE_RANK, SLURM_NODEID, JOB_COMPLETION_INDEX, LWS_WORKER_INDEX
//	node         SLURMD_NODENAME, NODE_NAME
//	job          TORCHELASTIC_RUN_ID unless "none", slurm_job, RAY_JOB_ID, JOBSET_NAME,
//	             LWS_LEADER_ADDRESS, MASTER_ADDR:MASTER_PORT
//	attempt      TORCHELASTIC_RESTART_COUNT, JOBSET_RESTART_ATTEMPT, SLURM_RESTART_COUNT
//	slurm_job    cgroup, SLURM_JOB_ID
//	slurm_step   cgroup, SLURM_STEP_ID
//	slurm_task   cgroup
//	slurm_array  SLURM_ARRAY_JOB_ID_SLURM_ARRAY_TASK_ID
//	cluster      SLURM_CLUSTER_NAME
//	pod          POD_NAME, HOSTNAME in Kubernetes (with hostNetwork it names the node)
//	namespace    POD_NAMESPACE
//	pod_uid      cgroup
var (
	launchers = []launcherVariables{
		{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, // torchrun
		{
			"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
			"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
		},
		{"PMIX_RANK", "", "", ""},
		{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, // MPICH, Intel MPI
		slurmLauncher,
	}
	slurmLauncher     = launcherVariables{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""}
	nodeRankVariables = []string{
		"GROUP_RANK", "NODE_RANK", "SLURM_NODEID", "JOB_COMPLETION_INDEX",
		"LWS_WORKER_INDEX",
	}
	nodeNameVariables = []string{"SLURMD_NODENAME", "NODE_NAME"}
	jobVariables      = []string{"RAY_JOB_ID", "JOBSET_NAME", "LWS_LEADER_ADDRESS"}
	attemptVariables  = []string{
		"TORCHELASTIC_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT",
		"SLURM_RESTART_COUNT",
	}
)

// allowedVariables has the names of all variables that are read.
var allowedVariables = listAllowedVariables()

// listAllowedVariables returns the names of all variables in the tables above.
func listAllowedVariables() map[string]bool {
	names := []string{
		"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT",
		"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
		"SLURM_CLUSTER_NAME", "POD_NAME", "POD_NAMESPACE", "HOSTNAME", "KUBERNETES_SERVICE_HOST",
	}
	for _, l := range launchers {
		names = append(names, l.rank, l.worldSize, l.localRank, l.localWorldSize)
	}
	list := make(map[string]bool)
	for _, some := range [][]string{names, nodeRankVariables, nodeNameVariables, jobVariables, attemptVariables} {
		for _, name := range some {
			list[name] = name != ""
		}
	}
	return list
}

// FindIdentity returns the identity of a process. environ is the text of /proc/PID/environ
// (NAME=VALUE, each with a final NUL byte), cgroup the text of /proc/PID/cgroup. Both may be
// hostile: FindIdentity ignores malformed numbers, numbers out of range, and long texts.
//
// The environment is that of the last exec. It lacks variables that the program sets later, as with
// torch.multiprocessing.spawn. A program that changes its process title may overwrite it.
func FindIdentity(environ, cgroup string) format.Identity {
	f := identityFinder{env: readEnviron(environ), id: format.Identity{Sources: make(map[string]string)}}
	f.readCgroup(cgroup)
	f.findRank()
	f.setNumber(&f.id.NodeRank, "node_rank", 0, nodeRankVariables...)
	f.setText(&f.id.Node, "node", nodeNameVariables...)
	f.findSlurm()
	f.findJob()
	f.setNumber(&f.id.Attempt, "attempt", 0, attemptVariables...)
	f.setText(&f.id.Pod, "pod", "POD_NAME")
	if f.id.Pod == "" && f.env["KUBERNETES_SERVICE_HOST"] != "" {
		f.setText(&f.id.Pod, "pod", "HOSTNAME")
	}
	f.setText(&f.id.Namespace, "namespace", "POD_NAMESPACE")
	if !f.id.Known() {
		return format.Identity{}
	}
	return f.id
}

// readEnviron returns the allowed variables. For a name with several values it returns the first,
// like getenv.
func readEnviron(environ string) map[string]string {
	env := make(map[string]string)
	for variable := range strings.SplitSeq(environ, "\x00") {
		name, value, ok := strings.Cut(variable, "=")
		if !ok || !allowedVariables[name] {
			continue
		}
		if _, set := env[name]; !set {
			env[name] = strings.Clone(value) // a copy, so that environ can be freed
		}
	}
	return env
}

// identityFinder collects the identity (rank, node, job, pod) of one process.
type identityFinder struct {
	env map[string]string
	id  format.Identity
}

// setNumber sets *to, if it is nil, to the first environment variable with a number from min to
// maxRankOrSize.
func (f *identityFinder) setNumber(to **int, key string, min int, names ...string) {
	for _, name := range names {
		if *to != nil {
			return
		}
		if *to = parseNumber(f.env[name], min); *to != nil {
			f.id.Sources[key] = "env " + name
		}
	}
}

// setText sets *to, if it is empty, to the first environment variable with a valid text.
func (f *identityFinder) setText(to *string, key string, names ...string) {
	for _, name := range names {
		if *to == "" && isPrintableText(f.env[name]) {
			*to, f.id.Sources[key] = f.env[name], "env "+name
		}
	}
}

// findRank sets the rank and the local rank of the process, and the sizes of its job.
func (f *identityFinder) findRank() {
	for _, l := range launchers {
		if l == slurmLauncher && f.id.SlurmStep != "" && !isDigits(f.id.SlurmStep) {
			continue // a batch script has rank 0, but is not a task
		}
		rank, localRank := parseNumber(f.env[l.rank], 0), parseNumber(f.env[l.localRank], 0)
		isFirst := f.id.Rank == nil && f.id.LocalRank == nil
		if isFirst || ranksAgree(f.id.Rank, rank, f.id.LocalRank, localRank) {
			f.setRank(l)
		}
	}
}

// setRank sets unknown ranks and sizes from a launcher's variables. It ignores a size that is not
// above the rank.
func (f *identityFinder) setRank(l launcherVariables) {
	f.setNumber(&f.id.Rank, "rank", 0, l.rank)
	f.setNumber(&f.id.LocalRank, "local_rank", 0, l.localRank)
	if f.id.Rank != nil {
		f.setNumber(&f.id.WorldSize, "world_size", *f.id.Rank+1, l.worldSize)
	}
	if f.id.LocalRank != nil {
		f.setNumber(&f.id.LocalWorldSize, "local_world_size", *f.id.LocalRank+1, l.localWorldSize)
	}
}

// ranksAgree reports whether at least one pair has two equal known numbers, and no pair has
// different ones.
func ranksAgree(pairs ...*int) bool {
	common := false
	for i := 0; i < len(pairs); i += 2 {
		a, b := pairs[i], pairs[i+1]
		if a == nil || b == nil {
			continue
		}
		if *a != *b {
			return false
		}
		common = true
	}
	return common
}

// findSlurm sets values of a Slurm job that the cgroup does not have.
func (f *identityFinder) findSlurm() {
	if isDigits(f.env["SLURM_JOB_ID"]) {
		f.setText(&f.id.SlurmJob, "slurm_job", "SLURM_JOB_ID")
	}
	if isDigits(f.env["SLURM_STEP_ID"]) {
		f.setText(&f.id.SlurmStep, "slurm_step", "SLURM_STEP_ID")
	}
	job, task := f.env["SLURM_ARRAY_JOB_ID"], f.env["SLURM_ARRAY_TASK_ID"]
	if isDigits(job) && isDigits(task) {
		f.id.SlurmArray = job + "_" + task
		f.id.Sources["slurm_array"] = "env SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID"
	}
	f.setText(&f.id.Cluster, "cluster", "SLURM_CLUSTER_NAME")
}

// findJob sets the name of the job.
func (f *identityFinder) findJob() {
	if f.env["TORCHELASTIC_RUN_ID"] != "none" { // default of torchrun without --rdzv-id
		f.setText(&f.id.Job, "job", "TORCHELASTIC_RUN_ID")
	}
	if f.id.Job == "" && f.id.SlurmJob != "" {
		f.id.Job, f.id.Sources["job"] = f.id.SlurmJob, f.id.Sources["slurm_job"]
	}
	f.setText(&f.id.Job, "job", jobVariables...)
	host, port := f.env["MASTER_ADDR"], parseNumber(f.env["MASTER_PORT"], 1)
	if f.id.Job == "" && isPrintableText(host) && port != nil && *port <= 65535 {
		if address := net.JoinHostPort(host, strconv.Itoa(*port)); isPrintableText(address) {
			f.id.Job, f.id.Sources["job"] = address, "env MASTER_ADDR, MASTER_PORT"
		}
	}
}

// parseNumber returns a decimal number from min to maxRankOrSize, or nil.
func parseNumber(text string, min int) *int {
	if len(text) > 10 || !isDigits(text) {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < min || n > maxRankOrSize {
		return nil
	}
	return &n
}

// isDigits reports whether text is a decimal number of at most 20 digits.
func isDigits(text string) bool {
	return text != "" && len(text) <= 20 && strings.Trim(text, "0123456789") == ""
}

// isPrintableText reports whether a text is short, printable and not empty.
func isPrintableText(text string) bool {
	return text != "" && len(text) <= maxValueBytes && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
