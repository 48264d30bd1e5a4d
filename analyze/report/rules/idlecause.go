package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/hostcause"
	"github.com/gpurec/gpurec/analyze/units"
)

// idleCauses are the causes of the idle time of a GPU, the longest first.
type idleCauses struct {
	list   []idleCause
	idleNs float64 // the time to explain
}

// idleCause is one cause of the idle time of a GPU.
type idleCause struct {
	text string // a noun phrase: what happened instead
	// isOfHost reports that the rule says no more than the share of the time.
	isOfHost bool
	// isOfRanks reports that the rule may be about another process of the job.
	isOfRanks bool
	advice    string
	rules     []*Rule
	ns        float64
	place     string // the line with the most time; "": unknown
	stack     int32
	mostNs    float64 // time at place
	atNs      int64   // Unix ns of an occurrence there; 0: unknown
}

// add adds time at a line to a cause.
func (c *idleCause) add(ns float64, place string, stack int32, atNs int64) {
	c.ns += ns
	if ns > c.mostNs {
		c.mostNs, c.place, c.stack, c.atNs = ns, place, stack, atNs
	}
}

// pidOfRule returns the process whose hits of the rules explain the idle GPU of a process, 0 for any.
func (c *idleCause) pidOfRule(pid int32) int32 {
	if c.isOfRanks {
		return 0
	}
	return pid
}

// sharePct returns the share of the idle time that a cause explains, in percent.
func (c *idleCauses) sharePct(of *idleCause) float64 { return min(100, 100*of.ns/max(1, c.idleNs)) }

// named returns the causes that a headline names.
func (c *idleCauses) named() []idleCause {
	n := 1
	for n < min(len(c.list), maxNamedCauses) && c.sharePct(&c.list[n]) >= minFurtherPct {
		n++
	}
	return c.list[:n]
}

// text names the causes with their shares, and the share that none of them explains.
func (c *idleCauses) text() string {
	var parts []string
	leftPct := 100.0
	for i, cause := range c.named() {
		pct := c.sharePct(&cause)
		leftPct -= pct
		text := fmt.Sprintf("%s %.0f%%", cause.text, pct)
		switch {
		case i == 0:
			text = fmt.Sprintf("%s, %.0f%% of it", cause.text, pct)
		case cause.place != "" && len(cause.rules) == 0:
			text = fmt.Sprintf("%s at %s %.0f%%", cause.text, cause.place, pct)
		}
		parts = append(parts, text)
	}
	if leftPct >= 1 {
		parts = append(parts, fmt.Sprintf("not explained %.0f%%", leftPct))
	}
	return strings.Join(parts, "; ")
}

// evidence returns a cause as a row of evidence.
func (c *idleCause) evidence(all *idleCauses) Evidence {
	return Evidence{
		Where: cmp.Or(c.place, "unknown line"), Stack: c.stack, Ns: units.RoundInt(c.ns), FirstNs: c.atNs,
		Detail: fmt.Sprintf("%s, %.0f%% of the idle time", c.text, all.sharePct(c)),
	}
}

// evidenceFirst returns evidence with the line of the cause first.
func (c *idleCause) evidenceFirst(list []Evidence) []Evidence {
	if i := slices.IndexFunc(list, func(e Evidence) bool { return e.Where == c.place }); i > 0 {
		first := list[i]
		return append([]Evidence{first}, slices.Delete(slices.Clone(list), i, i+1)...)
	}
	return list
}

// hostCause describes what a host does while the GPU is idle.
type hostCause struct {
	text, advice string
	// ofOther joins text with the name of another thread that did it.
	ofOther string
	rule    *Rule // nil: no rule is about it
}

// otherThreadCause describes a wait for a lock or a condition whose owner is unknown.
var otherThreadCause = hostCause{
	text: "waits for another thread",
	advice: "Find out what the other threads do meanwhile (gpurec analyze cpu), and make the one that ends the wait " +
		"faster.",
}

// otherWorkCause describes work of another thread, for which the host waits.
var otherWorkCause = hostCause{
	text: "work", ofOther: "of",
	advice: "Make this line faster, let that thread work ahead, or divide its work among several threads.",
}

