package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// unpinnedCopies is how many copies of a place are looked at before they are judged.
const unpinnedCopies = 10

var rulePageable = rule{
	id: "memcpy-async-pageable",
	about: "10 async copies or more of one place, of 64 KiB and more each, with host memory that is not known to be pinned. Memory may have been pinned before the recording: unless the " +
		"processes were recorded from their first call, at least half of the copies of 1 MiB and more must have taken as long as the fastest link (64 GB/s) takes, which pinned ones do not",
	report: "copies",
	advice: "An async copy from or to pageable memory blocks and is staged by the driver. Pin the memory: pin_memory=True, cudaMallocHost or cudaHostRegister.",
	check:  checkPageable,
}

func checkPageable(s *survey) ([]hit, error) {
	h := s.newHit(aNotice, "")
	fromStart := s.fromStart()
	var copies, bytes int64
	for key, c := range s.copies.places {
		blocks := c.telling >= unpinnedCopies && 2*c.stuck >= c.telling
		if c.unpinned < unpinnedCopies || !blocks && (!fromStart || c.telling >= unpinnedCopies) {
			continue
		}
		copies, bytes = copies+c.unpinned, units.EndOf(bytes, c.unpinnedBytes)
		detail := key.direction + ", no memory known to be pinned"
		if blocks {
			detail += fmt.Sprintf("; %s of %s of 1 MiB and more returned no sooner than the data was there", units.Count(c.stuck), units.Count(c.telling))
		}
		h.places = append(h.places, place{where: s.copies.Names.List[key.site], stack: c.stack, count: c.unpinned, ns: c.unpinnedNs, bytes: c.unpinnedBytes,
			firstNs: c.firstNs, lastNs: c.lastNs, detail: detail})
	}
	if len(h.places) == 0 {
		return nil, nil
	}
	if !fromStart {
		h.lower(confidenceMedium, "the recording began after the program: memory pinned before looks the same, but for the time that its copies take")
	}
	s.bySite(&h)
	sortPlaces(h.places)
	h.what = fmt.Sprintf("%s async copies with pageable memory, %s", units.Count(copies), units.Bytes(bytes))
	return []hit{h}, nil
}

// burstsWorth is how many copies in bursts are worth telling: at some 10 us each, 5 ms.
const burstsWorth = 500

var ruleSmallCopies = rule{
	id:     "small-copies",
	about:  "at least 500 copies of less than 4 KiB in bursts of 50 and more within 10 ms by one thread, as analyze copies counts them",
	report: "copies",
	advice: "Each copy costs some 10 us, however small. Put the values into one buffer and copy that.",
	check:  checkSmallCopies,
}

func checkSmallCopies(s *survey) ([]hit, error) {
	h := s.newHit(aNotice, "")
	var copies, bursts int64
	for key, b := range s.copies.bursts {
		copies, bursts = copies+b.copies, bursts+b.bursts
		h.places = append(h.places, place{where: s.copies.Names.List[key.site], stack: b.stack, count: b.copies, firstNs: b.firstNs, lastNs: b.lastNs,
			detail: fmt.Sprintf("%s, the largest of %s, by thread %s", units.Plural(b.bursts, "burst"), units.Count(b.most), s.t.ThreadLabel(key.thread))})
	}
	if copies < burstsWorth {
		return nil, nil
	}
	s.bySite(&h)
	sortPlaces(h.places)
	h.what = fmt.Sprintf("%s small copies in %s", units.Count(copies), units.Plural(bursts, "burst"))
	return []hit{h}, nil
}

// waitBubbleNs is what a wait costs beside the waiting, as an estimate: until the thread runs again and its next launch reaches a GPU
// that has nothing to do meanwhile.
const waitBubbleNs = 20_000

var ruleSyncLoop = rule{
	id: "sync-in-loop",
	about: "waits of one place in loops (20 and more within a second by one thread, as analyze sync counts them) come so often that the pauses which they make, " +
		"20 us each, are 1% of the time of the threads: 500 a second",
	report: "sync",
	advice: "Wait once for many launches: no item(), print or synchronize in the inner loop. An order of work on the GPU needs events, not waits.",
	check:  checkSyncLoop,
}

