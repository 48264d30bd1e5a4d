package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// hangState is what a thread or process was doing at the moment, the worst first.
type hangState int

const (
	hanging hangState = iota
	polling
	waiting
	idle
	alive
	ended
	numHangStates
)

func (s hangState) String() string {
	return [...]string{"hanging", "polling", "waiting", "idle", "alive", "ended"}[s]
}

func hangStates() (list []string) {
	for s := range numHangStates {
		list = append(list, s.String())
	}
	return list
}

const (
	// patience is how many times longer than ever before a call or a pause must last to be told from work that is slow.
	patience = 3
	// pollsPerSecond is from how many queries a second on a program that does nothing else is called polling: watchdogs ask
	// ten times a second.
	pollsPerSecond = 100
	// busyCalls and busyPerSecond are the least that a thread must have done to be called busy before it went silent.
	busyCalls, busyPerSecond = 10, 1.0
	// gpuBusyPct and gpuIdlePct are when a GPU is said to work all the time, or not at all.
	gpuBusyPct, gpuIdlePct = 90, 5
)

// judgement is the state of a thread with what speaks for it.
type judgement struct {
	state    hangState
	life     *threadLife
	call     *callRef // open, or the last one
	silentNs int64    // since when the thread makes no progress
	perSec   float64  // calls a second before that
	pauseNs  int64    // longest pause before that
	blindNs  int64    // of silentNs, time in which launches were not recorded
	evidence []string
	level    string
	reasons  []string
}

func (j *judgement) say(format string, args ...any) {
	j.evidence = append(j.evidence, fmt.Sprintf(format, args...))
}

// lower lowers the confidence.
func (j *judgement) lower(to, format string, args ...any) {
	if j.level == confidenceHigh || to == confidenceLow {
		j.level = to
	}
	j.reasons = append(j.reasons, fmt.Sprintf(format, args...))
}

// judge decides what a thread was doing. In this order:
//
//	ended    its process had ended
//	hanging  it is in a call for at least LongNs, and three times as long as any call of that function before
//	waiting  it is in a call for that long, but such calls have taken long before, or its process goes on in other threads
//	alive    it is in a call for less than that, or its last call ended less than LongNs ago, or it has paused that long before
//	polling  it makes no call that is recorded, but queries are counted that can be its own
//	idle     it was busy, and makes no calls any more
func (s *hangScan) judge(l *threadLife, polls *pollUse) judgement {
	j := judgement{life: l, level: confidenceHigh, call: l.outermost(), silentNs: s.endNs - l.lastNs, pauseNs: l.lively.longestPause(s.Window)}
	if j.call == nil {
		j.call = &l.last
	}
	if busy := l.lastNs - l.firstNs; busy > 0 {
		j.perSec = float64(l.calls) / (float64(busy) / 1e9)
	}
	if l.launched {
		j.blindNs = s.T.GapNs(l.lastNs, s.endNs)
	}
	exitNs := s.T.Facts.Processes[l.Pid].ExitNs
	switch {
	case exitNs > 0 && exitNs <= s.endNs:
		j.state = ended
		j.say("its process ended %s before", units.Duration(s.endNs-exitNs))
		return j
	case j.call.isOpen():
		s.judgeOpen(&j)
	case j.silentNs < s.longNs:
		j.state = alive
		j.say("its last call ended %s before", units.Duration(j.silentNs))
	case j.silentNs-j.blindNs < s.longNs:
		j.state = alive
		j.say("no call for %s, but for %s of that its launches were not recorded (--max-overhead)", units.Duration(j.silentNs), units.Duration(j.blindNs))
		j.lower(confidenceLow, "launches were not recorded for most of the silent time")
	default:
		s.judgeSilent(&j, polls)
	}
	if j.state != alive {
		s.doubt(&j)
	}
	return j
}

func (s *hangScan) judgeOpen(j *judgement) {
	age := s.endNs - j.call.startNs
	d, p := s.of(j.call), j.life.process
	longest := p.longest[d.name]
	j.silentNs = age
	switch {
	case age < s.longNs:
		j.state = alive
		j.say("in %s for %s", d.name, units.Duration(age))
		return
	case age < patience*longest:
		j.state = waiting
		j.say("in %s for %s; calls of it have taken up to %s before", d.name, units.Duration(age), units.Duration(longest))
	case p.lastNs > j.call.startNs && s.endNs-p.lastNs < s.longNs:
		j.state = waiting
		j.say("in %s for %s, while other threads of the process go on", d.name, units.Duration(age))
	case longest > 0:
		j.say("in %s for %s, %.0f times as long as any before (%s)", d.name, units.Duration(age), float64(age)/float64(longest), units.Duration(longest))
	default:
		j.say("in %s for %s; none of the process's calls of it that returned took a millisecond", d.name, units.Duration(age))
	}
	if inner := len(j.life.open) - 1; inner > 0 {
		j.say("with %s inside of it", units.Plural(int64(inner), "more call"))
	}
}