// rankCause describes a wait in a collective on the host.
var rankCause = hostCause{
	text: "waits for other ranks",
	advice: "Find out which rank is late (gpurec analyze ranks). If none is, communicate less often, or overlap " +
		"it with the computation.",
}

// hostCauses describes what a host can do while the GPU is idle. Causes without a rule are kept apart by line.
var hostCauses = [hosttime.Causes]hostCause{
	hosttime.CauseLoader:    {text: "the DataLoader", rule: &dataLoaderRule},
	hosttime.CauseGC:        {text: "garbage collection", rule: &gcPauseRule},
	hosttime.CauseGIL:       {text: "waits for the GIL", rule: &gilRule},
	hosttime.CauseRunQueue:  {text: "waits for a CPU", rule: &oversubscribedRule},
	hosttime.CauseThrottled: {text: "the CPU limit", rule: &cpuThrottledRule},
	hosttime.CauseFile:      {text: "waits for files", rule: &ioBoundRule},
	hosttime.CauseCPU: {
		text:   "the host's own work",
		advice: "Make this line faster, move it to another thread or process, or do it while the GPU works.",
	},
	hosttime.CauseDriver: {
		text:   "calls of the CUDA driver",
		advice: "Call the driver less often here: fuse kernels, use a CUDA graph, or allocate once.",
	},
	hosttime.CauseLock: {
		text:    "waits for a lock",
		ofOther: "by",
		advice:  "Find the thread that holds the lock or ends the wait (gpurec analyze gaps), and make it faster.",
	},
	hosttime.CauseNetwork: {
		text:    "waits for the network",
		ofOther: "by",
		advice:  "Receive the data in another thread or process, ahead of time.",
	},
	hosttime.CausePipe: {
		text:    "waits for a pipe",
		ofOther: "by",
		advice:  "Look at the program at the other end of the pipe, and let it work ahead.",
	},
	hosttime.CauseSleep: {
		text:    "sleep",
		ofOther: "of",
		advice:  "Remove the sleep, or wait for the event itself.",
	},
	hosttime.CauseChild: {
		text:    "waits for a child process",
		ofOther: "by",
		advice:  "Start the child process ahead of time, or do its work on another thread.",
	},
	hosttime.CauseStopped: {
		text:    "the process was stopped",
		ofOther: "with",
		advice:  "Find out who stops the process: a debugger, a job scheduler, or a checkpoint tool.",
	},
	hosttime.CauseQueue: {
		text:    "waits for another process's queue",
		ofOther: "by",
		advice:  "Make the process that fills the queue faster, or let it work ahead.",
	},
}

// driverCauses describes calls of the driver in which the host spends the idle time, by the beginning of their names.
var driverCauses = []struct {
	prefixes []string
	text     string
	advice   string
	rules    []*Rule
}{
	{
		[]string{"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap"},
		"allocating and freeing memory", allocLoopRule.advice,
		[]*Rule{&allocLoopRule},
	},
	{
		[]string{"cuModuleLoad", "cuLibraryLoad", "cuModuleGet", "cuLibraryGet", "cuLinkComplete"},
		"loading code", moduleLoopRule.advice,
		[]*Rule{&moduleLoopRule},
	},
	{
		[]string{"cuMemcpy"},
		"calls that copy", pageableCopyRule.advice,
		[]*Rule{&pageableCopyRule, &smallCopyRule},
	},
}

// idleCauseSet collects the causes of an idle GPU.
type idleCauseSet struct {
	causes map[string]*idleCause // by text, and by line for causes without a rule
	pid    int32                 // process whose host is late
}

// cause returns the cause with a key.
func (c *idleCauseSet) cause(key, text, advice string, rules ...*Rule) *idleCause {
	found := c.causes[key]
	if found == nil {
		found = &idleCause{text: text, advice: advice, rules: rules}
		c.causes[key] = found
	}
	return found
}

// longPauseNs is the mean length of pauses from which on the work between two launches has a cause of its own. Shorter
// pauses are the price of launching. Rule launch-bound has the same limit for launches back to back.
const longPauseNs = 100_000

// addLaunching adds pauses before launches that are as long as launching takes.
func (c *idleCauseSet) addLaunching(ns float64, place string, stack int32, atNs int64) {
	c.cause("launch", "launching kernels", launchBoundRule.advice, &launchBoundRule, &tinyKernelRule).
		add(ns, place, stack, atNs)
}

