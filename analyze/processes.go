package analyze

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

var processColumns = []Column{
	{"pid", "PID", UnitID, "process"},
	{"process", "PROCESS", UnitText, "its name"},
	{"rank", "RANK", UnitID, "its rank in the job, from 0"},
	{"world_size", "OF", UnitCount, "processes of the job"},
	{"local_rank", "LOCAL RANK", UnitID, "its rank on the node, from 0"},
	{"local_world_size", "", UnitCount, "processes of the job on the node"},
	{"node_rank", "", UnitID, "the node's number in the job, from 0"},
	{"node", "NODE", UnitText, "the node's name as the scheduler has it"},
	{"job", "JOB", UnitText, "the job's name as its launcher or scheduler has it"},
	{"attempt", "ATTEMPT", UnitID, "restarts of the job before, as its launcher or scheduler counts them"},
	{"slurm_job", "", UnitText, "number of the Slurm job"},
	{"slurm_step", "", UnitText, "the step in it"},
	{"slurm_task", "", UnitID, "the step's task on the node, from 0"},
	{"slurm_array", "", UnitText, "the job's name in an array: JOB_INDEX"},
	{"cluster", "", UnitText, "Slurm's name of the cluster"},
	{"container", "CONTAINER", UnitText, "first 12 digits of the container's id"},
	{"container_id", "", UnitText, "the whole id"},
	{"pod", "POD", UnitText, "Kubernetes namespace and pod, or the pod's UID"},
	{"pod_name", "", UnitText, "the pod's name"},
	{"namespace", "", UnitText, "its namespace"},
	{"pod_uid", "", UnitText, "its UID"},
	{"sources", "", UnitText, "where values of the identity are from: KEY: env VARIABLE or cgroup"},
	{"cgroup", "CGROUP", UnitText, "longest path in the process's cgroups"},
	{"cgroups", "", UnitText, "/proc/PID/cgroup, whole"},
}

// newIdentityTable has a row per recorded process, by job and rank. It is empty if only their numbers
// and names tell processes apart.
func newIdentityTable(t *timeline.Timeline, f *query.Filter) Table {
	table := Table{Name: "processes", Title: "processes", Columns: slices.Clone(processColumns),
		Aside: true, Keys: []string{}, Spare: []string{"cgroup", "node", "local_rank", "attempt", "pid"}}
	if !tellsProcesses(&t.Facts) {
		return table
	}
	pids := slices.SortedFunc(maps.Keys(t.Facts.Processes), func(a, b int32) int {
		jobA, jobB := t.Facts.Processes[a].Identity.Job, t.Facts.Processes[b].Identity.Job
		return cmp.Or(compareBools(jobA == "", jobB == ""), cmp.Compare(jobA, jobB),
			cmp.Compare(rankOrder(&t.Facts, a), rankOrder(&t.Facts, b)), cmp.Compare(a, b))
	})
	for _, pid := range pids {
		if len(f.Pids) == 0 || slices.Contains(f.Pids, pid) {
			table.Rows = append(table.Rows, processRow(t, pid))
		}
	}
	for i := range table.Columns {
		tells := func(r Row) bool { return r.Cells[i] != nil && r.Cells[i] != "/" }
		if !slices.ContainsFunc(table.Rows, tells) {
			table.Columns[i].Title = ""
		}
	}
	return table
}

// tellsProcesses reports whether identities, containers or cgroups tell processes apart.
func tellsProcesses(f *timeline.Facts) bool {
	cgroups := make(map[string]bool)
	for _, p := range f.Processes {
		if p.Identity.Known() || p.ContainerID != "" {
			return true
		}
		cgroups[timeline.CgroupPath(p.Cgroup)] = true
	}
	return len(cgroups) > 1
}

// ranksText lists the ranks of all processes.
func ranksText(t *timeline.Timeline) string {
	ranks := make(map[int32]bool)
	for pid := range t.Facts.Processes {
		if rank, ok := t.Facts.Rank(pid); ok {
			ranks[rank] = true
		}
	}
	var list []string
	for _, rank := range slices.Sorted(maps.Keys(ranks)) {
		list = append(list, query.PidText(rank))
	}
	return strings.Join(query.AtMostNamed(list), ", ")
}

// rankOrder sorts processes by rank, those of an unknown one last.
func rankOrder(f *timeline.Facts, pid int32) int64 {
	if rank, ok := f.Rank(pid); ok {
		return int64(rank)
	}
	return math.MaxInt64
}

func processRow(t *timeline.Timeline, pid int32) Row {
	p := t.Facts.Processes[pid]
	id := &p.Identity
	sources := []string{}
	for _, key := range slices.Sorted(maps.Keys(id.Sources)) {
		sources = append(sources, key+": "+id.Sources[key])
	}
	number := func(n *int) any {
		if n == nil {
			return nil
		}
		return int64(*n)
	}
	return Row{Cells: []any{int64(pid), units.Known(p.Name), number(id.Rank), number(id.WorldSize),
		number(id.LocalRank), number(id.LocalWorldSize), number(id.NodeRank), units.Known(id.Node),
		units.Known(id.Job), number(id.Attempt), units.Known(id.SlurmJob), units.Known(id.SlurmStep),
		number(id.SlurmTask), units.Known(id.SlurmArray), units.Known(id.Cluster),
		units.Known(timeline.ShortID(p.ContainerID)), units.Known(p.ContainerID),
		units.Known(timeline.PodName(id)), units.Known(id.Pod), units.Known(id.Namespace), units.Known(id.PodUID), sources,
		units.Known(timeline.CgroupPath(p.Cgroup)), units.Known(p.Cgroup)}}
}