func (s *hangScan) judgeSilent(j *judgement, polls *pollUse) {
	unseen := j.call.flags&format.FlagNoReturn != 0
	wasBusy := j.life.calls >= busyCalls && j.perSec >= busyPerSecond
	switch {
	case polls.by[j.life.Pid] && j.life == polls.suspects[j.life.Pid]:
		j.state = polling
		j.say("%s queries of events and streams a second are counted, and no other call", units.Count(units.RoundInt(polls.perSec)))
		if len(polls.by) > 1 {
			j.lower(confidenceLow, "queries are counted for all processes together, and %d can be the one", len(polls.by))
		} else if len(s.processes) > 1 {
			j.lower(confidenceMedium, "queries are counted for all processes together")
		}
	case j.silentNs-j.blindNs < patience*j.pauseNs && !unseen:
		j.state = alive
		j.say("no call for %s, but it has paused for %s before", units.Duration(j.silentNs), units.Duration(j.pauseNs))
	default:
		j.state = idle
		j.say("no call for %s", units.Duration(j.silentNs))
		if !wasBusy {
			j.lower(confidenceMedium, "it made no more than %s before", units.Plural(j.life.calls, "call"))
		}
	}
	if wasBusy && j.state != alive {
		j.say("%s calls a second before that, without a pause of more than %s", units.RateText(j.perSec), units.Duration(j.pauseNs+int64(float64(s.Window.DurNs())/activityParts)))
	}
	if j.blindNs > 0 {
		j.say("for %s of it launches were not recorded (--max-overhead)", units.Duration(j.blindNs))
		j.lower(confidenceMedium, "launches were not recorded for a part of the silent time")
	}
	if unseen {
		j.say("it may be inside of its last call, %s, of which the return was not to be recorded", s.of(j.call).name)
		j.lower(confidenceMedium, "the last call is a launch that was written at its entry")
	}
}

// doubt lowers the confidence for what can have been missed.
func (s *hangScan) doubt(j *judgement) {
	from := s.endNs - j.silentNs
	var lostThen, lostAll int64
	for _, l := range s.T.Facts.Lost {
		lostAll += l.Calls
		if units.EndOf(l.StartNs, l.DurNs) >= from && l.StartNs <= s.endNs {
			lostThen += l.Calls
		}
	}
	switch lost := max(s.T.Rec.Meta.Totals().Lost, lostAll); {
	case lostThen > 0:
		j.lower(confidenceLow, "%s lost in the silent time", units.Plural(lostThen, "call"))
	case lost > 0 && lostAll == 0:
		j.lower(confidenceMedium, "%s lost at unknown times", units.Plural(lost, "call"))
	}
	if n := len(s.T.Rec.Damaged); n > 0 {
		j.lower(confidenceLow, "%s damaged", units.Plural(int64(n), "segment"))
	}
	if s.T.Rec.Meta.Complete != format.CompleteYes && s.endNs >= s.T.Scan.LastNs {
		j.lower(confidenceLow, "the recording is cut off: calls that were open at its end, and what came after, are not in it")
	}
}

// processState is the state of a process: of its threads, and against its likes.
type processState struct {
	life      *processLife
	state     hangState
	threads   []judgement
	silentNs  int64
	gpu       gpuSilence
	odd       []string // what tells it from the other processes of its group
	group     int      // processes of the group
	evidence  []string
	level     string
	reasons   []string
	waitingIn *callRef // the open call that makes it hang or wait
}

func (p *processState) say(format string, args ...any) {
	p.evidence = append(p.evidence, fmt.Sprintf(format, args...))
}

// sum makes the state of a process from those of its threads.
func (s *hangScan) sum(p *processLife, polls *pollUse) processState {
	sum := processState{life: p, state: ended, silentNs: s.endNs - p.lastNs, level: confidenceHigh}
	for _, l := range p.threads {
		sum.silentNs = min(sum.silentNs, s.endNs-l.lastNs) // entries are progress too
	}
	slices.SortFunc(p.threads, func(a, b *threadLife) int { return cmp.Compare(a.Tid, b.Tid) })
	isAlive := false
	for _, l := range p.threads {
		j := s.judge(l, polls)
		sum.threads = append(sum.threads, j)
		isAlive = isAlive || j.state == alive
		if j.state < sum.state {
			sum.state, sum.level, sum.reasons = j.state, j.level, j.reasons
		}
	}
	if sum.state == idle && isAlive {
		sum.state, sum.level, sum.reasons = alive, confidenceHigh, nil // threads that have done their work are no news
	}
	for i := range sum.threads {
		j := &sum.threads[i]
		if j.state == sum.state && len(sum.evidence) == 0 {
			sum.say("thread %s: %s", s.nameOf(j.life.Thread), j.evidence[0])
			if j.call.isOpen() {
				sum.waitingIn = j.call
			}
		}
	}
	return sum
}

