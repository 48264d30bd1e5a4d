package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/units"
)

var growingSiteRule = Rule{
	ID:     "growing-site",
	About:  "the live memory of a call site grows: verdict growing of analyze leaks. Suppressions of leaks apply",
	Report: "leaks",
	advice: "Find the reference that keeps these blocks alive: a list, an unbounded cache, or an autograd graph that " +
		"is never released.",
	check: checkGrowingSites,
}

func checkGrowingSites(s *Scan) ([]Hit, error) {
	var sites []Evidence
	var perMin, margin float64
	onDevice := make(map[int32]float64)
	level, reasons := s.Quality.Confidence(s.Leaks.Frees)
	h := Hit{Severity: SeverityProblem, Confidence: report.ConfidenceHigh}
	for i := range s.LeakFindings {
		j := &s.LeakFindings[i]
		if j.Verdict != leaks.VerdictGrowing {
			continue
		}
		perMin += j.PerMin
		margin = math.Hypot(margin, j.Margin)
		onDevice[j.Device] += j.GrowthOnDevice()
		if len(sites) == 0 {
			h.Confidence, h.Reasons = j.Confidence(level, reasons, s.Leaks.Window)
		}
		sites = append(sites, Evidence{
			Where: j.Text(), Stack: j.StackID(), Via: j.ViaStack, Count: j.LiveCount, Bytes: j.LiveBytes, Pid: j.Pid(),
			Detail: fmt.Sprintf("grows by %s/min; %s", units.FormatBytes(units.RoundInt(j.PerMin)), j.Evidence()),
		})
	}
	if len(sites) == 0 {
		return nil, nil
	}
	h.Evidence = sites
	h.Summary = fmt.Sprintf(
		"memory grows by %s/min, %s live",
		units.FormatBytes(units.RoundInt(perMin)),
		units.FormatBytes(sites[0].Bytes.(int64)),
	)
	if margin > 0 { // the live bytes of the site are unknown
		h.Summary = fmt.Sprintf("memory grows by %s ± %s/min", units.FormatBytes(units.RoundInt(perMin)),
			units.FormatBytes(units.RoundInt(margin)))
	}
	if n := len(sites); n > 1 {
		h.Summary = fmt.Sprintf("%d call sites together grow by %s/min", n, units.FormatBytes(units.RoundInt(perMin)))
	}
	var soonest any
	for device, growth := range onDevice {
		if in := leaks.TimeUntilOom(
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
		h.Summary += ", out of memory in about " + units.FormatDuration(soonest.(int64))
	}
	return []Hit{h}, nil
}

var exitLeakRule = Rule{
	ID: "exit-leak",
	About: "driver memory was still allocated when its process or the process's last CUDA context ended: verdict " +
		"exit leak of analyze leaks. An info, because the driver frees this memory. Suppressions of leaks apply",
	Report: "leaks",
	advice: "The driver freed this memory at exit, so it only matters if the code also runs in long-lived programs. " +
		"Free it, or list its call site in a --suppressions file.",
	check: checkExitLeak,
}

func checkExitLeak(s *Scan) ([]Hit, error) {
	level, reasons := s.Quality.Confidence(s.Leaks.Frees)
	h := Hit{Severity: SeverityInfo, Confidence: report.ConfidenceHigh}
	var bytes, blocks int64
	for i := range s.LeakFindings {
		j := &s.LeakFindings[i]
		if j.Verdict != leaks.VerdictExitLeak {
			continue
		}
		if len(h.Evidence) == 0 {
			h.Confidence, h.Reasons = j.Confidence(level, reasons, s.Leaks.Window)
		}
		bytes, blocks = bytes+j.LiveBytes, blocks+j.LiveCount
		h.Evidence = append(
			h.Evidence,
			Evidence{
				Where: j.Text(), Stack: j.StackID(), Via: j.ViaStack,
				Count: j.LiveCount, Bytes: j.LiveBytes, Detail: j.Evidence(),
			},
		)
	}
	if len(h.Evidence) == 0 {
		return nil, nil
	}
	h.Summary = fmt.Sprintf(
		"%s in %s not freed before the process ended",
		units.FormatBytes(bytes),
		units.CountWithNoun(blocks, "block"),
	)
	return []Hit{h}, nil
}

// OutOfMemoryRule is the rule for allocations that failed for lack of memory.
var OutOfMemoryRule = Rule{
	ID: "out-of-memory",
	About: "an allocation failed for lack of memory: see analyze oom. A problem if the thread made no further " +
		"calls, otherwise a notice",
	Report: "oom",
	check:  checkOOM,
}

// oomAdvice is the advice for each class of failed allocation.
var oomAdvice = [oom.ClassCount]string{
	oom.ClassCapacity: "The model and its data do not fit: use a smaller batch or activation checkpointing, or find " +
		"the largest holders (gpurec analyze memory --at peak).",
	oom.ClassFragmentation: "Enough memory was free, but in pieces: try " +
		"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
	oom.ClassCached: "PyTorch's cache held free memory that this call could not use: call torch.cuda.empty_cache() " +
		"before it, or limit the cache.",
	oom.ClassLimit: "A limit was reached, not the capacity of the device: check set_per_process_memory_fraction, " +
		"memory pools, MIG slices and cgroups.",
	oom.ClassOtherProcess: "Other processes hold the memory: list them with gpurec analyze memory --reconcile.",
	oom.ClassUnknown:      "The recording does not show how much memory was free: record again with NVML samples.",
}

func checkOOM(s *Scan) ([]Hit, error) {
	if len(s.oomContexts) == 0 {
		return nil, nil
	}
	order := make([]int, len(s.oomContexts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(
		order,
		func(a, b int) int { return cmp.Compare(s.oomContexts[a].Outcome, s.oomContexts[b].Outcome) },
	)
	worst := order[0]
	h := s.newOOMHit(order)
	if s.oomContexts[worst].Outcome <= oom.OutcomeInactive {
		h.Severity = SeverityProblem
	}
	classes := make(map[string]int64)
	fatal := int64(0)
	for i, failure := range s.oomContexts {
		classes[oomClassName(&s.oomVerdicts[i])]++
		if failure.Outcome <= oom.OutcomeInactive {
			fatal++
		}
	}
	var parts []string
	for class := range oom.ClassCount {
		for _, v := range []oom.Verdict{{Class: class}, {Class: class, AlsoFragmentation: true}} {
			if n := classes[oomClassName(&v)]; n > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", oomClassName(&v), n))
			}
		}
	}
	h.Summary = fmt.Sprintf(
		"%s failed for lack of memory (%s)",
		units.CountWithNoun(int64(len(s.oomContexts)), "allocation"),
		strings.Join(parts, ", "),
	)
	if fatal > 0 {
		h.Summary += fmt.Sprintf(", %d without recovery", fatal)
	}
	return []Hit{h}, nil
}

// newOOMHit returns a hit with failed allocations as evidence; order has their indexes in
// s.oomContexts. The confidence and the advice of the hit are those of the first.
func (s *Scan) newOOMHit(order []int) Hit {
	first := &s.oomVerdicts[order[0]]
	h := Hit{
		Severity:   SeverityNotice,
		Advice:     chooseOOMAdvice(s.oomContexts[order[0]], first),
		Confidence: first.Confidence,
		Reasons:    first.Reasons,
	}
	for _, i := range order {
		failure := s.oomContexts[i]
		h.Evidence = append(h.Evidence, Evidence{
			Where: s.t.SiteOfOrigin(
				failure.Origin,
			),
			Stack:   s.t.Origins.List[failure.Origin].Stack,
			Count:   int64(1),
			Pid:     s.t.Origins.List[failure.Origin].Pid,
			Bytes:   failure.Requested,
			FirstNs: failure.AtNs,
			lastNs:  failure.AtNs,
			Detail: fmt.Sprintf(
				"%s, then %s: %s",
				oomClassName(&s.oomVerdicts[i]),
				failure.Outcome,
				s.oomVerdicts[i].Explanation,
			),
		})
	}
	return h
}

// oomClassName returns the class of a failed allocation. It adds "and fragmentation" if free memory
// in pieces is a second cause.
func oomClassName(v *oom.Verdict) string {
	if v.AlsoFragmentation {
		return fmt.Sprintf("%s and %s", v.Class, oom.ClassFragmentation)
	}
	return v.Class.String()
}

// chooseOOMAdvice returns the advice for a failed allocation. If fragmentation is the second cause,
// the advice names two remedies: one against fragmentation, and a higher limit.
func chooseOOMAdvice(failure *oom.FailureContext, v *oom.Verdict) string {
	if !v.AlsoFragmentation {
		return oomAdvice[v.Class]
	}
	remedy := "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
	if failure.Expandable || v.ExpandableFits == "no" {
		remedy = "free the blocks between the pieces (gpurec analyze frag)"
	}
	limit := "a MIG slice, a cgroup or a quota"
	if failure.HitOwnLimit() {
		limit = "torch.cuda.set_per_process_memory_fraction"
	}
	return fmt.Sprintf("Enough memory was unused, but in pieces: %s, or raise the limit (%s).", remedy, limit)
}

var oomFragmentationRule = Rule{
	ID: "oom-fragmentation",
	About: "an allocation failed although enough memory was free, but in pieces or in PyTorch's cache. These are " +
		"the classes fragmentation and cached of analyze oom, and limit with fragmentation as second cause",
	Report: "frag",
	check:  checkOOMFragmentation,
}

func checkOOMFragmentation(s *Scan) ([]Hit, error) {
	var order []int
	for i := range s.oomContexts {
		if v := &s.oomVerdicts[i]; v.Class == oom.ClassFragmentation || v.Class == oom.ClassCached ||
			v.AlsoFragmentation {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return nil, nil
	}
	h := s.newOOMHit(order)
	first := s.oomContexts[order[0]]
	unused, largest := first.UnusedBytes()
	h.Summary = fmt.Sprintf(
		"a request for %s failed with %s free and %s unused in segments (largest piece %s)",
		units.FormatBytes(first.Requested),
		first.FreeText(),
		units.FormatBytes(unused),
		units.FormatBytes(largest),
	)
	if s.oomVerdicts[order[0]].AlsoFragmentation {
		h.Summary += ", under a limit"
	}
	return []Hit{h}, nil
}

// minAllocRetries is the number of equal failed requests of one call site that count as a retry
// loop. The retries inside of PyTorch's allocator do not count: they are part of one request.
const minAllocRetries = 3

var allocRetryRule = Rule{
	ID:     "failed-alloc-in-loop",
	About:  "a call site requests the same size 3 times or more, and each request fails for lack of memory",
	Report: "oom",
	advice: "A retry without freeing memory fails again, and each failure takes milliseconds. Free memory before " +
		"the retry, or stop retrying.",
	check: checkAllocRetry,
}

func checkAllocRetry(s *Scan) ([]Hit, error) {
	type request struct {
		site  string
		bytes int64
	}
	found := make(map[request]*Evidence)
	for _, f := range s.oomFailures {
		key := request{s.t.SiteOfOrigin(f.Origin), f.Requested}
		p := found[key]
		if p == nil {
			p = &Evidence{
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
		if p.Count.(int64) >= minAllocRetries {
			p.Detail = fmt.Sprintf(
				"requests for %s failed repeatedly for %s",
				units.FormatBytes(p.Bytes.(int64)),
				units.FormatDuration(p.lastNs-p.FirstNs),
			)
			h.Evidence = append(h.Evidence, *p)
		}
	}
	if len(h.Evidence) == 0 {
		return nil, nil
	}
	sortEvidence(h.Evidence)
	h.Summary = fmt.Sprintf("the same request for memory failed %d times", h.Evidence[0].Count)
	return []Hit{h}, nil
}

var memoryFullRule = Rule{
	ID:     "memory-near-limit",
	About:  "more than 95% of a GPU's memory was in use, according to NVML",
	Report: "memory --reconcile",
	advice: "A larger batch or another process will probably run out of memory. NVML counts PyTorch's cache as used: " +
		"gpurec analyze allocator shows how much of it is free.",
	check: checkMemoryFull,
}

func checkMemoryFull(s *Scan) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.listUsedGPUs() {
		used, total := gpu.MemoryOfDevice(s.series, device)
		if used == nil {
			continue
		}
		high := func(v float64) bool { return v > gpu.FullMemoryShare*total }
		at := slices.IndexFunc(used.Values, high)
		if at < 0 {
			continue
		}
		most := units.RoundInt(slices.Max(used.Values))
		h := s.newHit(
			SeverityNotice,
			"%s of %s in use",
			units.FormatBytes(most),
			units.FormatBytes(units.RoundInt(total)),
		)
		h.Reasons, h.Confidence = nil, report.ConfidenceHigh // lost calls do not affect NVML samples
		h.Evidence = []Evidence{
			{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(used.Values)),
				Ns:      units.RoundInt(used.SharePct(high) / 100 * used.CoveredNs()),
				Bytes:   most,
				FirstNs: used.AtNs[at],
				lastNs:  used.AtNs[lastMatchIndex(used.Values, high)],
				Detail:  fmt.Sprintf("more than 95%% in use for %.1f%% of the time", used.SharePct(high)),
			},
		}
		hits = append(hits, h)
	}
	return hits, nil
}

// lastMatchIndex returns the index of the last value for which matches returns true, or 0 if there
// is none.
func lastMatchIndex(values []float64, matches func(float64) bool) int {
	for i := len(values) - 1; i > 0; i-- {
		if matches(values[i]) {
			return i
		}
	}
	return 0
}
