package hang

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// ProcessVerdict is the state of a process, from its threads and from the processes of its group. A
// group is a set of processes of the same program.
type ProcessVerdict struct {
	History     *processHistory
	State       HangState
	Threads     []threadVerdict
	SilentNs    int64 // time without progress until the end of the window
	gpu         silentGPUActivity
	Differences []string // differences from all other processes of the group
	group       int      // number of processes in the group
	Evidence    []string
	Level       string
	Reasons     []string
	stack       string   // what its thread does, as a sentence; "": unknown
	waitingIn   *callRef // open call that determines the state; nil if there is none
	// IsSilent reports that a SilentVerdict determines the state.
	IsSilent bool
	// silentTid is the thread of that verdict, 0 for a rank.
	silentTid int32
}

// addEvidence adds a sentence to the evidence of the verdict.
func (p *ProcessVerdict) addEvidence(format string, args ...any) {
	p.Evidence = append(p.Evidence, fmt.Sprintf(format, args...))
}

// Classify returns a verdict for each process, worst state first.
func (s *Scan) Classify(polls *pollCounts) []ProcessVerdict {
	var list []ProcessVerdict
	for _, pid := range slices.Sorted(maps.Keys(s.Processes)) {
		p := s.classifyProcess(s.Processes[pid], polls)
		if p.State < StateAlive {
			s.setGPUActivity(&p)
		}
		list = append(list, p)
	}
	s.compareGroups(list)
	sortVerdicts(list)
	return list
}

// sortVerdicts sorts verdicts by state, the worst first, then by differences and silent time.
func sortVerdicts(list []ProcessVerdict) {
	slices.SortStableFunc(list, func(a, b ProcessVerdict) int {
		return cmp.Or(
			cmp.Compare(a.State, b.State),
			cmp.Compare(len(b.Differences), len(a.Differences)),
			cmp.Compare(b.SilentNs, a.SilentNs),
		)
	})
}

// classifyProcess returns the verdict of a process from the verdicts of its threads.
func (s *Scan) classifyProcess(p *processHistory, polls *pollCounts) ProcessVerdict {
	sum := ProcessVerdict{History: p, State: StateEnded, SilentNs: s.EndNs - p.lastNs, Level: report.ConfidenceHigh}
	for _, l := range p.threads {
		sum.SilentNs = min(sum.SilentNs, s.EndNs-l.LastNs) // the start of a call is progress too
	}
	slices.SortFunc(p.threads, func(a, b *threadHistory) int { return cmp.Compare(a.Tid, b.Tid) })
	isAlive := false
	for _, l := range p.threads {
		j := s.classifyThread(l, polls)
		sum.Threads = append(sum.Threads, j)
		isAlive = isAlive || j.State == StateAlive
		if j.State < sum.State {
			sum.State, sum.Level, sum.Reasons = j.State, j.level, j.reasons
		}
	}
	if sum.State == StateIdle && isAlive {
		// A finished thread is normal while others make progress.
		sum.State, sum.Level, sum.Reasons = StateAlive, report.ConfidenceHigh, nil
	}
	for i := range sum.Threads {
		j := &sum.Threads[i]
		if j.State == sum.State && len(sum.Evidence) == 0 {
			sum.addEvidence("thread %s: %s", s.threadLabel(j.history.Thread), j.evidence[0])
			if j.Call.isOpen() {
				sum.waitingIn = j.Call
			}
			if isAlive && j.State == StateHanging {
				sum.SilentNs = j.silentNs // the progress of other threads does not count
			}
		}
	}
	return sum
}

