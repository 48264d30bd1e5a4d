package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

var ruleGrowing = rule{
	id:     "growing-site",
	about:  "memory of a place in the program grows: verdict growing of analyze leaks, with its suppressions",
	report: "leaks",
	advice: "Look for what keeps these blocks: a list, a cache without a bound, a graph of autograd that is still referred to.",
	check:  checkGrowing,
}

func checkGrowing(s *survey) ([]hit, error) {
	var places []place
	var perMin float64
	onDevice := make(map[int32]float64)
	level, reasons := s.quality.confidence(s.leaks.frees)
	h := hit{severity: aProblem, level: confidenceHigh}
	for i := range s.verdicts {
		j := &s.verdicts[i]
		if j.verdict != growing {
			continue
		}
		perMin += j.perMin
		onDevice[j.device] += j.growthOnDevice()
		if len(places) == 0 {
			h.level, h.reasons = j.confidence(level, reasons, s.leaks.window)
		}
		places = append(places, place{where: j.label, stack: j.stack(), count: j.liveCount, bytes: j.liveBytes,
			detail: fmt.Sprintf("grows by %s/min; %s", units.Bytes(units.RoundInt(j.perMin)), j.evidence())})
	}
	if len(places) == 0 {
		return nil, nil
	}
	h.places = places
	h.what = fmt.Sprintf("grows by %s/min, %s live", units.Bytes(units.RoundInt(perMin)), units.Bytes(places[0].bytes.(int64)))
	if n := len(places); n > 1 {
		h.what = fmt.Sprintf("%d places grow by %s/min together", n, units.Bytes(units.RoundInt(perMin)))
	}
	var soonest any
	for device, growth := range onDevice {
		if in := oomIn(s.t, device, growth, s.leaks.window.ToNs); in != nil && (soonest == nil || in.(int64) < soonest.(int64)) {
			soonest = in
		}
	}
	if soonest != nil {
		h.what += ", out of memory in " + units.Duration(soonest.(int64))
	}
	return []hit{h}, nil
}

var ruleExitLeak = rule{
	id:     "exit-leak",
	about:  "memory of the driver was live when its process, or the last context of that, ended: verdict exit leak of analyze leaks, with its suppressions. An info: the driver takes it back",
	report: "leaks",
	advice: "It harms nobody unless the same code runs in a program that lives longer; free it, or name the place in --suppressions.",
	check:  checkExitLeak,
}

func checkExitLeak(s *survey) ([]hit, error) {
	level, reasons := s.quality.confidence(s.leaks.frees)
	h := hit{severity: anInfo, level: confidenceHigh}
	var bytes, blocks int64
	for i := range s.verdicts {
		j := &s.verdicts[i]
		if j.verdict != exitLeak {
			continue
		}
		if len(h.places) == 0 {
			h.level, h.reasons = j.confidence(level, reasons, s.leaks.window)
		}
		bytes, blocks = bytes+j.liveBytes, blocks+j.liveCount
		h.places = append(h.places, place{where: j.label, stack: j.stack(), count: j.liveCount, bytes: j.liveBytes, detail: j.evidence()})
	}
	if len(h.places) == 0 {
		return nil, nil
	}
	h.what = fmt.Sprintf("%s in %s not freed before the process ended", units.Bytes(bytes), units.Plural(blocks, "block"))
	return []hit{h}, nil
}

const (
	// loopPairs and loopPairsPerSecond make allocating and freeing a loop: steps of training take 20 ms and more, so that 50 pairs a
	// second are at least one in every step.
	loopPairs          = 100
	loopPairsPerSecond = 50.0
)

var ruleAllocLoop = rule{
	id: "alloc-in-loop",
	about: "a place allocates device, managed or pinned memory of the driver and frees it within a second, at least 100 times and 50 times a second. " +
		"Pools (cuMemAllocAsync) and PyTorch's allocator do not count",
	report: "leaks",
	advice: "Each cudaFree waits for all work of the GPU. Allocate once and use it again, or take cudaMallocAsync, which hands memory out of a pool.",
	check:  checkAllocLoop,
}

