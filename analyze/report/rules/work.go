package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// minUnpinnedCopies is the smallest number of copies at one call site that rule
// memcpy-async-pageable reports.
const minUnpinnedCopies = 10

var pageableCopyRule = Rule{
	ID: "memcpy-async-pageable",
	About: "a call site makes 10 or more async copies of at least 64 KiB each with host memory that no recorded call " +
		"pinned. Memory may have been pinned before the recording. So if the processes were not recorded from their " +
		"first call, at least half of the copies of 1 MiB or more must also block the thread. Blocking means to take " +
		"at least as long as the fastest link (64 GB/s)",
	Report: "copies",
	advice: "With pageable host memory an async copy blocks the thread while the driver stages the data. Pin the " +
		"memory: pin_memory=True, cudaMallocHost or cudaHostRegister.",
	check: checkPageableCopies,
}

func checkPageableCopies(s *Scan) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	fromStart := s.recordedFromStart()
	var copies, bytes int64
	for key, c := range s.copies.Sites {
		blocks := c.Measurable >= minUnpinnedCopies && 2*c.Stuck >= c.Measurable
		if c.Unpinned < minUnpinnedCopies || !blocks && (!fromStart || c.Measurable >= minUnpinnedCopies) {
			continue
		}
		copies, bytes = copies+c.Unpinned, units.EndOfRange(bytes, c.UnpinnedBytes)
		detail := key.Direction + ", host memory not pinned by a recorded call"
		if blocks {
			detail += fmt.Sprintf(
				"; %s of %s copies of 1 MiB or more blocked the thread",
				units.FormatCount(c.Stuck),
				units.FormatCount(c.Measurable),
			)
		}
		h.Evidence = append(h.Evidence, Evidence{
			Where:   s.copies.Names.List[key.Site],
			Stack:   c.Stack,
			Count:   c.Unpinned,
			Ns:      c.UnpinnedNs,
			Bytes:   c.UnpinnedBytes,
			FirstNs: c.FirstNs,
			lastNs:  c.LastNs,
			Detail:  detail,
		})
	}
	if len(h.Evidence) == 0 {
		return nil, nil
	}
	if !fromStart {
		h.lowerConfidence(
			report.ConfidenceMedium,
			"the recording began after the program, so memory may have been pinned before",
		)
	}
	s.lowerConfidenceForInferredStacks(&h)
	sortEvidence(h.Evidence)
	h.Summary = fmt.Sprintf(
		"%s async copies with pageable memory, %s",
		units.FormatCount(copies),
		units.FormatBytes(bytes),
	)
	return []Hit{h}, nil
}

// minBurstCopies is the smallest number of copies in bursts that rule small-copies reports. At
// about 10 us each they take 5 ms.
const minBurstCopies = 500

var smallCopyRule = Rule{
	ID: "small-copies",
	About: "there are at least 500 copies of less than 4 KiB in bursts. A burst is 50 or more copies by one thread " +
		"within 10 ms: see analyze copies",
	Report: "copies",
	advice: "Each copy takes about 10 us, however small it is. Collect the values in one buffer, and copy the buffer.",
	check:  checkSmallCopies,
}

func checkSmallCopies(s *Scan) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	var copies, bursts int64
	for key, b := range s.copies.Bursts {
		copies, bursts = copies+b.Copies, bursts+b.Bursts
		h.Evidence = append(h.Evidence, Evidence{
			Where:   s.copies.Names.List[key.Site],
			Stack:   b.Stack,
			Count:   b.Copies,
			FirstNs: b.FirstNs,
			lastNs:  b.LastNs,
			Detail: fmt.Sprintf(
				"%s, the largest with %s copies, by thread %s",
				units.CountWithNoun(b.Bursts, "burst"),
				units.FormatCount(b.Most),
				s.t.ThreadLabel(key.Thread),
			),
		})
	}
	if copies < minBurstCopies {
		return nil, nil
	}
	s.lowerConfidenceForInferredStacks(&h)
	sortEvidence(h.Evidence)
	h.Summary = fmt.Sprintf("%s small copies in %s", units.FormatCount(copies), units.CountWithNoun(bursts, "burst"))
	return []Hit{h}, nil
}

// idleAfterWaitNs estimates how long the GPU is idle after each wait, ns: until the thread is
// scheduled again and its next launch reaches the GPU.
const idleAfterWaitNs = 20_000

