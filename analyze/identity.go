package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// ProcessFilter chooses processes by their identity; the zero value chooses all of them. A list
// that is not empty must hold the value of the process.
type ProcessFilter struct {
	Ranks []int32
	// Jobs are names of jobs, or numbers or array names of Slurm jobs.
	Jobs []string
	// Containers are beginnings of container ids.
	Containers []string
}

// processChoice is a ProcessFilter and what it chose of a recording.
type processChoice struct {
	ProcessFilter
	facts *facts
	pids  []int32 // of the filter before
}

// noPid is the number of no process.
const noPid = int32(-1)

// Restrict narrows a filter to the processes of this recording that are chosen. A filter that was
// restricted before is restricted anew. If no process is chosen, the filter lets nothing through
// and reports explain it by their NoMatch.
func (t *Timeline) Restrict(f *query.Filter, to ProcessFilter) {
	if f.Choice != nil {
		f.Pids, f.Choice = f.Choice.Pids, nil
	}
	if len(to.Ranks)+len(to.Jobs)+len(to.Containers) == 0 {
		return
	}
	c := &processChoice{to, &t.facts, f.Pids}
	var pids []int32
	for _, pid := range slices.Sorted(maps.Keys(t.facts.processes)) {
		if (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) && c.has(pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		pids = []int32{noPid}
	}
	f.Pids, f.Choice = pids, &query.Choice{Pids: f.Pids, NoMatch: c.noMatch}
}

// has reports whether the process is chosen.
func (c *processChoice) has(pid int32) bool {
	return c.hasRank(pid) && c.hasJob(pid) && c.hasContainer(pid)
}

func (c *processChoice) hasRank(pid int32) bool {
	rank, ok := c.facts.rank(pid)
	return len(c.Ranks) == 0 || ok && slices.Contains(c.Ranks, rank)
}

func (c *processChoice) hasJob(pid int32) bool {
	id := c.facts.processes[pid].Identity
	return len(c.Jobs) == 0 || slices.ContainsFunc(c.Jobs, func(job string) bool {
		return job != "" && (job == id.Job || job == id.SlurmJob || job == id.SlurmArray)
	})
}

func (c *processChoice) hasContainer(pid int32) bool {
	id := c.facts.processes[pid].ContainerID
	return len(c.Containers) == 0 || slices.ContainsFunc(c.Containers, func(beginning string) bool {
		return beginning != "" && strings.HasPrefix(id, strings.ToLower(beginning))
	})
}

// query.NewNoMatch returns the condition that none of these processes fulfils, nil if each of them fulfils
// every one or only their combination fails.
func (c *processChoice) noMatch(pids map[int32]bool) *query.NoMatch {
	var ranks []string
	for _, rank := range c.Ranks {
		ranks = append(ranks, strconv.Itoa(int(rank)))
	}
	for _, condition := range []struct {
		name   string
		wanted []string
		has    func(pid int32) bool
		value  func(pid int32) string
	}{
		{"rank", ranks, c.hasRank, c.facts.rankText},
		{"job", c.Jobs, c.hasJob, func(pid int32) string {
			return c.facts.processes[pid].Identity.Job
		}},
		{"container", c.Containers, c.hasContainer, func(pid int32) string {
			return shortID(c.facts.processes[pid].ContainerID)
		}},
	} {
		if len(condition.wanted) == 0 || anyOf(pids, condition.has) {
			continue
		}
		var values []string
		for _, pid := range slices.Sorted(maps.Keys(pids)) {
			if v := condition.value(pid); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		slices.SortFunc(values, func(a, b string) int { // numbers by size
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		return &query.NoMatch{Filter: condition.name, Wanted: condition.wanted, Has: query.AtMostNamed(values)}
	}
	return query.NewNoMatch("pid", c.pids, pids, query.PidText)
}

func anyOf(pids map[int32]bool, has func(int32) bool) bool {
	for pid := range pids {
		if has(pid) {
			return true
		}
	}
	return false
}

// rank returns the rank of a process, if it is known.
func (f *facts) rank(pid int32) (int32, bool) {
	if rank := f.processes[pid].Identity.Rank; rank != nil {
		return int32(*rank), true
	}
	return 0, false
}

// rankText is the rank of a process, "" if it is not known.
func (f *facts) rankText(pid int32) string {
	if rank, ok := f.rank(pid); ok {
		return strconv.Itoa(int(rank))
	}
	return ""
}

// compareIdentities sets what the identities of all processes say together.
func (f *facts) compareIdentities() {
	jobs := make(map[string]bool)
	for _, p := range f.processes {
		f.hasRanks = f.hasRanks || p.Identity.Rank != nil
		if p.Identity.Job != "" {
			jobs[p.Identity.Job] = true
		}
	}
	f.severalJobs = len(jobs) > 1
}

// shortID is the beginning of a container's id that engines show, too.
func shortID(id string) string { return id[:min(12, len(id))] }

// identityGroups are groups by the identity of a process.
var identityGroups = []string{"rank", "job", "container", "pod", "cgroup"}

// identityLabel names the group of a process by one of identityGroups.
func (t *Timeline) identityLabel(pid int32, by string) string {
	p := t.facts.processes[pid]
	label := ""
	switch by {
	case "rank":
		if label = t.facts.rankText(pid); label != "" && t.facts.severalJobs {
			label = strings.TrimSuffix(label+" of "+p.Identity.Job, " of ")
		}
	case "job":
		label = p.Identity.Job
	case "container":
		label = shortID(p.ContainerID)
	case "pod":
		label = podName(&p.Identity)
	case "cgroup":
		label = cgroupPath(p.Cgroup)
	}
	if label == "" {
		return "(no " + by + ")"
	}
	return label
}

// podName is the pod with its namespace, or its UID if that is all that is known.
func podName(id *format.Identity) string {
	if id.Pod != "" && id.Namespace != "" {
		return id.Namespace + "/" + id.Pod
	}
	return cmp.Or(id.Pod, id.PodUID)
}

// cgroupPath returns the longest path of /proc/PID/cgroup, which has a line ID:CONTROLLERS:PATH
// for each hierarchy.
func cgroupPath(text string) string {
	path := ""
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && len(parts[2]) > len(path) {
			path = parts[2]
		}
	}
	return path
}

// processTitle is a process's name and its rank.
func (t *Timeline) processTitle(pid int32) string {
	name, _ := t.processName(pid)
	if rank, ok := t.facts.rank(pid); ok {
		name += fmt.Sprintf(" rank %d", rank)
	}
	return strings.TrimSpace(name)
}

var rankColumn = Column{"rank", "RANK", UnitID,
	"rank of the process in its job; the column is there if the rank of any process is known"}

// addRanks puts a column with the rank behind that with the process, if any process has a rank. It
// changes tables once, and only those that have such a column.
func (t *Timeline) addRanks(tables ...*Table) {
	if !t.facts.hasRanks {
		return
	}
	for _, table := range tables {
		at := columnOf(table, "pid")
		if at < 0 || columnOf(table, "rank") >= 0 {
			continue
		}
		column := rankColumn
		if table.Columns[at].Title == "" {
			column.Title = ""
		}
		table.Columns = slices.Insert(slices.Clone(table.Columns), at+1, column)
		for i := range table.Rows {
			cells := slices.Clone(table.Rows[i].Cells)
			table.Rows[i].Cells = slices.Insert(cells, at+1, t.rankOfCell(cells[at]))
		}
		if spare := slices.Index(table.Spare, "pid"); spare >= 0 {
			table.Spare = slices.Insert(slices.Clone(table.Spare), spare+1, "rank")
		}
		if len(table.Keys) > 0 { // ranks are the same in other recordings
			table.Keys = append(slices.Clone(table.Keys), "rank")
		}
	}
}

// rankOfCell is the rank of the process that a cell names, nil if it is not known.
func (t *Timeline) rankOfCell(cell any) any {
	pid, err := strconv.ParseInt(fmt.Sprint(cell), 10, 32)
	if err != nil {
		return nil
	}
	if rank, ok := t.facts.rank(int32(pid)); ok {
		return int64(rank)
	}
	return nil
}
