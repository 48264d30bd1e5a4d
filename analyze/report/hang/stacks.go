package hang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// readSnapshots reads what the threads of all processes did, if the recording says so.
func (s *Scan) readSnapshots() (err error) {
	s.snapshots, err = threadstate.Read(s.T, s.EndNs)
	return err
}

// mainThread returns the thread that explains best why a process makes no progress, and its snapshot. It
// returns nil if the recording has no snapshot. preferred is a thread that is known to matter, 0: none.
func (s *Scan) mainThread(pid, preferred int32) (*threadstate.Snapshot, *threadstate.Thread) {
	snapshots := s.snapshots[pid]
	if len(snapshots) == 0 {
		return nil, nil
	}
	snapshot := &snapshots[len(snapshots)-1]
	return snapshot, snapshot.Main(preferred)
}

// sinceNs returns the minimum time, ns, that a thread has been in its current state. A process without any
// call in the recording was in its CUDA call all the time.
func (s *Scan) sinceNs(t *threadstate.Thread) int64 {
	since := threadstate.SinceNs(s.snapshots[t.Pid], t, s.EndNs)
	isComplete := s.T.Rec.Meta.Totals().Lost == 0 && len(s.T.Rec.Meta.Classes) == 0
	if s.Processes[t.Pid] == nil && t.Wait.CUDACall != "" && isComplete {
		since = max(since, s.EndNs-s.T.RecordingWindow().FromNs)
	}
	return since
}

// preferredThread returns the thread that determines the verdict of a process: that with the open call, or
// the one with most calls. It returns 0 if the states of all threads determine it.
func preferredThread(p *ProcessVerdict) int32 {
	if p.IsSilent {
		return p.silentTid
	}
	if p.waitingIn != nil {
		return p.waitingIn.tid
	}
	var tid int32
	most := int64(-1)
	for i := range p.Threads {
		if h := p.Threads[i].history; h.calls > most {
			tid, most = h.Tid, h.calls
		}
	}
	return tid
}

// addThreadStates adds what the thread of a process without progress does to its evidence.
func (s *Scan) addThreadStates(verdicts []ProcessVerdict) {
	for i := range verdicts {
		p := &verdicts[i]
		if p.State >= StateAlive {
			continue
		}
		snapshot, t := s.mainThread(p.History.Pid, preferredThread(p))
		if t == nil || snapshot.AtNs < p.History.lastNs {
			continue // it made calls after the snapshot
		}
		p.stack = snapshot.Describe(t, s.sinceNs(t))
		p.addEvidence("%s", p.stack)
		if text := s.describeWakers(t); text != "" {
			p.addEvidence("%s", text)
		}
	}
}

// groupProcesses groups the processes of the recording by what they do, if one of them makes no progress.
func (s *Scan) groupProcesses(verdicts []ProcessVerdict, silent []int32) []threadstate.Group {
	stuck := len(silent) > 0
	preferred := make(map[int32]int32)
	for i := range verdicts {
		p := &verdicts[i]
		stuck = stuck || p.State < StateAlive
		if p.State != StateEnded {
			preferred[p.History.Pid] = preferredThread(p)
		}
	}
	if !stuck {
		return nil
	}
	for _, pid := range silent {
		preferred[pid] = 0
	}
	return threadstate.GroupMembers(s.members(preferred))
}

// members returns processes with the threads that explain them, without launchers and helpers of ranks. preferred
// has, by pid, the thread that is known to matter, 0: none.
func (s *Scan) members(preferred map[int32]int32) (members []threadstate.Member) {
	for _, pid := range slices.Sorted(maps.Keys(preferred)) {
		snapshot, t := s.mainThread(pid, preferred[pid])
		if t == nil || s.isLauncher(pid, snapshot) {
			continue
		}
		members = append(members, threadstate.Member{
			Snapshot: snapshot, Thread: t, Rank: s.T.Facts.RankSortKey(pid), Job: s.T.Facts.Processes[pid].Identity.Job,
			UsesCUDA: s.Processes[pid] != nil,
		})
	}
	return threadstate.DropHelpers(members)
}

// outlierText returns a sentence on the first processes that do something else than the largest group, ""
// if all do the same.
func (s *Scan) outlierText(groups []threadstate.Group) string {
	if len(groups) < 2 {
		return ""
	}
	others, odd := &groups[0].Members[0], &groups[1].Members[0]
	return fmt.Sprintf("%s: %s; %s: %s", s.memberLabels(&groups[1]), describeMember(odd),
		s.memberLabels(&groups[0]), describeMember(others))
}