func (s *hangScan) nameOf(th origin.Thread) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", th.Tid, s.T.Facts.Threads[th]))
}

// states judges all processes, the worst first.
func (s *hangScan) states(polls *pollUse) []processState {
	var list []processState
	for _, pid := range slices.Sorted(maps.Keys(s.processes)) {
		p := s.sum(s.processes[pid], polls)
		if p.state < alive {
			s.askGPU(&p)
		}
		list = append(list, p)
	}
	s.compare(list)
	slices.SortStableFunc(list, func(a, b processState) int {
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(len(b.odd), len(a.odd)), cmp.Compare(b.silentNs, a.silentNs))
	})
	return list
}

// compare finds in groups of equal processes, such as the ranks of a training, those that are unlike the others.
func (s *hangScan) compare(list []processState) {
	groups := make(map[string][]*processState)
	for i := range list {
		p := &list[i]
		if p.life.launches > 0 && p.state != ended {
			fact := s.T.Facts.Processes[p.life.pid]
			key := cmp.Or(fact.Exe, fact.Name)
			groups[key] = append(groups[key], p)
		}
	}
	for _, group := range groups {
		stuck := slices.ContainsFunc(group, func(p *processState) bool { return p.state < alive })
		if len(group) < 2 || !stuck {
			continue
		}
		for _, p := range group {
			p.group = len(group)
			p.odd = s.oddness(p, group)
		}
		// Where most are odd, none is.
		if odd := slices.DeleteFunc(slices.Clone(group), func(p *processState) bool { return len(p.odd) == 0 }); 2*len(odd) > len(group) {
			for _, p := range odd {
				p.odd = nil
			}
		}
	}
}

// oddness says what tells a process from all others of its group.
func (s *hangScan) oddness(p *processState, group []*processState) (odd []string) {
	firstOther, lastOther := int64(math.MaxInt64), int64(math.MinInt64)
	othersWait, othersGoOn := true, true
	kernel, same := "", true
	for _, o := range group {
		if o == p {
			continue
		}
		firstOther, lastOther = min(firstOther, o.life.launchedNs), max(lastOther, o.life.launchedNs)
		othersWait = othersWait && o.waitingIn != nil
		othersGoOn = othersGoOn && o.state == alive
		last := s.lastKernel(o.life)
		same = same && last != "" && (kernel == "" || kernel == last)
		kernel = last
	}
	first, they, goOn, wait := fmt.Sprintf("first of the %d others", len(group)-1), "they go on", fmt.Sprintf("the %d others go on", len(group)-1), fmt.Sprintf("the %d others wait", len(group)-1)
	if len(group) == 2 {
		first, they, goOn, wait = "other one", "that goes on", "the other one goes on", "the other one waits"
	}
	if d := firstOther - p.life.launchedNs; d >= s.longNs {
		text := fmt.Sprintf("it launched its last kernel %s before the %s did", units.Duration(d), first)
		if s.endNs-firstOther < s.longNs {
			text += ", and " + they
		}
		odd = append(odd, text)
	}
	if othersWait && p.waitingIn == nil {
		odd = append(odd, wait+" in a call, it does not")
	}
	if own := s.lastKernel(p.life); same && len(group) > 2 && own != "" && own != kernel {
		odd = append(odd, fmt.Sprintf("its last kernel is %s, that of the others %s", own, kernel))
	}
	if othersGoOn && p.state < idle && len(odd) == 0 {
		odd = append(odd, goOn)
	}
	return odd
}

// lastLaunch is the last launch of a process.
func (p *processLife) lastLaunch() *callRef {
	var last *callRef
	for _, stream := range slices.Sorted(maps.Keys(p.streams)) {
		if c := &p.streams[stream][len(p.streams[stream])-1]; last == nil || c.startNs > last.startNs {
			last = c
		}
	}
	return last
}

// lastKernel names the kernel that a process launched last.
func (s *hangScan) lastKernel(p *processLife) string {
	c := p.lastLaunch()
	if c == nil {
		return ""
	}
	return s.kernelOf(c)
}