func checkAllocLoop(s *survey) ([]hit, error) {
	h := s.newHit(aNotice, "")
	var pairs int64
	for i := range s.loops.sites {
		l := &s.loops.sites[i]
		if l.pairs < loopPairs {
			continue
		}
		perSec := float64(l.pairs-1) / (float64(max(1, l.lastNs-l.firstNs)) / 1e9)
		if perSec < loopPairsPerSecond {
			continue
		}
		pairs += l.pairs
		h.places = append(h.places, place{where: s.t.SiteLabel(l.origin), stack: s.t.Origins.List[l.origin].Stack, count: l.pairs, bytes: l.bytes, firstNs: l.firstNs, lastNs: l.lastNs,
			detail: fmt.Sprintf("%s, freed within a second, %s times a second", s.t.Origins.Name(l.origin), units.RateText(perSec))})
	}
	if len(h.places) == 0 {
		return nil, nil
	}
	sortPlaces(h.places)
	h.what = fmt.Sprintf("%s of memory that is freed again at once", units.Plural(pairs, "allocation"))
	return []hit{h}, nil
}

var ruleOOM = rule{
	id:     "out-of-memory",
	about:  "an allocation failed for want of memory, by analyze oom; a problem if the thread did nothing more afterwards, else a notice",
	report: "oom",
	check:  checkOOM,
}

// oomAdvice says what to do about failures of a class.
var oomAdvice = [numOOMClasses]string{
	oomCapacity:      "The model and its data do not fit: take a smaller batch, checkpoint activations, or find what holds most (gpurec analyze memory --at peak).",
	oomFragmentation: "Enough was free, but in pieces: try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
	oomCached:        "Memory lay in PyTorch's cache that this call could not reach: call torch.cuda.empty_cache() before it, or bound the cache.",
	oomLimit:         "A limit said no, not the device: look for set_per_process_memory_fraction, the limit of a pool, a MIG slice or a cgroup.",
	oomOtherProcess:  "Other processes hold the memory: see who they are (gpurec analyze memory --reconcile).",
	oomUnknown:       "Nobody asked how much was free: record with NVML to know.",
}

func checkOOM(s *survey) ([]hit, error) {
	if len(s.scenes) == 0 {
		return nil, nil
	}
	order := make([]int, len(s.scenes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.scenes[a].outcome, s.scenes[b].outcome) })
	worst := order[0]
	h := s.oomHit(order)
	if s.scenes[worst].outcome <= nothingSince {
		h.severity = aProblem
	}
	classes := make(map[string]int64)
	fatal := int64(0)
	for i, sc := range s.scenes {
		classes[s.causes[i].name()]++
		if sc.outcome <= nothingSince {
			fatal++
		}
	}
	var parts []string
	for class := range numOOMClasses {
		for _, v := range []oomVerdict{{class: class}, {class: class, also: true}} {
			if n := classes[v.name()]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", v.name(), n))
			}
		}
	}
	h.what = fmt.Sprintf("%s failed for want of memory (%s)", units.Plural(int64(len(s.scenes)), "allocation"), strings.Join(parts, ", "))
	if fatal > 0 {
		h.what += fmt.Sprintf(", %d without recovery", fatal)
	}
	return []hit{h}, nil
}

// oomHit has the failures of some numbers as evidence, and confidence and advice of the first.
func (s *survey) oomHit(order []int) hit {
	first := &s.causes[order[0]]
	h := hit{severity: aNotice, advice: s.scenes[order[0]].advice(first), level: first.confidence, reasons: first.reasons}
	for _, i := range order {
		sc := s.scenes[i]
		h.places = append(h.places, place{where: s.t.SiteLabel(sc.origin), stack: s.t.Origins.List[sc.origin].Stack, count: int64(1), bytes: sc.requested, firstNs: sc.atNs, lastNs: sc.atNs,
			detail: fmt.Sprintf("%s, then %s: %s", s.causes[i].name(), sc.outcome, s.causes[i].because)})
	}
	return h
}

// name is the class, and what else it is.
func (v *oomVerdict) name() string {
	if v.also {
		return fmt.Sprintf("%s and %s", v.class, oomFragmentation)
	}
	return v.class.String()
}

// advice says what to do about a failure. Against fragmentation under a limit there are two remedies.
func (sc *scene) advice(v *oomVerdict) string {
	if !v.also {
		return oomAdvice[v.class]
	}
	against := "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
	if sc.expandable || v.fits == "no" {
		against = "free the blocks between the pieces (gpurec analyze frag)"
	}
	limit := "a MIG slice, a cgroup or a quota"
	if sc.hitOwnLimit() {
		limit = "torch.cuda.set_per_process_memory_fraction"
	}
	return fmt.Sprintf("Enough was unused, but in pieces: %s, or raise the limit (%s).", against, limit)
}