// describeMember returns what the thread of a process does, and its line.
func describeMember(m *threadstate.Member) string {
	text := m.Snapshot.Why(m.Thread)
	if site := m.Thread.Site(); site != "" {
		text += ", at " + site
	}
	return text
}

// maxLabels bounds the processes of a group that a sentence names.
const maxLabels = 4

// memberLabels names the processes of a group.
func (s *Scan) memberLabels(g *threadstate.Group) string {
	var labels []string
	for _, m := range g.Members[:min(len(g.Members), maxLabels)] {
		labels = append(labels, s.T.PidLabel(m.Snapshot.Pid))
	}
	text := strings.Join(labels, ", ")
	if more := len(g.Members) - maxLabels; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// stackColumns are the columns of Scan.stackTable.
var stackColumns = []report.Column{
	{
		Key: "processes", Title: "PROCESSES", Unit: report.UnitCount,
		About: "number of processes whose thread has this stack; the stack is compared by functions and lines",
	},
	{Key: "pids", Title: "PIDS", Unit: report.UnitText, About: "process ids, with ranks in brackets"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "id and name of the thread of the first process"},
	{Key: "state", Title: "STATE", Unit: report.UnitText, About: "state of the thread in the kernel"},
	{
		Key: "since_ns", Title: "SINCE", Unit: report.UnitNs,
		About: "minimum time that the thread of the first process has been in this state",
	},
	{
		Key: "does", Title: "DOES", Unit: report.UnitText,
		About: "what the thread waits for, from its stack, its system call and the owner of its lock",
	},
	{Key: "reason", Title: "", Unit: report.UnitText, About: "reason of the wait, as in FORMAT.md; absent if unknown"},
	{Key: "cuda_call", Title: "", Unit: report.UnitText, About: "function of the CUDA driver on the stack"},
	{Key: "collective", Title: "", Unit: report.UnitText, About: "collective operation on the stack"},
	{
		Key: "before_ns", Title: "", Unit: report.UnitNs,
		About: "time from the snapshot of the threads to the reported time",
	},
	{
		Key: "missing", Title: "", Unit: report.UnitText,
		About: "why the stack is not complete; absent if it is",
	},
	{
		Key: "at", Title: "AT", Unit: report.UnitText,
		About: "the line that the thread executes in the program's own code",
	},
}

// stackTable returns a table with the stacks of processes, equal ones together, the largest group first.
func (s *Scan) stackTable(groups []threadstate.Group) report.Table {
	table := report.Table{
		Name: "stacks", Title: "what the processes do, by equal stacks", Columns: stackColumns, Keys: []string{},
		HideFirst: []string{"state", "thread"},
	}
	for i := range groups {
		s.addStackRow(&table, &groups[i])
	}
	return table
}

// addStackRow adds the row of one group.
func (s *Scan) addStackRow(table *report.Table, g *threadstate.Group) {
	first := &g.Members[0]
	t := first.Thread
	var pids []string
	for _, m := range g.Members {
		text := strconv.Itoa(int(m.Snapshot.Pid))
		if rank := s.T.Facts.RankText(m.Snapshot.Pid); rank != "" {
			text += " (rank " + rank + ")"
		}
		pids = append(pids, text)
	}
	row := table.Add(report.Values{
		"processes":  int64(len(g.Members)),
		"pids":       strings.Join(pids, ", "),
		"thread":     strings.TrimSpace(fmt.Sprintf("%d %s", t.Tid, t.Name)),
		"state":      t.State,
		"since_ns":   s.sinceNs(t),
		"does":       first.Snapshot.Why(t),
		"reason":     units.TextOrNil(t.Wait.Reason),
		"cuda_call":  units.TextOrNil(t.Wait.CUDACall),
		"collective": units.TextOrNil(t.Collective()),
		"before_ns":  s.EndNs - first.Snapshot.AtNs,
		"missing":    units.TextOrNil(t.Wait.Missing),
		"at":         units.TextOrNil(cmp.Or(s.siteOfStack(t), t.Site())),
	})
	row.StackID = t.Stack
}

// siteOfStack returns the call site of a recorded stack, with source lines if they are known.
func (s *Scan) siteOfStack(t *threadstate.Thread) string { return s.T.Stacks.Sites[t.Stack] }
