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

// noPid matches no process.
const noPid = int32(-1)

// Restrict narrows a filter to the selected processes of this recording. It replaces an earlier
// restriction. If no process matches, the filter matches nothing, and reports explain why with
// NoMatch.
func (t *Timeline) Restrict(f *query.Filter, to ProcessFilter) {
	if f.Choice != nil {
		f.Pids, f.Choice = f.Choice.Pids, nil
	}
	if len(to.Ranks)+len(to.Jobs)+len(to.Containers) == 0 {
		return
	}
	c := &processChoice{to, &t.Facts, f.Pids}
	var pids []int32
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		if (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) && c.has(pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		pids = []int32{noPid}
	}
	f.Pids, f.Choice = pids, &query.Choice{Pids: f.Pids, NoMatch: c.noMatch}
}

// has reports whether the process is selected.
func (c *processChoice) has(pid int32) bool {
	return c.hasRank(pid) && c.hasJob(pid) && c.hasContainer(pid)
}

func (c *processChoice) hasRank(pid int32) bool {
	rank, ok := c.facts.Rank(pid)
	return len(c.Ranks) == 0 || ok && slices.Contains(c.Ranks, rank)
}

func (c *processChoice) hasJob(pid int32) bool {
	id := c.facts.Processes[pid].Identity
	return len(c.Jobs) == 0 || slices.ContainsFunc(c.Jobs, func(job string) bool {
		return job != "" && (job == id.Job || job == id.SlurmJob || job == id.SlurmArray)
	})
}

func (c *processChoice) hasContainer(pid int32) bool {
	id := c.facts.Processes[pid].ContainerID
	return len(c.Containers) == 0 || slices.ContainsFunc(c.Containers, func(beginning string) bool {
		return beginning != "" && strings.HasPrefix(id, strings.ToLower(beginning))
	})
}

// noMatch returns the first condition that none of these processes fulfils. It returns nil if every
// condition is fulfilled by some process.
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
		{"rank", ranks, c.hasRank, c.facts.RankText},
		{"job", c.Jobs, c.hasJob, func(pid int32) string {
			return c.facts.Processes[pid].Identity.Job
		}},
		{"container", c.Containers, c.hasContainer, func(pid int32) string {
			return facts.ShortID(c.facts.Processes[pid].ContainerID)
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
		// shorter texts first, so that numbers are in numeric order
		slices.SortFunc(values, func(a, b string) int {
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

// IdentityGroups are the values of --by that group by process identity.
var IdentityGroups = []string{"rank", "job", "container", "pod", "cgroup"}

// IdentityLabel returns the label of a process's group. by is one of IdentityGroups.
func (t *Timeline) IdentityLabel(pid int32, by string) string {
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
		label = facts.ShortID(p.ContainerID)
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
	if rank, ok := t.Facts.Rank(pid); ok {
		name += fmt.Sprintf(" rank %d", rank)
	}
	return strings.TrimSpace(name)
}
