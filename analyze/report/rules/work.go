package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	waitspkg "github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// unpinnedCopies is the number of copies below which a call site is not judged.
const unpinnedCopies = 10

var rulePageable = Rule{
	ID: "memcpy-async-pageable",
	About: "10 async copies or more of one place, of 64 KiB and more each, with host memory that is not known to be " +
		"pinned. Memory may have been pinned before the recording: unless the " +
		"processes were recorded from their first call, at least half of the copies of 1 MiB and more must have " +
		"taken as long as the fastest link (64 GB/s) takes, which pinned ones do not",
	Report: "copies",
	advice: "An async copy from or to pageable memory blocks and is staged by the driver. Pin the memory: " +
		"pin_memory=True, cudaMallocHost or cudaHostRegister.",
	check: checkPageable,
}

func checkPageable(s *Survey) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	fromStart := s.fromStart()
	var copies, bytes int64
	for key, c := range s.copies.Sites {
		blocks := c.Measurable >= unpinnedCopies && 2*c.Stuck >= c.Measurable
		if c.Unpinned < unpinnedCopies || !blocks && (!fromStart || c.Measurable >= unpinnedCopies) {
			continue
		}
		copies, bytes = copies+c.Unpinned, units.EndOf(bytes, c.UnpinnedBytes)
		detail := key.Direction + ", no memory known to be pinned"
		if blocks {
			detail += fmt.Sprintf(
				"; %s of %s of 1 MiB and more returned no sooner than the data was there",
				units.Count(c.Stuck),
				units.Count(c.Measurable),
			)
		}
		h.Places = append(h.Places, Place{
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
	if len(h.Places) == 0 {
		return nil, nil
	}
	if !fromStart {
		h.lower(report.ConfidenceMedium, "the recording began after the program: memory pinned before looks the "+
			"same, but for the time that its copies take")
	}
	s.bySite(&h)
	sortPlaces(h.Places)
	h.What = fmt.Sprintf("%s async copies with pageable memory, %s", units.Count(copies), units.Bytes(bytes))
	return []Hit{h}, nil
}

// burstsWorth is the number of copies in bursts that is worth a hit: at some 10 us each, 5 ms.
const burstsWorth = 500

var ruleSmallCopies = Rule{
	ID: "small-copies",
	About: "at least 500 copies of less than 4 KiB in bursts of 50 and more within 10 ms by one thread, as analyze " +
		"copies counts them",
	Report: "copies",
	advice: "Each copy costs some 10 us, however small. Put the values into one buffer and copy that.",
	check:  checkSmallCopies,
}

func checkSmallCopies(s *Survey) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	var copies, bursts int64
	for key, b := range s.copies.Bursts {
		copies, bursts = copies+b.Copies, bursts+b.Bursts
		h.Places = append(h.Places, Place{
			Where:   s.copies.Names.List[key.Site],
			Stack:   b.Stack,
			Count:   b.Copies,
			FirstNs: b.FirstNs,
			lastNs:  b.LastNs,
			Detail: fmt.Sprintf(
				"%s, the largest of %s, by thread %s",
				units.Plural(b.Bursts, "burst"),
				units.Count(b.Most),
				s.t.ThreadLabel(key.Thread),
			),
		})
	}
	if copies < burstsWorth {
		return nil, nil
	}
	s.bySite(&h)
	sortPlaces(h.Places)
	h.What = fmt.Sprintf("%s small copies in %s", units.Count(copies), units.Plural(bursts, "burst"))
	return []Hit{h}, nil
}

// waitBubbleNs is an estimate of the time that a wait costs in addition to the waiting, ns: the GPU is
// idle until the thread runs again and its next launch arrives.
const waitBubbleNs = 20_000

var ruleSyncLoop = Rule{
	ID: "sync-in-loop",
	About: "waits of one place in loops (20 and more within a second by one thread, as analyze sync counts them) " +
		"come so often that the pauses which they make, " +
		"20 us each, are 1% of the time of the threads: 500 a second",
	Report: "sync",
	advice: "Wait once for many launches: no item(), print or synchronize in the inner loop. An order of work on " +
		"the GPU needs events, not waits.",
	check: checkSyncLoop,
}

func checkSyncLoop(s *Survey) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	var waits int64
	for key, w := range s.waits.Groups {
		span := s.spanNs(w.Threads)
		if w.LoopWaits < waitspkg.LoopWaits || units.Percent(w.LoopWaits*waitBubbleNs, span) < worthPct {
			continue
		}
		waits += w.LoopWaits
		h.Places = append(h.Places, Place{
			Where:   s.waits.Names.List[key.Site],
			Stack:   w.Stack,
			Count:   w.LoopWaits,
			Ns:      w.Took.Total(),
			FirstNs: w.FirstNs,
			lastNs:  w.LastNs,
			Detail: fmt.Sprintf(
				"%s, %s a second, %s on average",
				s.waits.Names.List[key.Name],
				units.RateText(float64(w.LoopWaits)/(float64(max(1, span))/1e9)),
				report.UnitNs.Text(w.Took.Avg()),
			),
		})
	}
	if len(h.Places) == 0 {
		return nil, nil
	}
	sortPlaces(h.Places)
	h.What = fmt.Sprintf("%s in loops", units.Plural(waits, "wait"))
	return []Hit{h}, nil
}