// addHost adds what the host did, multiplied by scale.
func (c *idleCauseSet) addHost(s *Scan, e *hosttime.Entry, scale float64) {
	about, text, place := s.aboutHost(c.pid, e), "", ""
	if text = about.text; e.Chain.IsOther() && about.rule == nil && about != &rankCause {
		text += " " + about.ofOther + " " + hostcause.EndText(s.t, &e.Chain)
	}
	if e.Stack != 0 {
		place = s.t.SiteOfStack(e.Stack)
	}
	switch {
	case about.text == "":
		return
	case e.Cause.IsRunning() && !e.Chain.IsOther() && e.Ns < longPauseNs*float64(e.Spans):
		c.addLaunching(e.Ns*scale, place, e.Stack, e.LongestFromNs)
	case about == &rankCause:
		cause := c.cause(about.text, about.text, about.advice, &stragglerRule)
		cause.isOfRanks = true
		cause.add(e.Ns*scale, place, e.Stack, e.LongestFromNs)
	case about.rule != nil:
		cause := c.cause(about.text, about.text, about.rule.advice, about.rule)
		cause.isOfHost = true
		cause.add(e.Ns*scale, place, e.Stack, e.LongestFromNs)
	case place != "":
		c.cause(text+" "+place, text, about.advice).add(e.Ns*scale, place, e.Stack, e.LongestFromNs)
	}
}

// aboutHost describes what a host did that was late. With a chain of wakers, its end counts; the own wait tells waits
// for ranks and for a data loader.
func (s *Scan) aboutHost(pid int32, e *hosttime.Entry) *hostCause {
	ownCause, ownStack := e.Cause, e.Stack
	if e.Chain.IsOther() {
		ownCause, ownStack = e.Chain.Cause, e.Chain.Stack
	}
	switch {
	case !ownCause.IsRunning() && ownCause != hosttime.CauseCUDA && s.rankWaits.isForRanks(pid, ownStack):
		return &rankCause
	case e.InLoader, e.Chain.InLoader:
		return &hostCauses[hosttime.CauseLoader]
	case e.Chain.IsOther() && e.Cause.IsRunning():
		return &otherWorkCause
	case e.Cause == hosttime.CauseLock && e.Owner.Tid == 0:
		return &otherThreadCause
	}
	return &hostCauses[e.Cause]
}

// addDriverCall adds time in a call of the driver.
func (c *idleCauseSet) addDriverCall(name string, ns float64, place string, stack int32, atNs int64) {
	for i := range driverCauses {
		d := &driverCauses[i]
		if slices.ContainsFunc(d.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			c.cause(d.text, d.text, d.advice, d.rules...).add(ns, place, stack, atNs)
			return
		}
	}
	c.cause(name+" "+place, "calls of "+name, "Call "+name+" less often, or on another thread.").
		add(ns, place, stack, atNs)
}

// sorted returns the causes, the longest first. idleNs is the time to explain.
func (c *idleCauseSet) sorted(idleNs float64) *idleCauses {
	all := &idleCauses{idleNs: idleNs}
	for _, key := range slices.Sorted(maps.Keys(c.causes)) {
		all.list = append(all.list, *c.causes[key])
	}
	slices.SortStableFunc(all.list, func(a, b idleCause) int { return cmp.Compare(b.ns, a.ns) })
	return all
}

// idleCausesOf returns the causes of the idle time of a hit of rule gpu-idle.
func (s *Scan) idleCausesOf(h *Hit) *idleCauses {
	set := &idleCauseSet{causes: make(map[string]*idleCause), pid: h.pid}
	if h.idleDevice != nil {
		set.pid = h.idleDevice.Pid
		set.addDevice(s, h.idleDevice)
		return set.sorted(h.idleDevice.Time.Idle.ProbableNs)
	}
	idleNs := 0.0
	for i := range s.lateHosts {
		if l := &s.lateHosts[i]; l.pid == h.pid {
			for _, e := range l.entries {
				set.addHost(s, e, 1)
				if e.Cause != hosttime.CauseCUDA { // the GPU works
					idleNs += e.Ns
				}
			}
		}
	}
	if len(s.lateHosts) == 0 {
		idleNs = set.addLaunchGaps(s, h.pid)
	}
	return set.sorted(idleNs)
}

