package threadstate

import (
	"cmp"
	"math"
	"slices"
)

// Member is a process with the thread that explains it.
type Member struct {
	Snapshot *Snapshot
	Thread   *Thread
	Job      string
	Rank     int64 // in the job; UnknownRank: unknown
	// UsesCUDA says that the process made CUDA calls before.
	UsesCUDA bool
}

// UnknownRank is the Rank of processes without a known rank.
const UnknownRank = math.MaxInt64

// DropHelpers leaves out processes that a rank started for itself, such as loaders of data: they inherit
// the rank. Of the processes of a rank, those that use CUDA stay, or else the first.
func DropHelpers(members []Member) []Member {
	type key struct {
		job  string
		rank int64
	}
	usesCUDA := func(m Member) bool { return m.UsesCUDA || m.Thread.Wait.CUDACall != "" }
	best := make(map[key]Member)
	for _, m := range members {
		k := key{m.Job, m.Rank}
		if old, known := best[k]; !known || usesCUDA(m) && !usesCUDA(old) {
			best[k] = m
		}
	}
	return slices.DeleteFunc(slices.Clone(members), func(m Member) bool {
		return m.Rank != UnknownRank && best[key{m.Job, m.Rank}].Snapshot != m.Snapshot && !usesCUDA(m)
	})
}

// Group is a set of processes whose threads have equal stacks.
type Group struct {
	Members []Member // by rank, then by pid
}

// GroupMembers groups processes by the stacks of their threads, the largest group first. Among groups of
// one size, those that wait for the GPU or for others come first, so that the later groups are those that
// the first one waits for.
func GroupMembers(members []Member) []Group {
	index := make(map[string]int)
	var groups []Group
	for _, m := range members {
		key := m.Thread.Key()
		i, ok := index[key]
		if !ok {
			i = len(groups)
			index[key] = i
			groups = append(groups, Group{})
		}
		groups[i].Members = append(groups[i].Members, m)
	}
	for i := range groups {
		slices.SortFunc(groups[i].Members, Member.compare)
	}
	slices.SortStableFunc(groups, func(a, b Group) int {
		return cmp.Or(
			cmp.Compare(len(b.Members), len(a.Members)),
			cmp.Compare(b.Members[0].Thread.waitsForOthers(), a.Members[0].Thread.waitsForOthers()),
			a.Members[0].compare(b.Members[0]),
		)
	})
	return groups
}

// compare orders members by rank, then by pid.
func (m Member) compare(o Member) int {
	return cmp.Or(cmp.Compare(m.Rank, o.Rank), cmp.Compare(m.Snapshot.Pid, o.Snapshot.Pid))
}

// waitsForOthers returns 2 for a thread in a collective, 1 for one that waits for the GPU, and 0 for
// others.
func (t *Thread) waitsForOthers() int {
	switch {
	case t.Collective() != "":
		return 2
	case t.Wait.CUDACall != "":
		return 1
	}
	return 0
}