var ruleOOMFragmentation = rule{
	id:     "oom-fragmentation",
	about:  "an allocation failed although enough memory was free: in pieces, or in PyTorch's cache (classes fragmentation and cached of analyze oom, and limit where it is fragmentation too)",
	report: "frag",
	check:  checkOOMFragmentation,
}

func checkOOMFragmentation(s *survey) ([]hit, error) {
	var order []int
	for i := range s.scenes {
		if v := &s.causes[i]; v.class == oomFragmentation || v.class == oomCached || v.also {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return nil, nil
	}
	h := s.oomHit(order)
	first := s.scenes[order[0]]
	unused, largest := first.unused()
	h.what = fmt.Sprintf("%s could not be had with %s free and %s unused in segments (largest piece %s)", units.Bytes(first.requested), first.freeText(), units.Bytes(unused), units.Bytes(largest))
	if s.causes[order[0]].also {
		h.what += ", under a limit"
	}
	return []hit{h}, nil
}

// retriesInVain is how often the same request must be refused at one place to be a loop: PyTorch's own second and third try are one
// failure with the first.
const retriesInVain = 3

var ruleAllocRetry = rule{
	id:     "failed-alloc-in-loop",
	about:  "the same request for memory is refused at one place 3 times or more",
	report: "oom",
	advice: "Trying again without freeing anything does not help, and each refusal takes milliseconds. Give something back first, or give up.",
	check:  checkAllocRetry,
}

func checkAllocRetry(s *survey) ([]hit, error) {
	type request struct {
		site  string
		bytes int64
	}
	found := make(map[request]*place)
	for _, f := range s.failures {
		key := request{s.t.SiteLabel(f.origin), f.requested}
		p := found[key]
		if p == nil {
			p = &place{where: key.site, stack: s.t.Origins.List[f.origin].Stack, count: int64(0), bytes: f.requested, firstNs: f.atNs}
			found[key] = p
		}
		p.count = p.count.(int64) + 1
		p.lastNs = f.atNs
	}
	h := s.newHit(aNotice, "")
	for _, p := range found {
		if p.count.(int64) >= retriesInVain {
			p.detail = fmt.Sprintf("%s refused again and again, over %s", units.Bytes(p.bytes.(int64)), units.Duration(p.lastNs-p.firstNs))
			h.places = append(h.places, *p)
		}
	}
	if len(h.places) == 0 {
		return nil, nil
	}
	sortPlaces(h.places)
	h.what = fmt.Sprintf("the same request was refused %d times", h.places[0].count)
	return []hit{h}, nil
}

var ruleMemoryFull = rule{
	id:     "memory-near-limit",
	about:  "more than 95% of a GPU's memory was in use, by NVML",
	report: "memory --reconcile",
	advice: "The next larger batch, or another process, fails. What lies in PyTorch's cache counts as used: analyze allocator tells it from what is needed.",
	check:  checkMemoryFull,
}

func checkMemoryFull(s *survey) ([]hit, error) {
	var hits []hit
	for _, device := range s.watchedGPUs() {
		used, total := memoryOf(s.gpu, device)
		if used == nil {
			continue
		}
		high := func(v float64) bool { return v > fullMemoryShare*total }
		at := slices.IndexFunc(used.Values, high)
		if at < 0 {
			continue
		}
		most := units.RoundInt(slices.Max(used.Values))
		h := s.newHit(aNotice, "%s of %s in use", units.Bytes(most), units.Bytes(units.RoundInt(total)))
		h.reasons, h.level = nil, confidenceHigh // NVML loses no calls
		h.places = []place{{where: s.gpuLabel(device), count: int64(len(used.Values)), ns: units.RoundInt(used.Share(high) / 100 * used.TotalNs()), bytes: most, firstNs: used.AtNs[at],
			lastNs: used.AtNs[lastIndex(used.Values, high)], detail: fmt.Sprintf("more than 95%% in use %.1f%% of the time", used.Share(high))}}
		hits = append(hits, h)
	}
	return hits, nil
}

// lastIndex is that of the last value that is as asked for; one is.
func lastIndex(values []float64, is func(float64) bool) int {
	for i := len(values) - 1; i > 0; i-- {
		if is(values[i]) {
			return i
		}
	}
	return 0
}