func checkSyncLoop(s *survey) ([]hit, error) {
	h := s.newHit(aNotice, "")
	var waits int64
	for key, w := range s.waits.groups {
		span := s.spanNs(w.threads)
		if w.loopWaits < loopWaits || units.Percent(w.loopWaits*waitBubbleNs, span) < worthPct {
			continue
		}
		waits += w.loopWaits
		h.places = append(h.places, place{where: s.waits.Names.List[key.site], stack: w.stack, count: w.loopWaits, ns: w.took.Total(), firstNs: w.firstNs, lastNs: w.lastNs,
			detail: fmt.Sprintf("%s, %s a second, %s on average", s.waits.Names.List[key.name], units.RateText(float64(w.loopWaits)/(float64(max(1, span))/1e9)), UnitNs.text(w.took.Avg()))})
	}
	if len(h.places) == 0 {
		return nil, nil
	}
	sortPlaces(h.places)
	h.what = fmt.Sprintf("%s in loops", units.Plural(waits, "wait"))
	return []hit{h}, nil
}

const (
	// tinyPerSecond is from how many tiny launches a second on: at some 5 us each, in which the GPU does next to nothing, 1 % of the time.
	tinyPerSecond = 2000.0
	// tinyShare is which share of all launches they have at least, %: a few small kernels between large ones are as it should be.
	tinyShare = 50.0
)

var ruleTinyKernels = rule{
	id:     "tiny-kernels",
	about:  "at least half of the launches have fewer than 8,192 threads, as analyze kernels counts them, and there are 2,000 of these a second and more",
	report: "kernels",
	advice: "Such kernels mostly cost more to launch than to run. Fuse them (torch.compile, foreach optimizers), batch the work, or put the launches into a CUDA graph.",
	check:  checkTinyKernels,
}

func checkTinyKernels(s *survey) ([]hit, error) {
	var sum launchStats
	var unknown int64
	type kernelAt struct{ kernel, site int32 }
	found := make(map[kernelAt]*launchStats)
	for key, l := range s.kernels.counts {
		sum.merge(l)
		if l.tiny > 0 {
			entry(found, kernelAt{key.kernel, key.site}).merge(l)
		}
	}
	var span int64
	for _, track := range s.gaps.tracks {
		span, unknown = max(span, track.untilNs-track.firstNs), unknown+track.unreturned
	}
	perSec := float64(sum.tiny) / (float64(max(1, span)) / 1e9)
	if perSec < tinyPerSecond || units.Percent(sum.tiny, sum.sized) < tinyShare {
		return nil, nil
	}
	h := s.newHit(aNotice, "%.0f%% of %s launches are tiny, %s a second", units.Percent(sum.tiny, sum.sized), units.Count(sum.launches), units.RateText(perSec))
	for key, l := range found {
		h.places = append(h.places, place{where: s.kernels.names.List[key.site], count: l.tiny, ns: l.total(),
			detail: fmt.Sprintf("%s, %s threads on average", symbolize.ShortKernel(s.kernels.names.List[key.kernel]), units.Count(l.threads/max(1, l.sized)))})
	}
	s.onlyEntries(&h, unknown, sum.launches)
	s.bySite(&h)
	slices.SortFunc(h.places, func(a, b place) int {
		return cmp.Or(compareCells(a.count, b.count), strings.Compare(a.where, b.where), strings.Compare(a.detail, b.detail))
	})
	return []hit{h}, nil
}

const (
	// boundPerSecond is from how many launches a second on a thread can be kept busy by them: in PyTorch one takes 20 us of Python and
	// C++ and more, but a loop in C some 3 us.
	boundPerSecond = 5000.0
	// closeShare is which share of the launches come within 100 us of the one before, %, and boundLaunches how many there are at least.
	closeShare    = 80.0
	boundLaunches = 5000
	// noWaiting is how much of its time a process that is held up by launching waits for the GPU at most, %: the last launches of each
	// step have to be waited for in any program that looks at its loss.
	noWaiting = 20.0
)

var ruleLaunchBound = rule{
	id: "launch-bound",
	about: "5,000 launches a second and more, 80% of them within 100 us of the one before, of a process that waits for the GPU less than 20% of that time, " +
		"while less than 50% of the GPU is busy (SM activity by GPM, else GPU utilization, if it was sampled)",
	report: "gaps",
	advice: "The CPU cannot launch as fast as the GPU works. Put the step into a CUDA graph (torch.compile(mode='reduce-overhead')), fuse kernels, or take larger batches.",
	check:  checkLaunchBound,
}

