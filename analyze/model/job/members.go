package job

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gpurec/gpurec/format"
)

// addRecordings adds the hosts and the members of recordings.
func (j *Job) addRecordings(list []contents, opt Options) {
	firstOffset := make(map[int]int64) // Meta.ClockOffsetNs by host
	world := findWorld(list)
	for i := range list {
		meta := &list[i].meta
		host := j.hostOf(meta)
		if _, ok := firstOffset[host]; !ok {
			firstOffset[host] = meta.ClockOffsetNs
		}
		j.Recordings = append(j.Recordings, Recording{
			Host: host, ShiftNs: meta.ClockOffsetNs - firstOffset[host], StartNs: meta.StartNs, EndNs: meta.EndNs,
		})
		j.addMembers(i, &list[i], &world, opt)
	}
	slices.SortStableFunc(j.Members, func(a, b Member) int {
		if a.Rank < 0 != (b.Rank < 0) { // unknown ranks last
			return cmp.Compare(b.Rank, a.Rank)
		}
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Pid, b.Pid))
	})
	j.setLabels()
}

// hostOf returns the index of the host of a recording, and adds it if it is new.
func (j *Job) hostOf(meta *format.Meta) int {
	host := slices.IndexFunc(j.Hosts, func(h Host) bool {
		return h.BootID == meta.BootID && (meta.BootID != "" || h.Name == meta.Host)
	})
	if host < 0 {
		host = len(j.Hosts)
		j.Hosts = append(j.Hosts, Host{Name: meta.Host, BootID: meta.BootID})
	}
	return host
}

// addMembers adds the processes of recording i that have a rank by the environment, or that NCCL knows.
func (j *Job) addMembers(i int, c *contents, world *worldCommunicator, opt Options) {
	for _, pid := range slices.Sorted(maps.Keys(c.facts.Processes)) {
		id := c.facts.Processes[pid].Identity
		if !selectsJob(opt.Jobs, &id) {
			continue
		}
		m := Member{Recording: i, Host: j.Recordings[i].Host, Pid: pid, Rank: UnknownRank, Identity: id}
		m.ContainerID = c.facts.Processes[pid].ContainerID
		if id.WorldSize != nil {
			m.WorldSize = *id.WorldSize
		}
		if id.Rank != nil {
			m.Rank, m.RankSource = *id.Rank, id.Sources["rank"]
		} else if !world.setRank(&m, c.communicators) {
			continue
		}
		j.Members = append(j.Members, m)
	}
}

// selectsJob reports whether a process is of one of the jobs. No jobs select all.
func selectsJob(jobs []string, id *format.Identity) bool {
	return len(jobs) == 0 || slices.ContainsFunc(jobs, func(job string) bool {
		return job != "" && (job == id.Job || job == id.SlurmJob || job == id.SlurmArray)
	})
}

// setLabels sets the labels of all members.
func (j *Job) setLabels() {
	name := func(m *Member, level int) string {
		label := strconv.Itoa(m.Rank)
		switch {
		case m.Rank < 0 && level < 2:
			return fmt.Sprintf("pid %d", m.Pid)
		case m.Rank < 0:
			return fmt.Sprintf("pid %d on %s", m.Pid, j.Hosts[m.Host].Name)
		case level == 1:
			label += fmt.Sprintf(" (pid %d)", m.Pid)
		case level == 2:
			label += fmt.Sprintf(" (pid %d on %s)", m.Pid, j.Hosts[m.Host].Name)
		}
		return label
	}
	for level := range 3 {
		count := make(map[string]int)
		for i := range j.Members {
			m := &j.Members[i]
			if level == 0 {
				m.Label = name(m, 0)
			}
			count[m.Label]++
		}
		for i := range j.Members {
			if m := &j.Members[i]; count[m.Label] > 1 {
				m.Label = name(m, min(2, level+1))
			}
		}
	}
}