var syncLoopRule = Rule{
	ID: "sync-in-loop",
	About: "a call site waits for the GPU in loops at least 500 times per second. A loop is 20 or more waits by one " +
		"thread within a second: see analyze sync. " +
		"After each wait the GPU is idle for about 20 us, here 1% of the time or more",
	Report: "sync",
	advice: "Wait once for many launches: remove item(), print and synchronize from the inner loop. To order work " +
		"between streams, use CUDA events instead of waits.",
	check: checkSyncLoop,
}

func checkSyncLoop(s *Scan) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	var loopWaits int64
	for key, w := range s.waits.Groups {
		span := s.sumThreadSpansNs(w.Threads)
		if w.LoopWaits < waits.MinLoopWaits || units.Percent(w.LoopWaits*idleAfterWaitNs, span) < minTimeSharePct {
			continue
		}
		loopWaits += w.LoopWaits
		h.sharePct = max(h.sharePct, units.Percent(w.LoopWaits*idleAfterWaitNs, span))
		h.Evidence = append(h.Evidence, Evidence{
			Where:   s.waits.Names.List[key.Site],
			Stack:   w.Stack,
			Count:   w.LoopWaits,
			Ns:      w.Took.Total(),
			FirstNs: w.FirstNs,
			lastNs:  w.LastNs,
			Detail: fmt.Sprintf(
				"%s, %s per second, %s on average",
				s.waits.Names.List[key.Name],
				units.FormatRate(float64(w.LoopWaits)/(float64(max(1, span))/1e9)),
				report.UnitNs.FormatValue(w.Took.Average()),
			),
		})
	}
	if len(h.Evidence) == 0 {
		return nil, nil
	}
	sortEvidence(h.Evidence)
	h.Summary = fmt.Sprintf("%s for the GPU in loops", units.CountWithNoun(loopWaits, "wait"))
	return []Hit{h}, nil
}

const (
	// minTinyLaunchesPerSecond is the smallest number of tiny launches per second that rule
	// tiny-kernels reports. At about 5 us each they take 1% of the time.
	minTinyLaunchesPerSecond = 2000.0
	// minTinyLaunchSharePct is the smallest share of tiny launches in all launches, %. A few small
	// kernels between large ones are normal.
	minTinyLaunchSharePct = 50.0
)

var tinyKernelRule = Rule{
	ID: "tiny-kernels",
	About: "at least half of the kernel launches are tiny, with fewer than 8,192 threads, and there are 2,000 or " +
		"more of them per second: see analyze kernels. With GPU times, the CPU must also limit the program at some " +
		"time",
	Report: "kernels",
	advice: "Tiny kernels usually take longer to launch than to run. Fuse them (torch.compile, foreach optimizers), " +
		"batch the work, or use a CUDA graph.",
	check: checkTinyKernels,
}

func checkTinyKernels(s *Scan) ([]Hit, error) {
	var sum kernels.LaunchStats
	var unknown int64
	type kernelAt struct{ kernel, site int32 }
	found := make(map[kernelAt]*kernels.LaunchStats)
	for key, l := range s.kernels.Counts {
		sum.Merge(l)
		if l.Tiny > 0 {
			kernels.StatsEntry(found, kernelAt{key.Kernel, key.Site}).Merge(l)
		}
	}
	var span int64
	for key, track := range s.gaps.Tracks {
		span, unknown = max(span, s.gaps.RecordedNs(key)), unknown+track.Unreturned
	}
	perSec := float64(sum.Tiny) / (float64(max(1, span)) / 1e9)
	if perSec < minTinyLaunchesPerSecond || units.Percent(sum.Tiny, sum.Sized) < minTinyLaunchSharePct {
		return nil, nil
	}
	if s.limitsNowhere() {
		return nil, nil // the GPU has enough work in its queue
	}
	h := s.newHit(
		SeverityNotice,
		"%.0f%% of %s launches are tiny, %s per second",
		units.Percent(sum.Tiny, sum.Sized),
		units.FormatCount(sum.Launches),
		units.FormatRate(perSec),
	)
	for key, l := range found {
		h.Evidence = append(h.Evidence, Evidence{
			Where: s.kernels.Names.List[key.site],
			Count: l.Tiny,
			Ns:    l.HostTotalNs(),
			Detail: fmt.Sprintf(
				"%s, %s threads on average",
				symbolize.ShortKernel(s.kernels.Names.List[key.kernel]),
				units.FormatCount(l.Threads/max(1, l.Sized)),
			),
		})
	}
	s.lowerConfidenceForMissingReturns(&h, unknown, sum.Launches)
	s.lowerConfidenceForInferredStacks(&h)
	slices.SortFunc(h.Evidence, func(a, b Evidence) int {
		return cmp.Or(
			report.CompareCells(a.Count, b.Count),
			strings.Compare(a.Where, b.Where),
			strings.Compare(a.Detail, b.Detail),
		)
	})
	h.Evidence = lineFirst(h.Evidence)
	return []Hit{h}, nil
}