const (
	// tinyPerSecond is the least number of tiny launches a second: at some 5 us each, 1 % of the time.
	tinyPerSecond = 2000.0
	// tinyShare is their least share of all launches, %. A few small kernels between large ones are
	// normal.
	tinyShare = 50.0
)

var ruleTinyKernels = Rule{
	ID: "tiny-kernels",
	About: "at least half of the launches have fewer than 8,192 threads, as analyze kernels counts them, and there " +
		"are 2,000 of these a second and more",
	Report: "kernels",
	advice: "Such kernels mostly cost more to launch than to run. Fuse them (torch.compile, foreach optimizers), " +
		"batch the work, or put the launches into a CUDA graph.",
	check: checkTinyKernels,
}

func checkTinyKernels(s *Survey) ([]Hit, error) {
	var sum kernels.LaunchStats
	var unknown int64
	type kernelAt struct{ kernel, site int32 }
	found := make(map[kernelAt]*kernels.LaunchStats)
	for key, l := range s.kernels.Counts {
		sum.Merge(l)
		if l.Tiny > 0 {
			kernels.Entry(found, kernelAt{key.Kernel, key.Site}).Merge(l)
		}
	}
	var span int64
	for _, track := range s.gaps.Tracks {
		span, unknown = max(span, track.UntilNs-track.FirstNs), unknown+track.Unreturned
	}
	perSec := float64(sum.Tiny) / (float64(max(1, span)) / 1e9)
	if perSec < tinyPerSecond || units.Percent(sum.Tiny, sum.Sized) < tinyShare {
		return nil, nil
	}
	h := s.newHit(
		SeverityNotice,
		"%.0f%% of %s launches are tiny, %s a second",
		units.Percent(sum.Tiny, sum.Sized),
		units.Count(sum.Launches),
		units.RateText(perSec),
	)
	for key, l := range found {
		h.Places = append(h.Places, Place{
			Where: s.kernels.Names.List[key.site],
			Count: l.Tiny,
			Ns:    l.Total(),
			Detail: fmt.Sprintf(
				"%s, %s threads on average",
				symbolize.ShortKernel(s.kernels.Names.List[key.kernel]),
				units.Count(l.Threads/max(1, l.Sized)),
			),
		})
	}
	s.onlyEntries(&h, unknown, sum.Launches)
	s.bySite(&h)
	slices.SortFunc(h.Places, func(a, b Place) int {
		return cmp.Or(
			report.CompareCells(a.Count, b.Count),
			strings.Compare(a.Where, b.Where),
			strings.Compare(a.Detail, b.Detail),
		)
	})
	return []Hit{h}, nil
}

const (
	// boundPerSecond is the number of launches a second that can keep a thread busy. In PyTorch one
	// takes 20 us of Python and C++ or more, in a loop in C some 3 us.
	boundPerSecond = 5000.0
	// closeShare is the least share of launches, %, within 100 us of the one before. boundLaunches is
	// their least number.
	closeShare    = 80.0
	boundLaunches = 5000
	// noWaiting is the largest share of time, %, that such a process waits for the GPU. Any program that
	// reads its loss waits for the last launches of each step.
	noWaiting = 20.0
)

var ruleLaunchBound = Rule{
	ID: "launch-bound",
	About: "5,000 launches a second and more, 80% of them within 100 us of the one before, of a process that waits " +
		"for the GPU less than 20% of that time, " +
		"while less than 50% of the GPU is busy (SM activity by GPM, else GPU utilization, if it was sampled)",
	Report: "gaps",
	advice: "The CPU cannot launch as fast as the GPU works. Put the step into a CUDA graph " +
		"(torch.compile(mode='reduce-overhead')), fuse kernels, or take larger batches.",
	check: checkLaunchBound,
}

