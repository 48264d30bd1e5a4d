package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/units"
)

var ruleGrowing = Rule{
	ID:     "growing-site",
	About:  "memory of a place in the program grows: verdict growing of analyze leaks, with its suppressions",
	Report: "leaks",
	advice: "Look for what keeps these blocks: a list, a cache without a bound, a graph of autograd that is still " +
		"referred to.",
	check: checkGrowing,
}

func checkGrowing(s *Survey) ([]Hit, error) {
	var places []Place
	var perMin float64
	onDevice := make(map[int32]float64)
	level, reasons := s.Quality.Confidence(s.Leaks.Frees)
	h := Hit{Severity: SeverityProblem, Level: report.ConfidenceHigh}
	for i := range s.Findings {
		j := &s.Findings[i]
		if j.Verdict != leaks.Growing {
			continue
		}
		perMin += j.PerMin
		onDevice[j.Device] += j.GrowthOnDevice()
		if len(places) == 0 {
			h.Level, h.Reasons = j.Confidence(level, reasons, s.Leaks.Window)
		}
		places = append(places, Place{
			Where: j.Label, Stack: j.Stack(), Count: j.LiveCount, Bytes: j.LiveBytes,
			Detail: fmt.Sprintf("grows by %s/min; %s", units.Bytes(units.RoundInt(j.PerMin)), j.Evidence()),
		})
	}
	if len(places) == 0 {
		return nil, nil
	}
	h.Places = places
	h.What = fmt.Sprintf(
		"grows by %s/min, %s live",
		units.Bytes(units.RoundInt(perMin)),
		units.Bytes(places[0].Bytes.(int64)),
	)
	if n := len(places); n > 1 {
		h.What = fmt.Sprintf("%d places grow by %s/min together", n, units.Bytes(units.RoundInt(perMin)))
	}
	var soonest any
	for device, growth := range onDevice {
		if in := leaks.OomIn(
			s.t,
			device,
			growth,
			s.Leaks.Window.ToNs,
		); in != nil &&
			(soonest == nil || in.(int64) < soonest.(int64)) {
			soonest = in
		}
	}
	if soonest != nil {
		h.What += ", out of memory in " + units.Duration(soonest.(int64))
	}
	return []Hit{h}, nil
}

var ruleExitLeak = Rule{
	ID: "exit-leak",
	About: "memory of the driver was live when its process, or the last context of that, ended: verdict exit leak " +
		"of analyze leaks, with its suppressions. An info: the driver takes it back",
	Report: "leaks",
	advice: "It harms nobody unless the same code runs in a program that lives longer; free it, or name the place " +
		"in --suppressions.",
	check: checkExitLeak,
}

func checkExitLeak(s *Survey) ([]Hit, error) {
	level, reasons := s.Quality.Confidence(s.Leaks.Frees)
	h := Hit{Severity: SeverityInfo, Level: report.ConfidenceHigh}
	var bytes, blocks int64
	for i := range s.Findings {
		j := &s.Findings[i]
		if j.Verdict != leaks.ExitLeak {
			continue
		}
		if len(h.Places) == 0 {
			h.Level, h.Reasons = j.Confidence(level, reasons, s.Leaks.Window)
		}
		bytes, blocks = bytes+j.LiveBytes, blocks+j.LiveCount
		h.Places = append(
			h.Places,
			Place{Where: j.Label, Stack: j.Stack(), Count: j.LiveCount, Bytes: j.LiveBytes, Detail: j.Evidence()},
		)
	}
	if len(h.Places) == 0 {
		return nil, nil
	}
	h.What = fmt.Sprintf(
		"%s in %s not freed before the process ended",
		units.Bytes(bytes),
		units.Plural(blocks, "block"),
	)
	return []Hit{h}, nil
}

const (
	// loopPairs and loopPairsPerSecond are the allocations with a free from which on they count as a
	// loop. Steps of training take 20 ms and more: 50 a second are at least one in each step.
	loopPairs          = 100
	loopPairsPerSecond = 50.0
)

var ruleAllocLoop = Rule{
	ID: "alloc-in-loop",
	About: "a place allocates device, managed or pinned memory of the driver and frees it within a second, at least " +
		"100 times and 50 times a second. " +
		"Pools (cuMemAllocAsync) and PyTorch's allocator do not count",
	Report: "leaks",
	advice: "Each cudaFree waits for all work of the GPU. Allocate once and use it again, or take cudaMallocAsync, " +
		"which hands memory out of a pool.",
	check: checkAllocLoop,
}

