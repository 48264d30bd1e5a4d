package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/query"
)

// ProcessFilter selects processes by identity. The zero value selects all. A non-empty list must
// contain the process's value.
type ProcessFilter struct {
	Ranks []int32 // ranks in the distributed job
	// Jobs are job names, Slurm job ids, or Slurm array job ids.
	Jobs []string
	// Containers are prefixes of container ids.
	Containers []string
}

// processChoice is a ProcessFilter applied to a recording.
type processChoice struct {
	ProcessFilter
	facts *facts.Facts
	pids  []int32 // process ids of the filter before the restriction
}

// impossiblePid matches no process.
const impossiblePid = int32(-1)

// RestrictProcesses narrows a filter to the selected processes of this recording. It replaces an
// earlier restriction. If no process matches, the filter matches nothing, and reports explain why
// with NoMatch.
func (t *Timeline) RestrictProcesses(f *query.Filter, to ProcessFilter) {
	if f.Choice != nil {
		f.Pids, f.Choice = f.Choice.Pids, nil
	}
	if len(to.Ranks)+len(to.Jobs)+len(to.Containers) == 0 {
		return
	}
	c := &processChoice{to, &t.Facts, f.Pids}
	var pids []int32
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		if (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) && c.selectsProcess(pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		pids = []int32{impossiblePid}
	}
	f.Pids, f.Choice = pids, &query.ProcessChoice{Pids: f.Pids, NoMatch: c.explainNoMatch}
}

// selectsProcess reports whether the process is selected.
func (c *processChoice) selectsProcess(pid int32) bool {
	return c.selectsRank(pid) && c.selectsJob(pid) && c.selectsContainer(pid)
}

func (c *processChoice) selectsRank(pid int32) bool {
	rank, ok := c.facts.RankOfProcess(pid)
	return len(c.Ranks) == 0 || ok && slices.Contains(c.Ranks, rank)
}

func (c *processChoice) selectsJob(pid int32) bool {
	id := c.facts.Processes[pid].Identity
	return len(c.Jobs) == 0 || slices.ContainsFunc(c.Jobs, func(job string) bool {
		return job != "" && (job == id.Job || job == id.SlurmJob || job == id.SlurmArray)
	})
}

func (c *processChoice) selectsContainer(pid int32) bool {
	id := c.facts.Processes[pid].ContainerID
	return len(c.Containers) == 0 || slices.ContainsFunc(c.Containers, func(beginning string) bool {
		return beginning != "" && strings.HasPrefix(id, strings.ToLower(beginning))
	})
}

// explainNoMatch returns the first condition that none of these processes fulfils. It returns nil
// if every condition is fulfilled by some process.
func (c *processChoice) explainNoMatch(pids map[int32]bool) *query.NoMatchError {
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
		{"rank", ranks, c.selectsRank, c.facts.RankText},
		{"job", c.Jobs, c.selectsJob, func(pid int32) string {
			return c.facts.Processes[pid].Identity.Job
		}},
		{"container", c.Containers, c.selectsContainer, func(pid int32) string {
			return facts.ShortContainerID(c.facts.Processes[pid].ContainerID)
		}},
	} {
		if len(condition.wanted) == 0 || anyProcess(pids, condition.has) {
			continue
		}
		var values []string
		for _, pid := range slices.Sorted(maps.Keys(pids)) {
			if v := condition.value(pid); v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		// shorter texts first, so that numbers are in numeric order
		slices.SortFunc(values, func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		return &query.NoMatchError{Filter: condition.name, Wanted: condition.wanted, Has: query.ShortenList(values)}
	}
	return query.NewNoMatchError("pid", c.pids, pids, query.FormatPid)
}

func anyProcess(pids map[int32]bool, has func(int32) bool) bool {
	for pid := range pids {
		if has(pid) {
			return true
		}
	}
	return false
}

// IdentityGroups are the values of --by that group by process identity.
var IdentityGroups = []string{"rank", "job", "container", "pod", "cgroup"}

// ProcessIdentityLabel returns the label of a process's group. by is one of IdentityGroups.
func (t *Timeline) ProcessIdentityLabel(pid int32, by string) string {
	p := t.Facts.Processes[pid]
	label := ""
	switch by {
	case "rank":
		if label = t.Facts.RankText(pid); label != "" && t.Facts.SeveralJobs {
			label = strings.TrimSuffix(label+" of "+p.Identity.Job, " of ")
		}
	case "job":
		label = p.Identity.Job
	case "container":
		label = facts.ShortContainerID(p.ContainerID)
	case "pod":
		label = facts.PodName(&p.Identity)
	case "cgroup":
		label = facts.CgroupPath(p.Cgroup)
	}
	if label == "" {
		return "(no " + by + ")"
	}
	return label
}

// ProcessTitle returns a process's name and rank.
func (t *Timeline) ProcessTitle(pid int32) string {
	name, _ := t.ProcessName(pid)
	if rank, ok := t.Facts.RankOfProcess(pid); ok {
		name += fmt.Sprintf(" rank %d", rank)
	}
	return strings.TrimSpace(name)
}
