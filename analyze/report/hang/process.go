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

// ProcessVerdict is the state of a process, from its threads and from the processes of its group.
type ProcessVerdict struct {
	Life      *processLife
	State     State
	Threads   []threadVerdict
	SilentNs  int64
	gpu       gpuSilence
	Odd       []string // differences from all other processes of its group
	group     int      // number of processes of its group
	Evidence  []string
	Level     string
	Reasons   []string
	waitingIn *callRef // the open call that decides the state; nil if there is none
}

// say adds a sentence to the evidence.
func (p *ProcessVerdict) say(format string, args ...any) {
	p.Evidence = append(p.Evidence, fmt.Sprintf(format, args...))
}

// Judge returns a verdict for each process, the worst first.
func (s *Scan) Judge(polls *pollCounts) []ProcessVerdict {
	var list []ProcessVerdict
	for _, pid := range slices.Sorted(maps.Keys(s.Processes)) {
		p := s.judgeProcess(s.Processes[pid], polls)
		if p.State < Alive {
			s.askGPU(&p)
		}
		list = append(list, p)
	}
	s.compare(list)
	slices.SortStableFunc(list, func(a, b ProcessVerdict) int {
		return cmp.Or(
			cmp.Compare(a.State, b.State),
			cmp.Compare(len(b.Odd), len(a.Odd)),
			cmp.Compare(b.SilentNs, a.SilentNs),
		)
	})
	return list
}

// judgeProcess judges a process by the verdicts of its threads.
func (s *Scan) judgeProcess(p *processLife, polls *pollCounts) ProcessVerdict {
	sum := ProcessVerdict{Life: p, State: Ended, SilentNs: s.EndNs - p.lastNs, Level: report.ConfidenceHigh}
	for _, l := range p.threads {
		sum.SilentNs = min(sum.SilentNs, s.EndNs-l.LastNs) // entries are progress too
	}
	slices.SortFunc(p.threads, func(a, b *threadLife) int { return cmp.Compare(a.Tid, b.Tid) })
	isAlive := false
	for _, l := range p.threads {
		j := s.judgeThread(l, polls)
		sum.Threads = append(sum.Threads, j)
		isAlive = isAlive || j.State == Alive
		if j.State < sum.State {
			sum.State, sum.Level, sum.Reasons = j.State, j.level, j.reasons
		}
	}
	if sum.State == Idle && isAlive {
		// threads that have done their work are no news
		sum.State, sum.Level, sum.Reasons = Alive, report.ConfidenceHigh, nil
	}
	for i := range sum.Threads {
		j := &sum.Threads[i]
		if j.State == sum.State && len(sum.Evidence) == 0 {
			sum.say("thread %s: %s", s.nameOf(j.life.Thread), j.evidence[0])
			if j.Call.isOpen() {
				sum.waitingIn = j.Call
			}
		}
	}
	return sum
}

// compare finds the outliers in groups of equal processes, such as the ranks of a training.
func (s *Scan) compare(list []ProcessVerdict) {
	groups := make(map[string][]*ProcessVerdict)
	for i := range list {
		p := &list[i]
		if p.Life.Launches > 0 && p.State != Ended {
			fact := s.T.Facts.Processes[p.Life.Pid]
			key := cmp.Or(fact.Exe, fact.Name)
			groups[key] = append(groups[key], p)
		}
	}
	for _, group := range groups {
		stuck := slices.ContainsFunc(group, func(p *ProcessVerdict) bool { return p.State < Alive })
		if len(group) < 2 || !stuck {
			continue
		}
		for _, p := range group {
			p.group = len(group)
			p.Odd = s.oddness(p, group)
		}
		// Where most are odd, none is.
		if odd := slices.DeleteFunc(
			slices.Clone(group),
			func(p *ProcessVerdict) bool { return len(p.Odd) == 0 },
		); 2*len(
			odd,
		) > len(
			group,
		) {
			for _, p := range odd {
				p.Odd = nil
			}
		}
	}
}

// oddness returns the differences of a process from all others of its group.
func (s *Scan) oddness(p *ProcessVerdict, group []*ProcessVerdict) (odd []string) {
	firstOther, lastOther := int64(math.MaxInt64), int64(math.MinInt64)
	othersWait, othersGoOn := true, true
	kernel, same := "", true
	for _, o := range group {
		if o == p {
			continue
		}
		firstOther, lastOther = min(firstOther, o.Life.LaunchedNs), max(lastOther, o.Life.LaunchedNs)
		othersWait = othersWait && o.waitingIn != nil
		othersGoOn = othersGoOn && o.State == Alive
		last := s.lastKernel(o.Life)
		same = same && last != "" && (kernel == "" || kernel == last)
		kernel = last
	}
	first, they := fmt.Sprintf("first of the %d others", len(group)-1), "they go on"
	goOn, wait := fmt.Sprintf("the %d others go on", len(group)-1), fmt.Sprintf("the %d others wait", len(group)-1)
	if len(group) == 2 {
		first, they, goOn, wait = "other one", "that goes on", "the other one goes on", "the other one waits"
	}
	if d := firstOther - p.Life.LaunchedNs; d >= s.longNs {
		text := fmt.Sprintf("it launched its last kernel %s before the %s did", units.Duration(d), first)
		if s.EndNs-firstOther < s.longNs {
			text += ", and " + they
		}
		odd = append(odd, text)
	}
	if othersWait && p.waitingIn == nil {
		odd = append(odd, wait+" in a call, it does not")
	}
	if own := s.lastKernel(p.Life); same && len(group) > 2 && own != "" && own != kernel {
		odd = append(odd, fmt.Sprintf("its last kernel is %s, that of the others %s", own, kernel))
	}
	if othersGoOn && p.State < Idle && len(odd) == 0 {
		odd = append(odd, goOn)
	}
	return odd
}

// sentence returns the verdict on the processes that made calls.
func (s *Scan) sentence(verdicts []ProcessVerdict) string {
	worst := &verdicts[0]
	if worst.State >= Alive {
		return fmt.Sprintf("nothing hangs: %s, all alive or ended", units.Plural(int64(len(verdicts)), "process"))
	}
	same := 0
	for i := range verdicts {
		if verdicts[i].State == worst.State {
			same++
		}
	}
	text := fmt.Sprintf("%s: process %s", worst.State, s.T.PidLabel(worst.Life.Pid))
	if same > 1 {
		text = fmt.Sprintf("%s: %d processes, such as %s", worst.State, same, s.T.PidLabel(worst.Life.Pid))
	}
	return text + ", " + worst.Evidence[0]
}

// lookAt returns the first outlier of a group of processes, and its first difference.
func lookAt(t *timeline.Timeline, verdicts []ProcessVerdict) string {
	for i := range verdicts {
		if p := &verdicts[i]; len(p.Odd) > 0 {
			return t.PidLabel(p.Life.Pid) + ": " + p.Odd[0]
		}
	}
	return ""
}