func checkAllocLoop(s *Survey) ([]Hit, error) {
	h := s.newHit(SeverityNotice, "")
	var pairs int64
	for i := range s.loops.Sites {
		l := &s.loops.Sites[i]
		if l.Pairs < loopPairs {
			continue
		}
		perSec := float64(l.Pairs-1) / (float64(max(1, l.LastNs-l.FirstNs)) / 1e9)
		if perSec < loopPairsPerSecond {
			continue
		}
		pairs += l.Pairs
		h.Places = append(h.Places, Place{
			Where: s.t.SiteLabel(
				l.Origin,
			),
			Stack:   s.t.Origins.List[l.Origin].Stack,
			Count:   l.Pairs,
			Bytes:   l.Bytes,
			FirstNs: l.FirstNs,
			lastNs:  l.LastNs,
			Detail: fmt.Sprintf(
				"%s, freed within a second, %s times a second",
				s.t.Origins.Name(l.Origin),
				units.RateText(perSec),
			),
		})
	}
	if len(h.Places) == 0 {
		return nil, nil
	}
	sortPlaces(h.Places)
	h.What = fmt.Sprintf("%s of memory that is freed again at once", units.Plural(pairs, "allocation"))
	return []Hit{h}, nil
}

var OOM = Rule{
	ID: "out-of-memory",
	About: "an allocation failed for want of memory, by analyze oom; a problem if the thread did nothing more " +
		"afterwards, else a notice",
	Report: "oom",
	check:  checkOOM,
}

// oomAdvice has the advice for each class.
var oomAdvice = [oom.NumClasses]string{
	oom.Capacity: "The model and its data do not fit: take a smaller batch, checkpoint activations, or find " +
		"what holds most (gpurec analyze memory --at peak).",
	oom.Fragmentation: "Enough was free, but in pieces: try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
	oom.Cached: "Memory lay in PyTorch's cache that this call could not reach: call torch.cuda.empty_cache() " +
		"before it, or bound the cache.",
	oom.Limit: "A limit said no, not the device: look for set_per_process_memory_fraction, the limit of a " +
		"pool, a MIG slice or a cgroup.",
	oom.OtherProcess: "Other processes hold the memory: see who they are (gpurec analyze memory --reconcile).",
	oom.Unknown:      "Nobody asked how much was free: record with NVML to know.",
}