// isOtherWork reports whether an entry says no more than the reasons of gaps do: the thread ran, or nothing is known.
func isOtherWork(e *hosttime.Entry) bool {
	return !e.InLoader && !e.Chain.IsOther() &&
		(e.Cause.IsRunning() || e.Cause == hosttime.CauseCUDA || !e.Cause.IsKnown())
}

// addDevice adds the causes of a device with GPU times. Rows of class host say what the launching threads did in all gaps
// in which they were late, without the reason of the gap. So waits, locks and pauses count first. Then the threads ran:
// they launched, were in a call, or worked outside of CUDA.
func (c *idleCauseSet) addDevice(s *Scan, d *idle.Device) {
	var waitedNs, ranNs, outsideNs, insideNs float64
	for _, e := range d.Host {
		if isOtherWork(e) {
			ranNs += e.Ns
			continue
		}
		waitedNs += e.Ns
		c.addHost(s, e, 1)
	}
	for _, cause := range d.Causes {
		switch {
		case cause.Reason == idle.ReasonOutside:
			outsideNs += cause.Time.ProbableNs
		case cause.Reason.IsHost():
			insideNs += cause.Time.ProbableNs
		}
	}
	ranOutsideNs := max(0, outsideNs-waitedNs)
	if ranNs > 0 {
		for _, e := range d.Host {
			if isOtherWork(e) {
				c.addHost(s, e, ranOutsideNs/ranNs)
			}
		}
	}
	insideScale := max(0, min(1, (outsideNs+insideNs-waitedNs)/max(1, insideNs)))
	for _, cause := range d.Causes {
		c.addReason(s, cause, insideScale, len(d.Host) > 0)
	}
}

// addReason adds the gaps with one reason. insideScale is the share of the time of launches and calls in which the thread
// did not wait for something else. hasHost reports that rows of class host explain the time outside of CUDA.
func (c *idleCauseSet) addReason(s *Scan, cause *idle.Cause, insideScale float64, hasHost bool) {
	place, ns := "", cause.Time.ProbableNs
	if cause.Stack != 0 {
		place = s.t.SiteOfStack(cause.Stack)
	}
	switch cause.Reason {
	case idle.ReasonOutside:
		if !hasHost && ns < longPauseNs*float64(cause.Gaps) {
			c.addLaunching(ns, place, cause.Stack, cause.LongestFromNs)
		} else if !hasHost && place != "" {
			c.cause("outside "+place, "work on the host before a launch", gpuIdleRule.advice).
				add(ns, place, cause.Stack, cause.LongestFromNs)
		}
	case idle.ReasonCall:
		c.addDriverCall(cause.Name, ns*insideScale, place, cause.Stack, cause.LongestFromNs)
	case idle.ReasonWait:
		c.cause("wait", "waiting for the GPU before launches", syncLoopRule.advice, &syncLoopRule).
			add(ns*insideScale, place, cause.Stack, cause.LongestFromNs)
	case idle.ReasonLaunch:
		c.addLaunching(ns*insideScale, place, cause.Stack, cause.LongestFromNs)
	case idle.ReasonHostFunc:
		c.cause("function "+place, "a function on the host in the stream",
			"Make the function of cuLaunchHostFunc faster, or keep it out of this stream.").
			add(ns, place, cause.Stack, cause.LongestFromNs)
	}
}

// addLaunchGaps adds the gaps between launches of a process without GPU times and rows of class host. It returns the
// sum of the idle time in them.
func (c *idleCauseSet) addLaunchGaps(s *Scan, pid int32) (idleNs float64) {
	for i := range s.gaps.List {
		g := &s.gaps.List[i]
		if g.Track.Pid != pid || g.Busy.GPUState() == gaps.GPUStateBusy {
			continue
		}
		activity, ns := longestIdleActivity(g)
		idleNs += float64(ns)
		if activity != gaps.ActivityOutsideCUDA {
			c.addDriverCall(activity, float64(ns), g.Activity.Site, g.Activity.Longest.Stack, g.FromNs)
		}
	}
	return idleNs
}