const (
	// minLaunchesPerSecond is a rate of launches that can keep a thread busy. In PyTorch one launch
	// takes 20 us or more of Python and C++, in a loop in C about 3 us.
	minLaunchesPerSecond = 5000.0
	// minCloseLaunchSharePct is the smallest share of launches, %, that follow the previous launch
	// within 100 us.
	minCloseLaunchSharePct = 80.0
	// minTrackLaunches is the smallest number of launches of a track that rule launch-bound
	// reports.
	minTrackLaunches = 5000
	// maxWaitTimeSharePct is the largest share of time, %, that a launch-bound process waits for
	// the GPU. It is not 0 because any program that reads its loss waits for the last launches of
	// each step.
	maxWaitTimeSharePct = 20.0
)

var launchBoundRule = Rule{
	ID: "launch-bound",
	About: "a process launches 5,000 kernels or more per second, 80% of them within 100 us of the previous launch, " +
		"but the GPU is less than 50% busy. Busy is SM activity (GPM), or else GPU utilization, if sampled. With GPU " +
		"times, the CPU must limit the program for at least half of the time instead: see analyze gaps. " +
		"The process waits for the GPU less than 20% of that time",
	Report: "gaps",
	advice: "The GPU finishes kernels faster than the CPU launches them. Put the step into a CUDA graph " +
		"(torch.compile(mode='reduce-overhead')), fuse kernels, or use larger batches.",
	check: checkLaunchBound,
}