func checkLaunchBound(s *survey) ([]hit, error) {
	var hits []hit
	for _, track := range s.gaps.sortedTracks() {
		l := s.gaps.tracks[track]
		apart := int64(0)
		for i, n := range l.all {
			if gapSizes[i].belowNs > 100e3 {
				apart += n.count
			}
		}
		span := l.untilNs - l.firstNs
		perSec := float64(l.launches) / (float64(max(1, span)) / 1e9)
		if track.device == allDevices || l.launches < boundLaunches || perSec < boundPerSecond || units.Percent(l.launches-apart, l.launches) < closeShare {
			continue
		}
		h := s.newHit(aNotice, "")
		text, bound := s.notBusy(track, &h)
		if !bound {
			continue
		}
		h.what = fmt.Sprintf("%s launches a second, %s", units.RateText(perSec), text)
		h.places = s.launchSites(track)
		s.onlyEntries(&h, l.unreturned, l.launches)
		s.bySite(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// notBusy reports whether the process of a track did not wait for the GPU, and the GPU had time left.
func (s *survey) notBusy(track gapTrack, h *hit) (text string, bound bool) {
	var waited int64
	for th, w := range s.waits.threads {
		if th.Pid == track.pid {
			waited = units.EndOf(waited, w.waitNs)
		}
	}
	l := s.gaps.tracks[track]
	pct := units.Percent(waited, l.untilNs-l.firstNs)
	if pct >= noWaiting {
		return "", false
	}
	if index, ok := s.t.Facts.NVMLDevice(track.pid, track.device); ok {
		if samples := s.enough(index, catalog.MetricSMActive); samples != nil {
			return fmt.Sprintf("while %.0f%% of the SMs are active", samples.Mean()), samples.Mean() < lowActivity
		}
		if samples := s.enough(index, catalog.MetricGPUBusy); samples != nil {
			return fmt.Sprintf("while a kernel runs %.0f%% of the time", samples.Mean()), samples.Mean() < lowActivity
		}
	}
	h.lower(confidenceLow, "there are no samples of this GPU: it is not known how busy it was")
	return fmt.Sprintf("and the process waits for the GPU %.1f%% of that time", pct), true
}

// launchSites are the places that launch on a track, as evidence.
func (s *survey) launchSites(track gapTrack) []place {
	found := make(map[int32]*launchStats)
	for key, l := range s.kernels.counts {
		if key.pid == track.pid && key.device == track.device {
			entry(found, key.site).merge(l)
		}
	}
	var list []place
	for site, l := range found {
		list = append(list, place{where: s.kernels.names.List[site], count: l.launches, ns: l.total(), detail: fmt.Sprintf("launches, %.0f%% of them tiny", units.Percent(l.tiny, l.sized))})
	}
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(compareCells(a.count, b.count), strings.Compare(a.where, b.where))
	})
	return list
}

// lateLoads is how many loads of code in the second half of the time are a loop.
const lateLoads = 20

var ruleModuleLoop = rule{
	id:     "module-load-in-loop",
	about:  "a place loads code (cuModuleLoad..., cuLibraryLoad...) 20 times and more in the second half of the time, and half as often as in the first: no warm-up",
	report: "api --group-by site",
	advice: "Loading code takes milliseconds and can wait for the GPU. Keep the module, or the compiled function, and look why it is compiled or loaded again.",
	check:  checkModuleLoop,
}

func checkModuleLoop(s *survey) ([]hit, error) {
	h := s.newHit(aNotice, "")
	var loads int64
	for site, m := range s.modules.places {
		if m.late < lateLoads || 2*m.late < m.loads-m.late {
			continue
		}
		loads += m.loads
		h.places = append(h.places, place{where: s.modules.names.List[site], stack: m.stack, count: m.loads, ns: m.took, firstNs: m.firstNs, lastNs: m.lastNs,
			detail: fmt.Sprintf("%s, %s of them in the second half of the time", s.modules.names.List[m.name], units.Count(m.late))})
	}
	if len(h.places) == 0 {
		return nil, nil
	}
	s.bySite(&h)
	sortPlaces(h.places)
	h.what = fmt.Sprintf("code is loaded %d times, until the end", loads)
	return []hit{h}, nil
}
