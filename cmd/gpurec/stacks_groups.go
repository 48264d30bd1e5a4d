//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"

	"github.com/gpurec/gpurec/record/hoststack"
)

// groupSnapshots groups processes by what their main threads do. Helpers of a rank are left out.
func groupSnapshots(snapshots []*hoststack.ProcessSnapshot) []threadstate.Group {
	var members []threadstate.Member
	for _, snapshot := range snapshots {
		l := newThreadSnapshot(snapshot)
		t := l.Main(0)
		if t == nil {
			continue
		}
		m := threadstate.Member{Snapshot: l, Thread: t, Rank: threadstate.UnknownRank}
		if id := snapshot.Identity; id != nil {
			m.Job = id.Job
			if id.Rank != nil {
				m.Rank = int64(*id.Rank)
			}
		}
		members = append(members, m)
	}
	return threadstate.GroupMembers(threadstate.DropHelpers(members))
}

// newThreadSnapshot returns a snapshot in the form of recordings.
func newThreadSnapshot(snapshot *hoststack.ProcessSnapshot) *threadstate.Snapshot {
	l := &threadstate.Snapshot{Pid: int32(snapshot.Pid), AtNs: snapshot.Taken.UnixNano()}
	for i := range snapshot.Threads {
		t := &snapshot.Threads[i]
		l.Threads = append(l.Threads, threadstate.Thread{
			Pid: int32(snapshot.Pid), Tid: int32(t.Tid), Name: t.Name, State: t.State, OffNs: t.OffNs, Wait: t.Wait,
			Frames: t.Frames,
		})
	}
	return l
}

// describeGroups returns a line for each group, if there is more than one process.
func describeGroups(groups []threadstate.Group) []string {
	n := 0
	for i := range groups {
		n += len(groups[i].Members)
	}
	if n < 2 {
		return nil
	}
	lines := []string{fmt.Sprintf("%d processes, by what their main threads do:", n)}
	for i := range groups {
		first := &groups[i].Members[0]
		differs := ""
		if i > 0 {
			differs = " differs"
			if len(groups[i].Members) > 1 {
				differs = " differ"
			}
		}
		text := fmt.Sprintf(
			"  %s%s: %s",
			groupLabel(&groups[i]),
			differs,
			first.Snapshot.Describe(first.Thread, first.Thread.OffNs),
		)
		lines = append(lines, strings.Map(message.Printable, text))
	}
	return lines
}

// maxGroupLabels bounds the processes that a line names.
const maxGroupLabels = 16

// groupLabel names the processes of a group by rank, or else by process ID.
func groupLabel(g *threadstate.Group) string {
	var labels []string
	for _, m := range g.Members[:min(len(g.Members), maxGroupLabels)] {
		label := fmt.Sprintf("process %d", m.Snapshot.Pid)
		if m.Rank != threadstate.UnknownRank {
			label = fmt.Sprintf("rank %d (process %d)", m.Rank, m.Snapshot.Pid)
		}
		labels = append(labels, label)
	}
	if more := len(g.Members) - maxGroupLabels; more > 0 {
		labels = append(labels, fmt.Sprintf("%d more", more))
	}
	return units.JoinWithAnd(labels)
}

// jsonGroup is a group of processes in JSON.
type jsonGroup struct {
	Pids    []int32 `json:"pids"`
	Tid     int32   `json:"tid"`          // of the first process
	Does    string  `json:"does"`         // what its thread does, in words
	At      string  `json:"at,omitempty"` // the line of the program
	Differs bool    `json:"differs"`      // from the largest group
}

func newJSONGroups(groups []threadstate.Group) []jsonGroup {
	list := []jsonGroup{}
	for i := range groups {
		first := &groups[i].Members[0]
		g := jsonGroup{
			Tid: first.Thread.Tid, Does: first.Snapshot.Why(first.Thread), At: first.Thread.Site(), Differs: i > 0,
		}
		for _, m := range groups[i].Members {
			g.Pids = append(g.Pids, m.Snapshot.Pid)
		}
		list = append(list, g)
	}
	return list
}