func checkLaunchBound(s *Scan) ([]Hit, error) {
	var hits []Hit
	for _, track := range s.gaps.SortedTracks() {
		l := s.gaps.Tracks[track]
		apart := int64(0)
		for i, n := range l.ByLength {
			if gaps.LengthClasses[i].BelowNs > 100e3 {
				apart += n.Count
			}
		}
		perSec := float64(l.Launches) / (float64(max(1, s.gaps.RecordedNs(track))) / 1e9)
		if track.Device == gaps.AllDevicesOfProcess || l.Launches < minTrackLaunches || perSec < minLaunchesPerSecond ||
			units.Percent(l.Launches-apart, l.Launches) < minCloseLaunchSharePct {
			continue
		}
		h := s.newHit(SeverityNotice, "")
		text, ok := s.describeTimedGPU(track, &h)
		if text == "" {
			text, ok = s.describeUnderusedGPU(track, &h)
		}
		if !ok {
			continue
		}
		h.pid = track.Pid
		h.Summary = fmt.Sprintf("%s launches per second, %s", units.FormatRate(perSec), text)
		h.Evidence = s.launchSiteEvidence(track)
		s.lowerConfidenceForMissingReturns(&h, l.Unreturned, l.Launches)
		s.lowerConfidenceForInferredStacks(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// describeTimedGPU reports whether the CPU limits the program by GPU times. It returns "" if they do not
// determine it.
func (s *Scan) describeTimedGPU(track gaps.DeviceTrack, h *Hit) (text string, ok bool) {
	d := s.idleDeviceOf(track)
	if d == nil {
		return "", false
	}
	low, _, high := d.Time.BusyPct()
	if d.IsLimited() {
		h.lowerConfidence(report.ConfidenceMedium, "GPU times bound the durations of kernels only")
	}
	cpuPct, _ := boundShares(d)
	return fmt.Sprintf(
		"while the GPU is %.0f%% to %.0f%% busy, and its queue mostly empty for %.0f%% of the time, by GPU times",
		low,
		high,
		cpuPct,
	), cpuPct >= minCPUBoundPct
}

// describeUnderusedGPU reports whether the process of a launch track hardly waits for the GPU
// although the GPU is not busy. text describes how busy the GPU is. Without samples of the GPU it
// lowers the confidence of h.
func (s *Scan) describeUnderusedGPU(track gaps.DeviceTrack, h *Hit) (text string, ok bool) {
	var waited int64
	for th, w := range s.waits.Threads {
		if th.Pid == track.Pid {
			waited = units.EndOfRange(waited, w.WaitNs)
		}
	}
	l := s.gaps.Tracks[track]
	pct := units.Percent(waited, l.UntilNs-l.FirstNs)
	if pct >= maxWaitTimeSharePct {
		return "", false
	}
	if index, ok := s.t.Facts.NVMLIndexOf(track.Pid, track.Device); ok {
		if samples := s.samplesBetweenLaunches(index, catalog.MetricSMActive); samples != nil {
			return fmt.Sprintf(
				"while %s of the SMs are active",
				roundShare(samples.Mean()),
			), samples.Mean() < lowGPUActivityPct
		}
		if samples := s.samplesBetweenLaunches(index, catalog.MetricGPUUtilization); samples != nil {
			return fmt.Sprintf(
				"while a kernel runs %.0f%% of the time",
				samples.Mean(),
			), samples.Mean() < lowGPUActivityPct
		}
	}
	h.lowerConfidence(report.ConfidenceLow, "there are no samples of how busy this GPU was")
	return fmt.Sprintf("and the process waits for the GPU only %.1f%% of that time", pct), true
}

// roundShare returns a share, %, that is never rounded to zero.
func roundShare(pct float64) string {
	if pct > 0 && pct < 1 {
		return "less than 1%"
	}
	return fmt.Sprintf("%.0f%%", pct)
}

// launchSiteEvidence returns, as evidence, the call sites that launch kernels on a track.
func (s *Scan) launchSiteEvidence(track gaps.DeviceTrack) []Evidence {
	found := make(map[int32]*kernels.LaunchStats)
	for key, l := range s.kernels.Counts {
		if key.Pid == track.Pid && key.Device == track.Device {
			kernels.StatsEntry(found, key.Site).Merge(l)
		}
	}
	var list []Evidence
	for site, l := range found {
		list = append(
			list,
			Evidence{
				Where:  s.kernels.Names.List[site],
				Count:  l.Launches,
				Ns:     l.HostTotalNs(),
				Detail: fmt.Sprintf("launches, %.0f%% of them tiny", units.Percent(l.Tiny, l.Sized)),
			},
		)
	}
	slices.SortFunc(list, func(a, b Evidence) int {
		return cmp.Or(report.CompareCells(a.Count, b.Count), strings.Compare(a.Where, b.Where))
	})
	return lineFirst(list)
}

// minLineShare is the share of the largest count from which on evidence with a line comes first.
const minLineShare = 0.25

// linePattern matches a place with a file and a line.
var linePattern = regexp.MustCompile(`\([^()]+:\d+\)$`)

// lineFirst moves the first evidence with a line to the front of evidence sorted by count. Half of the launches of
// a PyTorch program come from threads of autograd, which have no line.
func lineFirst(list []Evidence) []Evidence {
	i := slices.IndexFunc(list, func(e Evidence) bool { return linePattern.MatchString(e.Where) })
	if i > 0 && float64(list[i].Count.(int64)) >= minLineShare*float64(list[0].Count.(int64)) {
		first := list[i]
		copy(list[1:i+1], list[:i])
		list[0] = first
	}
	return list
}

// minLateModuleLoads is the smallest number of loads at one call site, in the second half of the
// time, that rule module-load-in-loop reports.
const minLateModuleLoads = 20

var moduleLoopRule = Rule{
	ID: "module-load-in-loop",
	About: "a call site loads code (cuModuleLoad..., cuLibraryLoad...) 20 times or more in the second half of the " +
		"time, and at least half as often as in the first half. So this is no warm-up",
	Report: "api --group-by site",
	advice: "Loading code takes milliseconds and can wait for the GPU. Keep the module or the compiled function, and " +
		"find out why the program compiles or loads it again.",
	check: checkModuleLoop,
}

func checkModuleLoop(s *Scan) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	var loads int64
	for site, m := range s.modules.Sites {
		if m.Late < minLateModuleLoads || 2*m.Late < m.Loads-m.Late {
			continue
		}
		loads += m.Loads
		h.Evidence = append(h.Evidence, Evidence{
			Where:   s.modules.Names.List[site],
			Stack:   m.Stack,
			Count:   m.Loads,
			Ns:      m.TookNs,
			FirstNs: m.FirstNs,
			lastNs:  m.LastNs,
			Detail: fmt.Sprintf(
				"%s, %s of them in the second half of the time",
				s.modules.Names.List[m.Name],
				units.FormatCount(m.Late),
			),
		})
	}
	if len(h.Evidence) == 0 {
		return nil, nil
	}
	s.lowerConfidenceForInferredStacks(&h)
	sortEvidence(h.Evidence)
	h.Summary = fmt.Sprintf("code loaded %d times, not only at the start", loads)
	return []Hit{h}, nil
}