func checkLaunchBound(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, track := range s.gaps.SortedTracks() {
		l := s.gaps.Tracks[track]
		apart := int64(0)
		for i, n := range l.ByLength {
			if gaps.Lengths[i].BelowNs > 100e3 {
				apart += n.Count
			}
		}
		span := l.UntilNs - l.FirstNs
		perSec := float64(l.Launches) / (float64(max(1, span)) / 1e9)
		if track.Device == gaps.AllDevices || l.Launches < boundLaunches || perSec < boundPerSecond ||
			units.Percent(l.Launches-apart, l.Launches) < closeShare {
			continue
		}
		h := s.newHit(SeverityNotice, "")
		text, bound := s.notBusy(track, &h)
		if !bound {
			continue
		}
		h.What = fmt.Sprintf("%s launches a second, %s", units.RateText(perSec), text)
		h.Places = s.launchSites(track)
		s.onlyEntries(&h, l.Unreturned, l.Launches)
		s.bySite(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// notBusy reports whether the process of a track did not wait for the GPU, and the GPU was idle part of
// the time.
func (s *Survey) notBusy(track gaps.Track, h *Hit) (text string, bound bool) {
	var waited int64
	for th, w := range s.waits.Threads {
		if th.Pid == track.Pid {
			waited = units.EndOf(waited, w.WaitNs)
		}
	}
	l := s.gaps.Tracks[track]
	pct := units.Percent(waited, l.UntilNs-l.FirstNs)
	if pct >= noWaiting {
		return "", false
	}
	if index, ok := s.t.Facts.NVMLDevice(track.Pid, track.Device); ok {
		if samples := s.enough(index, catalog.MetricSMActive); samples != nil {
			return fmt.Sprintf("while %.0f%% of the SMs are active", samples.Mean()), samples.Mean() < lowActivity
		}
		if samples := s.enough(index, catalog.MetricGPUBusy); samples != nil {
			return fmt.Sprintf("while a kernel runs %.0f%% of the time", samples.Mean()), samples.Mean() < lowActivity
		}
	}
	h.lower(report.ConfidenceLow, "there are no samples of this GPU: it is not known how busy it was")
	return fmt.Sprintf("and the process waits for the GPU %.1f%% of that time", pct), true
}

// launchSites returns the call sites that launch on a track, as evidence.
func (s *Survey) launchSites(track gaps.Track) []Place {
	found := make(map[int32]*kernels.LaunchStats)
	for key, l := range s.kernels.Counts {
		if key.Pid == track.Pid && key.Device == track.Device {
			kernels.Entry(found, key.Site).Merge(l)
		}
	}
	var list []Place
	for site, l := range found {
		list = append(
			list,
			Place{
				Where:  s.kernels.Names.List[site],
				Count:  l.Launches,
				Ns:     l.Total(),
				Detail: fmt.Sprintf("launches, %.0f%% of them tiny", units.Percent(l.Tiny, l.Sized)),
			},
		)
	}
	slices.SortFunc(list, func(a, b Place) int {
		return cmp.Or(report.CompareCells(a.Count, b.Count), strings.Compare(a.Where, b.Where))
	})
	return list
}

// lateLoads is the number of loads of code in the second half of the time that count as a loop.
const lateLoads = 20

var ruleModuleLoop = Rule{
	ID: "module-load-in-loop",
	About: "a place loads code (cuModuleLoad..., cuLibraryLoad...) 20 times and more in the second half of the " +
		"time, and half as often as in the first: no warm-up",
	Report: "api --group-by site",
	advice: "Loading code takes milliseconds and can wait for the GPU. Keep the module, or the compiled function, " +
		"and look why it is compiled or loaded again.",
	check: checkModuleLoop,
}

func checkModuleLoop(s *Survey) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	var loads int64
	for site, m := range s.modules.Places {
		if m.Late < lateLoads || 2*m.Late < m.Loads-m.Late {
			continue
		}
		loads += m.Loads
		h.Places = append(h.Places, Place{
			Where:   s.modules.Names.List[site],
			Stack:   m.Stack,
			Count:   m.Loads,
			Ns:      m.Took,
			FirstNs: m.FirstNs,
			lastNs:  m.LastNs,
			Detail: fmt.Sprintf(
				"%s, %s of them in the second half of the time",
				s.modules.Names.List[m.Name],
				units.Count(m.Late),
			),
		})
	}
	if len(h.Places) == 0 {
		return nil, nil
	}
	s.bySite(&h)
	sortPlaces(h.Places)
	h.What = fmt.Sprintf("code is loaded %d times, until the end", loads)
	return []Hit{h}, nil
}
