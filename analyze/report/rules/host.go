package rules

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/hostcause"
	"github.com/gpurec/gpurec/analyze/units"
)

// minHostSharePct is the smallest share of time, %, that rules about the host report. The program becomes
// faster by about as much without the cause.
const minHostSharePct = 5.0

// lateHost has the time in which the host was late for a device, or launched nothing.
type lateHost struct {
	pid     int32
	where   string // the device, or the process
	entries []*hosttime.Entry
	spanNs  float64 // time between the first and the last operation, or launch
	idleNs  float64 // idle time of the GPU, or length of the gaps between launches
	// mostPct is the share of the time in which the GPU can have been idle at most, by its samples, in percent.
	mostPct float64
	isTimed bool // by GPU times
}

// readLateHosts finds what the host did while the GPU was idle, if the recording has rows of class host.
func (s *Scan) readLateHosts() error {
	if !hosttime.HasRows(s.t) {
		return nil
	}
	for _, d := range s.idle.Devices {
		s.lateHosts = append(s.lateHosts, lateHost{
			pid: d.Pid, where: s.t.OrdinalDeviceLabel(d.Pid, d.Device), entries: d.Host, spanNs: d.Time.SpanNs,
			idleNs: d.Time.Idle.ProbableNs, isTimed: true, mostPct: 100,
		})
	}
	if len(s.idle.Devices) > 0 {
		return nil
	}
	times, err := s.gaps.FindHostTime()
	for i := range times {
		h := &times[i]
		late := lateHost{
			pid: h.Track.Pid, where: s.t.PidLabel(h.Track.Pid), entries: h.Entries, idleNs: h.TotalNs,
			spanNs: float64(s.gaps.RecordedNs(h.Track)), mostPct: 100,
		}
		for device, tracks := range s.tracksByGPU {
			isOfProcess := slices.ContainsFunc(tracks, func(d gaps.DeviceTrack) bool { return d.Pid == h.Track.Pid })
			if _, mostPct, ok := s.idlePctOf(device); ok && isOfProcess {
				late.mostPct = min(late.mostPct, mostPct)
			}
		}
		s.lateHosts = append(s.lateHosts, late)
	}
	return err
}

// newHostRule returns a rule about a cause on the host. does names what the host did.
func newHostRule(id, about, does, advice string, is func(*hosttime.Entry) bool) Rule {
	return Rule{
		ID: id,
		About: about + " for at least 5% of the time between the first and the last operation of a GPU, while the " +
			"GPU was idle; without GPU times, between launches. Needs rows of class host",
		Report:    "gaps",
		needsHost: true,
		advice:    advice,
		check:     func(s *Scan) ([]Hit, error) { return s.findLateHost(does, is), nil },
	}
}

// findLateHost returns a hit for each device or process whose time with a cause is large enough.
func (s *Scan) findLateHost(does string, is func(*hosttime.Entry) bool) (hits []Hit) {
	for i := range s.lateHosts {
		h := &s.lateHosts[i]
		ns, certainNs := 0.0, 0.0
		for _, e := range h.entries {
			if is(e) {
				ns, certainNs = ns+e.Ns, certainNs+e.CertainNs
			}
		}
		share := min(h.mostPct, 100*ns/max(1, h.spanNs))
		if h.spanNs < minTimedSpanNs || share < minHostSharePct {
			continue
		}
		hit := s.newHit(SeverityNotice, "%s for %.1f%% of the time, which is %.0f%% of the idle time", does,
			share, min(100, 100*ns/max(1, h.idleNs)))
		hit.pid, hit.sharePct = h.pid, share
		if !h.isTimed {
			hit.lowerConfidence(report.ConfidenceMedium, "there are no GPU times, so the GPU may have been busy")
		}
		if 2*certainNs < ns {
			hit.lowerConfidence(report.ConfidenceMedium, "most of the time is estimated")
		}
		hit.Evidence = s.hostEvidence(h, is)
		hits = append(hits, hit)
	}
	return hits
}

// hostEvidence returns the longest entries of a cause as evidence.
func (s *Scan) hostEvidence(h *lateHost, is func(*hosttime.Entry) bool) (list []Evidence) {
	for _, e := range h.entries {
		if !is(e) || len(list) == maxCauses {
			continue
		}
		evidence := Evidence{
			Where: h.where, Stack: e.Stack, Count: e.Spans, Ns: units.RoundInt(e.Ns), FirstNs: e.LongestFromNs,
			Detail: fmt.Sprintf("the host %s, at most %s", hostcause.Predicate(s.t, e),
				units.FormatDuration(e.LongestNs)),
		}
		if e.Stack != 0 {
			evidence.Where = s.t.SiteOfStack(e.Stack)
		}
		if why := hostcause.Evidence(s.t, e); why != "" {
			evidence.Detail += "; " + why
		}
		list = append(list, evidence)
	}
	return list
}

// isCause returns a condition for entries with a cause, outside of the data loader.
func isCause(c hosttime.Cause) func(*hosttime.Entry) bool {
	return func(e *hosttime.Entry) bool { return e.Cause == c && !e.InLoader && !e.Chain.InLoader }
}

var dataLoaderRule = newHostRule("dataloader-bound",
	"the launching thread waits for the workers of a DataLoader, or reads the data set itself,",
	"the host waits for the DataLoader",
	"Raise num_workers and prefetch_factor, set pin_memory=True and persistent_workers=True, and make the line "+
		"that the workers run faster.",
	func(e *hosttime.Entry) bool { return e.Cause == hosttime.CauseLoader || e.InLoader || e.Chain.InLoader })

var gcPauseRule = newHostRule("gc-pause",
	"the launching thread collects garbage",
	"Python collects garbage",
	"Call gc.freeze() after the setup, and gc.disable() around the step with gc.collect() at a time of your choice. "+
		"Create fewer objects that refer to each other.",
	isCause(hosttime.CauseGC))

var gilRule = newHostRule("gil-bound",
	"the launching thread waits for Python's global interpreter lock",
	"the host waits for the GIL",
	"Move the work of the thread that holds the lock to another process, or to code that releases the lock.",
	isCause(hosttime.CauseGIL))

var cpuThrottledRule = newHostRule("cpu-throttled",
	"the CPU limit of a cgroup holds the launching thread up",
	"the CPU limit stops the host",
	"Raise the CPU limit of the container, or use fewer threads: OMP_NUM_THREADS, and num_workers of DataLoaders.",
	isCause(hosttime.CauseThrottled))

var oversubscribedRule = newHostRule("oversubscribed-cpu",
	"the launching thread waits for a processor",
	"the host waits for a CPU",
	"Run fewer threads: set OMP_NUM_THREADS and num_workers to what the processors can run. Keep other programs "+
		"off these processors with taskset or cpusets.",
	isCause(hosttime.CauseRunQueue))

var ioBoundRule = newHostRule("io-bound",
	"the launching thread waits for files or disks",
	"the host waits for files",
	"Read the files in other threads or processes ahead of time, and keep them on a local disk or in a cache.",
	isCause(hosttime.CauseFile))
