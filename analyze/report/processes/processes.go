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

// ProcessColumns are the columns of the table of processes.
var ProcessColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "name of the process"},
	{Key: "rank", Title: "RANK", Unit: report.UnitID, About: "rank of the process in the job, from 0"},
	{Key: "world_size", Title: "OF", Unit: report.UnitCount, About: "number of processes of the job"},
	{Key: "local_rank", Title: "LOCAL RANK", Unit: report.UnitID, About: "rank of the process on the node, from 0"},
	{Key: "local_world_size", Title: "", Unit: report.UnitCount, About: "number of processes of the job on the node"},
	{Key: "node_rank", Title: "", Unit: report.UnitID, About: "number of the node in the job, from 0"},
	{Key: "node", Title: "NODE", Unit: report.UnitText, About: "name of the node, from the scheduler"},
	{Key: "job", Title: "JOB", Unit: report.UnitText, About: "name of the job, from its launcher or scheduler"},
	{
		Key: "attempt", Title: "ATTEMPT", Unit: report.UnitID,
		About: "number of earlier restarts of the job, from its launcher or scheduler",
	},
	{Key: "slurm_job", Title: "", Unit: report.UnitText, About: "number of the Slurm job"},
	{Key: "slurm_step", Title: "", Unit: report.UnitText, About: "step of the Slurm job"},
	{Key: "slurm_task", Title: "", Unit: report.UnitID, About: "task of the Slurm step on the node, from 0"},
	{Key: "slurm_array", Title: "", Unit: report.UnitText, About: "Slurm array job and index: JOB_INDEX"},
	{Key: "cluster", Title: "", Unit: report.UnitText, About: "name of the cluster, from Slurm"},
	{Key: "container", Title: "CONTAINER", Unit: report.UnitText, About: "first 12 digits of the container id"},
	{Key: "container_id", Title: "", Unit: report.UnitText, About: "full container id"},
	{Key: "pod", Title: "POD", Unit: report.UnitText, About: "Kubernetes namespace and pod name, or the pod's UID"},
	{Key: "pod_name", Title: "", Unit: report.UnitText, About: "name of the Kubernetes pod"},
	{Key: "namespace", Title: "", Unit: report.UnitText, About: "Kubernetes namespace of the pod"},
	{Key: "pod_uid", Title: "", Unit: report.UnitText, About: "UID of the Kubernetes pod"},
	{
		Key: "sources", Title: "", Unit: report.UnitText,
		About: "sources of the identity values, each as KEY: env VARIABLE or KEY: cgroup",
	},
	{Key: "cgroup", Title: "CGROUP", Unit: report.UnitText, About: "longest cgroup path of the process"},
	{Key: "cgroups", Title: "", Unit: report.UnitText, About: "full text of /proc/PID/cgroup"},
}

// NewProcessTable returns a table with one row per recorded process that passes the filter, sorted
// by job and rank. The table is empty if the recording has only process ids and names.
func NewProcessTable(t *timeline.Timeline, f *query.Filter) report.Table {
	table := report.Table{
		Name: "processes", Title: "processes", Columns: slices.Clone(ProcessColumns),
		Secondary: true, Keys: []string{}, HideFirst: []string{"cgroup", "node", "local_rank", "attempt", "pid"},
	}
	if !t.Facts.CanDistinguishProcesses() {
		return table
	}
	pids := slices.SortedFunc(maps.Keys(t.Facts.Processes), func(a, b int32) int {
		jobA, jobB := t.Facts.Processes[a].Identity.Job, t.Facts.Processes[b].Identity.Job
		return cmp.Or(report.CompareBools(jobA == "", jobB == ""), cmp.Compare(jobA, jobB),
			cmp.Compare(t.Facts.RankSortKey(a), t.Facts.RankSortKey(b)), cmp.Compare(a, b))
	})
	for _, pid := range pids {
		if len(f.Pids) == 0 || slices.Contains(f.Pids, pid) {
			addProcessRow(t, &table, pid)
		}
	}
	for _, c := range slices.Clone(table.Columns) {
		hasValue := func(r report.Row) bool { v := table.Cell(&r, c.Key); return v != nil && v != "/" }
		if !slices.ContainsFunc(table.Rows, hasValue) {
			report.HideTitle(table.Columns, c.Key)
		}
	}
	return table
}

// addProcessRow adds the row of process pid.
func addProcessRow(t *timeline.Timeline, table *report.Table, pid int32) {
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
		"process":          units.TextOrNil(p.Name),
		"rank":             number(id.Rank),
		"world_size":       number(id.WorldSize),
		"local_rank":       number(id.LocalRank),
		"local_world_size": number(id.LocalWorldSize),
		"node_rank":        number(id.NodeRank),
		"node":             units.TextOrNil(id.Node),
		"job":              units.TextOrNil(id.Job),
		"attempt":          number(id.Attempt),
		"slurm_job":        units.TextOrNil(id.SlurmJob),
		"slurm_step":       units.TextOrNil(id.SlurmStep),
		"slurm_task":       number(id.SlurmTask),
		"slurm_array":      units.TextOrNil(id.SlurmArray),
		"cluster":          units.TextOrNil(id.Cluster),
		"container":        units.TextOrNil(facts.ShortContainerID(p.ContainerID)),
		"container_id":     units.TextOrNil(p.ContainerID),
		"pod":              units.TextOrNil(facts.PodName(id)),
		"pod_name":         units.TextOrNil(id.Pod),
		"namespace":        units.TextOrNil(id.Namespace),
		"pod_uid":          units.TextOrNil(id.PodUID),
		"sources":          sources,
		"cgroup":           units.TextOrNil(facts.CgroupPath(p.Cgroup)),
		"cgroups":          units.TextOrNil(p.Cgroup),
	})
}