// compareGroups sets the outliers in groups of processes of the same program, such as the ranks of
// a job.
func (s *Scan) compareGroups(list []ProcessVerdict) {
	groups := make(map[string][]*ProcessVerdict)
	for i := range list {
		p := &list[i]
		if p.History.Launches > 0 && p.State != StateEnded {
			fact := s.T.Facts.Processes[p.History.Pid]
			key := cmp.Or(fact.Exe, fact.Name)
			groups[key] = append(groups[key], p)
		}
	}
	for _, group := range groups {
		stuck := slices.ContainsFunc(group, func(p *ProcessVerdict) bool { return p.State < StateAlive })
		if len(group) < 2 || !stuck {
			continue
		}
		for _, p := range group {
			p.group = len(group)
			p.Differences = s.differencesFromGroup(p, group)
		}
		// If most processes differ, none is an outlier.
		if odd := slices.DeleteFunc(
			slices.Clone(group),
			func(p *ProcessVerdict) bool { return len(p.Differences) == 0 },
		); 2*len(
			odd,
		) > len(
			group,
		) {
			for _, p := range odd {
				p.Differences = nil
			}
		}
	}
}

// differencesFromGroup returns the differences of process p from all other processes of its group.
func (s *Scan) differencesFromGroup(p *ProcessVerdict, group []*ProcessVerdict) (odd []string) {
	firstOther, lastOther := int64(math.MaxInt64), int64(math.MinInt64)
	othersWait, othersAlive := true, true
	kernel, same := "", true
	for _, o := range group {
		if o == p {
			continue
		}
		firstOther, lastOther = min(firstOther, o.History.LaunchedNs), max(lastOther, o.History.LaunchedNs)
		othersWait = othersWait && o.waitingIn != nil
		othersAlive = othersAlive && o.State == StateAlive
		last := s.lastKernelName(o.History)
		same = same && last != "" && (kernel == "" || kernel == last)
		kernel = last
	}
	others := fmt.Sprintf("%d others", len(group)-1)
	first, they, progress, wait := "first of the "+others, "they make", "the "+others+" make", "the "+others+" wait"
	if len(group) == 2 {
		first, they, progress, wait = "other one", "it makes", "the other one makes", "the other one waits"
	}
	if d := firstOther - p.History.LaunchedNs; d >= s.longNs {
		text := fmt.Sprintf("its last kernel launch was %s before that of the %s", units.FormatDuration(d), first)
		if s.EndNs-firstOther < s.longNs {
			text += ", and " + they + " progress"
		}
		odd = append(odd, text)
	}
	if othersWait && p.waitingIn == nil {
		odd = append(odd, wait+" in a call, this process does not")
	}
	if own := s.lastKernelName(p.History); same && len(group) > 2 && own != "" && own != kernel {
		odd = append(odd, fmt.Sprintf("its last kernel is %s, the last kernel of the others is %s", own, kernel))
	}
	if othersAlive && p.State < StateIdle && len(odd) == 0 {
		odd = append(odd, progress+" progress")
	}
	return odd
}

// resultText returns the result of the report as one sentence. There is at least one verdict.
func (s *Scan) resultText(verdicts []ProcessVerdict) string {
	worst := &verdicts[0]
	if worst.State >= StateAlive {
		return fmt.Sprintf(
			"no process hangs: %s, all alive or ended",
			units.CountWithNoun(int64(len(verdicts)), "process"),
		)
	}
	same := 0
	for i := range verdicts {
		if verdicts[i].State == worst.State {
			same++
		}
	}
	text := fmt.Sprintf("%s: process %s", worst.State, s.T.PidLabel(worst.History.Pid))
	if same > 1 {
		text = fmt.Sprintf("%s: %d processes, such as %s", worst.State, same, s.T.PidLabel(worst.History.Pid))
	}
	text += ", " + worst.Evidence[0]
	if worst.stack != "" {
		text += "; " + worst.stack
	}
	return text
}

// firstOutlierText returns the first outlier of a group of processes and its first difference, or
// "".
func firstOutlierText(t *timeline.Timeline, verdicts []ProcessVerdict) string {
	for i := range verdicts {
		if p := &verdicts[i]; len(p.Differences) > 0 {
			return t.PidLabel(p.History.Pid) + ": " + p.Differences[0]
		}
	}
	return ""
}