func checkOOM(s *Survey) ([]Hit, error) {
	if len(s.contexts) == 0 {
		return nil, nil
	}
	order := make([]int, len(s.contexts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(
		order,
		func(a, b int) int { return cmp.Compare(s.contexts[a].Outcome, s.contexts[b].Outcome) },
	)
	worst := order[0]
	h := s.oomHit(order)
	if s.contexts[worst].Outcome <= oom.Inactive {
		h.Severity = SeverityProblem
	}
	classes := make(map[string]int64)
	fatal := int64(0)
	for i, sc := range s.contexts {
		classes[verdictName(&s.causes[i])]++
		if sc.Outcome <= oom.Inactive {
			fatal++
		}
	}
	var parts []string
	for class := range oom.NumClasses {
		for _, v := range []oom.Verdict{{Class: class}, {Class: class, AlsoFragmentation: true}} {
			if n := classes[verdictName(&v)]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", verdictName(&v), n))
			}
		}
	}
	h.What = fmt.Sprintf(
		"%s failed for want of memory (%s)",
		units.Plural(int64(len(s.contexts)), "allocation"),
		strings.Join(parts, ", "),
	)
	if fatal > 0 {
		h.What += fmt.Sprintf(", %d without recovery", fatal)
	}
	return []Hit{h}, nil
}

// oomHit returns a hit with these failures, indexes of s.contexts, as evidence. Its confidence and
// advice are those of the first.
func (s *Survey) oomHit(order []int) Hit {
	first := &s.causes[order[0]]
	h := Hit{
		Severity: SeverityNotice,
		Advice:   advice(s.contexts[order[0]], first),
		Level:    first.Confidence,
		Reasons:  first.Reasons,
	}
	for _, i := range order {
		sc := s.contexts[i]
		h.Places = append(h.Places, Place{
			Where: s.t.SiteLabel(
				sc.Origin,
			),
			Stack:   s.t.Origins.List[sc.Origin].Stack,
			Count:   int64(1),
			Bytes:   sc.Requested,
			FirstNs: sc.AtNs,
			lastNs:  sc.AtNs,
			Detail:  fmt.Sprintf("%s, then %s: %s", verdictName(&s.causes[i]), sc.Outcome, s.causes[i].Explanation),
		})
	}
	return h
}

// verdictName returns the class of a failure, with fragmentation if it is that too.
func verdictName(v *oom.Verdict) string {
	if v.AlsoFragmentation {
		return fmt.Sprintf("%s and %s", v.Class, oom.Fragmentation)
	}
	return v.Class.String()
}

// advice returns what to do about a failure. There are two remedies for fragmentation under a limit.
func advice(sc *oom.Context, v *oom.Verdict) string {
	if !v.AlsoFragmentation {
		return oomAdvice[v.Class]
	}
	against := "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
	if sc.Expandable || v.ExpandableFits == "no" {
		against = "free the blocks between the pieces (gpurec analyze frag)"
	}
	limit := "a MIG slice, a cgroup or a quota"
	if sc.HitOwnLimit() {
		limit = "torch.cuda.set_per_process_memory_fraction"
	}
	return fmt.Sprintf("Enough was unused, but in pieces: %s, or raise the limit (%s).", against, limit)
}

var ruleOOMFragmentation = Rule{
	ID: "oom-fragmentation",
	About: "an allocation failed although enough memory was free: in pieces, or in PyTorch's cache (classes " +
		"fragmentation and cached of analyze oom, and limit where it is fragmentation too)",
	Report: "frag",
	check:  checkOOMFragmentation,
}

func checkOOMFragmentation(s *Survey) ([]Hit, error) {
	var order []int
	for i := range s.contexts {
		if v := &s.causes[i]; v.Class == oom.Fragmentation || v.Class == oom.Cached || v.AlsoFragmentation {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return nil, nil
	}
	h := s.oomHit(order)
	first := s.contexts[order[0]]
	unused, largest := first.Unused()
	h.What = fmt.Sprintf(
		"%s could not be had with %s free and %s unused in segments (largest piece %s)",
		units.Bytes(first.Requested),
		first.FreeText(),
		units.Bytes(unused),
		units.Bytes(largest),
	)
	if s.causes[order[0]].AlsoFragmentation {
		h.What += ", under a limit"
	}
	return []Hit{h}, nil
}

// minRetries is the number of equal failed requests at one call site that count as a loop. PyTorch's
// own second and third try are part of the first.
const minRetries = 3

var ruleAllocRetry = Rule{
	ID:     "failed-alloc-in-loop",
	About:  "the same request for memory is refused at one place 3 times or more",
	Report: "oom",
	advice: "Trying again without freeing anything does not help, and each refusal takes milliseconds. Give " +
		"something back first, or give up.",
	check: checkAllocRetry,
}

func checkAllocRetry(s *Survey) ([]Hit, error) {
	type request struct {
		site  string
		bytes int64
	}
	found := make(map[request]*Place)
	for _, f := range s.failures {
		key := request{s.t.SiteLabel(f.Origin), f.Requested}
		p := found[key]
		if p == nil {
			p = &Place{
				Where:   key.site,
				Stack:   s.t.Origins.List[f.Origin].Stack,
				Count:   int64(0),
				Bytes:   f.Requested,
				FirstNs: f.AtNs,
			}
			found[key] = p
		}
		p.Count = p.Count.(int64) + 1
		p.lastNs = f.AtNs
	}
	h := s.newHit(SeverityNotice, "")
	for _, p := range found {
		if p.Count.(int64) >= minRetries {
			p.Detail = fmt.Sprintf(
				"%s refused again and again, over %s",
				units.Bytes(p.Bytes.(int64)),
				units.Duration(p.lastNs-p.FirstNs),
			)
			h.Places = append(h.Places, *p)
		}
	}
	if len(h.Places) == 0 {
		return nil, nil
	}
	sortPlaces(h.Places)
	h.What = fmt.Sprintf("the same request was refused %d times", h.Places[0].Count)
	return []Hit{h}, nil
}

var ruleMemoryFull = Rule{
	ID:     "memory-near-limit",
	About:  "more than 95% of a GPU's memory was in use, by NVML",
	Report: "memory --reconcile",
	advice: "The next larger batch, or another process, fails. What lies in PyTorch's cache counts as used: analyze " +
		"allocator tells it from what is needed.",
	check: checkMemoryFull,
}

func checkMemoryFull(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.watchedGPUs() {
		used, total := gpu.MemoryOf(s.gpu, device)
		if used == nil {
			continue
		}
		high := func(v float64) bool { return v > gpu.FullMemoryShare*total }
		at := slices.IndexFunc(used.Values, high)
		if at < 0 {
			continue
		}
		most := units.RoundInt(slices.Max(used.Values))
		h := s.newHit(SeverityNotice, "%s of %s in use", units.Bytes(most), units.Bytes(units.RoundInt(total)))
		h.Reasons, h.Level = nil, report.ConfidenceHigh // NVML loses no calls
		h.Places = []Place{
			{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(used.Values)),
				Ns:      units.RoundInt(used.Share(high) / 100 * used.TotalNs()),
				Bytes:   most,
				FirstNs: used.AtNs[at],
				lastNs:  used.AtNs[lastIndex(used.Values, high)],
				Detail: fmt.Sprintf("more than 95%% in use %.1f%% of "+
					"the time", used.Share(high)),
			},
		}
		hits = append(hits, h)
	}
	return hits, nil
}

// lastIndex returns the index of the last value for which is returns true, 0 if there is none.
func lastIndex(values []float64, is func(float64) bool) int {
	for i := len(values) - 1; i > 0; i-- {
		if is(values[i]) {
			return i
		}
	}
	return 0
}
