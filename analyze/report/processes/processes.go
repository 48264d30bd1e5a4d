package processes

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Columns are the columns of the table of processes.
var Columns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
	{Key: "rank", Title: "RANK", Unit: report.UnitID, About: "its rank in the job, from 0"},
	{Key: "world_size", Title: "OF", Unit: report.UnitCount, About: "processes of the job"},
	{Key: "local_rank", Title: "LOCAL RANK", Unit: report.UnitID, About: "its rank on the node, from 0"},
	{Key: "local_world_size", Title: "", Unit: report.UnitCount, About: "processes of the job on the node"},
	{Key: "node_rank", Title: "", Unit: report.UnitID, About: "the node's number in the job, from 0"},
	{Key: "node", Title: "NODE", Unit: report.UnitText, About: "the node's name as the scheduler has it"},
	{Key: "job", Title: "JOB", Unit: report.UnitText, About: "the job's name as its launcher or scheduler has it"},
	{
		Key: "attempt", Title: "ATTEMPT", Unit: report.UnitID,
		About: "restarts of the job before, as its launcher or scheduler counts them",
	},
	{Key: "slurm_job", Title: "", Unit: report.UnitText, About: "number of the Slurm job"},
	{Key: "slurm_step", Title: "", Unit: report.UnitText, About: "the step in it"},
	{Key: "slurm_task", Title: "", Unit: report.UnitID, About: "the step's task on the node, from 0"},
	{Key: "slurm_array", Title: "", Unit: report.UnitText, About: "the job's name in an array: JOB_INDEX"},
	{Key: "cluster", Title: "", Unit: report.UnitText, About: "Slurm's name of the cluster"},
	{Key: "container", Title: "CONTAINER", Unit: report.UnitText, About: "first 12 digits of the container's id"},
	{Key: "container_id", Title: "", Unit: report.UnitText, About: "the whole id"},
	{Key: "pod", Title: "POD", Unit: report.UnitText, About: "Kubernetes namespace and pod, or the pod's UID"},
	{Key: "pod_name", Title: "", Unit: report.UnitText, About: "the pod's name"},
	{Key: "namespace", Title: "", Unit: report.UnitText, About: "its namespace"},
	{Key: "pod_uid", Title: "", Unit: report.UnitText, About: "its UID"},
	{
		Key: "sources", Title: "", Unit: report.UnitText,
		About: "where values of the identity are from: KEY: env VARIABLE or cgroup",
	},
	{Key: "cgroup", Title: "CGROUP", Unit: report.UnitText, About: "longest path in the process's cgroups"},
	{Key: "cgroups", Title: "", Unit: report.UnitText, About: "/proc/PID/cgroup, whole"},
}

// NewTable returns a table with a row per recorded process that passes the filter, by job and
// rank. It has no rows if nothing but process ids and names is known.
func NewTable(t *timeline.Timeline, f *query.Filter) report.Table {
	table := report.Table{
		Name: "processes", Title: "processes", Columns: slices.Clone(Columns),
		Aside: true, Keys: []string{}, Spare: []string{"cgroup", "node", "local_rank", "attempt", "pid"},
	}
	if !t.Facts.DistinguishesProcesses() {
		return table
	}
	pids := slices.SortedFunc(maps.Keys(t.Facts.Processes), func(a, b int32) int {
		jobA, jobB := t.Facts.Processes[a].Identity.Job, t.Facts.Processes[b].Identity.Job
		return cmp.Or(report.CompareBools(jobA == "", jobB == ""), cmp.Compare(jobA, jobB),
			cmp.Compare(t.Facts.RankOrder(a), t.Facts.RankOrder(b)), cmp.Compare(a, b))
	})
	for _, pid := range pids {
		if len(f.Pids) == 0 || slices.Contains(f.Pids, pid) {
			addProcess(t, &table, pid)
		}
	}
	for _, c := range slices.Clone(table.Columns) {
		hasValue := func(r report.Row) bool { v := table.Cell(&r, c.Key); return v != nil && v != "/" }
		if !slices.ContainsFunc(table.Rows, hasValue) {
			report.Hide(table.Columns, c.Key)
		}
	}
	return table
}

// addProcess adds the row of a process.
func addProcess(t *timeline.Timeline, table *report.Table, pid int32) {
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
	table.Add(report.Values{
		"pid":              int64(pid),
		"process":          units.Known(p.Name),
		"rank":             number(id.Rank),
		"world_size":       number(id.WorldSize),
		"local_rank":       number(id.LocalRank),
		"local_world_size": number(id.LocalWorldSize),
		"node_rank":        number(id.NodeRank),
		"node":             units.Known(id.Node),
		"job":              units.Known(id.Job),
		"attempt":          number(id.Attempt),
		"slurm_job":        units.Known(id.SlurmJob),
		"slurm_step":       units.Known(id.SlurmStep),
		"slurm_task":       number(id.SlurmTask),
		"slurm_array":      units.Known(id.SlurmArray),
		"cluster":          units.Known(id.Cluster),
		"container":        units.Known(facts.ShortID(p.ContainerID)),
		"container_id":     units.Known(p.ContainerID),
		"pod":              units.Known(facts.PodName(id)),
		"pod_name":         units.Known(id.Pod),
		"namespace":        units.Known(id.Namespace),
		"pod_uid":          units.Known(id.PodUID),
		"sources":          sources,
		"cgroup":           units.Known(facts.CgroupPath(p.Cgroup)),
		"cgroups":          units.Known(p.Cgroup),
	})
}
