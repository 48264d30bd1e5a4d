package oom

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// FailureClass is the reason of a failed allocation.
type FailureClass uint8

const (
	ClassCapacity      FailureClass = iota // free and unused memory together were smaller than the request
	ClassFragmentation                     // enough memory was free in total, but no free piece was large enough
	ClassCached                            // the request would have fit into whole segments in PyTorch's cache
	ClassLimit                             // the device had enough free memory, but a memory limit refused the request
	ClassOtherProcess                      // the request would have fit into memory that other processes used
	ClassUnknown                           // the free memory at the failure is unknown
	ClassCount                             // number of failure classes
)

func (c FailureClass) String() string {
	return [...]string{"capacity", "fragmentation", "cached", "limit", "other process", "unknown"}[c]
}

// Verdict is the class of a failure with its explanation and confidence.
type Verdict struct {
	Class          FailureClass
	Explanation    string // explanation of the class, part of a sentence
	Confidence     string
	Reasons        []string // reasons that lower the confidence
	ExpandableFits any      // result of Context.expandableFits
	// AlsoFragmentation means that the class is Limit, and that the request would have fit into
	// unused memory of the allocator if that were in one piece, with what the limit still permits.
	AlsoFragmentation bool
}

// ClassifyFailures returns the verdict of each failure. p is the program's memory at the end of the
// replay.
func ClassifyFailures(contexts []*FailureContext, p *timeline.ProgramMemory, q *report.Quality) []Verdict {
	frees := p.DriverCounts().Frees
	p.Allocators.EachAllocator(func(a *caching.Allocator) { frees += a.Counts.Frees })
	level, reasons := q.Confidence(frees)
	verdicts := make([]Verdict, len(contexts))
	for i, sc := range contexts {
		verdicts[i] = sc.classifyFailure()
		verdicts[i].setConfidence(sc, level, reasons)
	}
	return verdicts
}

// driverNeedBytes returns the number of bytes that the driver had to provide for the request.
func (c *FailureContext) driverNeedBytes() int64 {
	if c.driverBytes > 0 && !c.Expandable {
		return c.driverBytes
	}
	return c.Requested
}

// UnusedBytes returns the total size and the largest size of holes in the segments of the process's
// allocator, bytes.
func (c *FailureContext) UnusedBytes() (bytes, largest int64) {
	for _, s := range c.spaces {
		bytes += s.Unused
		largest = max(largest, s.Largest)
	}
	return bytes, largest
}

// expandableFits returns whether the request would have succeeded with expandable segments, at the
// same block addresses. "yes": whole steps of 20 MiB in holes are enough. "perhaps": whole pages of
// 2 MiB are enough. "no": neither. It returns nil if expandable segments are on, or if the request
// was not to an allocator.
func (c *FailureContext) expandableFits() any {
	if !c.hasAllocator || !c.byAllocator || c.Expandable || c.free.source == "" {
		return nil
	}
	least := c.returnable
	if !c.HitOwnLimit() ||
		c.free.bytes < c.driverNeedBytes() {
		least += c.free.bytes
	} else { // the limit allows returned memory, and perhaps a little more
		least += c.permittedBytes()
	}
	most := least
	for _, s := range c.spaces {
		least += s.SavedLeast
		most += s.Saved
	}
	switch need := units.RoundUp(c.Requested, caching.DriverPageBytes); {
	case least >= need:
		return "yes"
	case most >= need:
		return "perhaps"
	}
	return "no"
}

// classifyFailure returns the verdict of a failure. The first condition that holds applies:
//
//	limit          the request was for host memory, or the device had enough free memory.
//	               Also fragmentation if the holes of the allocator together were enough
//	cached         enough with whole segments in PyTorch's cache, which return to the driver
//	               only when PyTorch's allocator frees its cache
//	fragmentation  enough with all holes of segments
//	other process  enough with the memory of other processes
//	capacity       not enough with all of these
//
// The class is unknown if the free memory is unknown.
func (c *FailureContext) classifyFailure() Verdict {
	unused, _ := c.UnusedBytes()
	free, need := c.free.bytes, c.driverNeedBytes()
	others, _ := c.free.others.(int64)
	v := Verdict{ExpandableFits: c.expandableFits()}
	switch {
	case !c.isDeviceRequest():
		v.Class = ClassLimit
		v.Explanation = fmt.Sprintf("memory of kind %s is host memory: the host, a limit on locked memory or a cgroup "+
			"refused the request, not the device", c.memory)
	case c.free.source == "":
		v.Class = ClassUnknown
		v.Explanation = "the recording has no sample of the free memory, from the program or from NVML"
	case free >= need && c.free.source == freeFromUpperBound:
		v.Class = ClassUnknown
		v.Explanation = fmt.Sprintf(
			"%s of the device were not in use by recorded calls, but there is no sample of the free memory",
			units.FormatBytes(free),
		)
	case free >= need:
		v.Class, v.Explanation, v.AlsoFragmentation = ClassLimit, c.limitText(), c.wouldFitInOnePiece()
		v.Explanation += c.underLimitText(v.AlsoFragmentation)
	case c.returnable > 0 && free+c.returnable >= need:
		v.Class = ClassCached
		v.Explanation = fmt.Sprintf(
			"%s were free, and %s more in whole segments of PyTorch's cache",
			units.FormatBytes(free),
			units.FormatBytes(c.returnable),
		)
	case unused > 0 && free+unused >= c.Requested:
		v.Class, v.Explanation = ClassFragmentation, c.fragmentedText(unused)
	case others > 0 && free+unused+others >= need:
		v.Class = ClassOtherProcess
		v.Explanation = fmt.Sprintf(
			"%s were free, and other processes used %s (%s)",
			c.FreeText(),
			units.FormatBytes(others),
			strings.Join(c.free.otherNames, ", "),
		)
	default:
		v.Class = ClassCapacity
		v.Explanation = fmt.Sprintf("%s were free", c.FreeText())
		if c.hasAllocator {
			v.Explanation += fmt.Sprintf(", and %s unused in the allocator's segments", units.FormatBytes(unused))
		}
	}
	if text, ok := expandableFitsText[v.ExpandableFits]; ok && (v.Class == ClassFragmentation || v.AlsoFragmentation) {
		v.Explanation += text
	}
	return v
}

// expandableFitsText has the sentence for each value of Verdict.ExpandableFits.
var expandableFitsText = map[any]string{
	"no": "; expandable segments would not have helped: the holes contain too few whole pages",
	"perhaps": "; expandable segments would have helped if blocks were closer together: the holes contain enough " +
		"whole pages of 2 MiB, but too few steps of 20 MiB",
	"yes": "; with expandable segments the request would have succeeded",
}

// FreeText returns the free memory of the device as text, such as "at most 1 GiB".
func (c *FailureContext) FreeText() string {
	if c.free.source == freeFromUpperBound {
		return "at most " + units.FormatBytes(c.free.bytes)
	}
	return units.FormatBytes(c.free.bytes)
}

// limitText returns a sentence on the limit that may have refused the request.
func (c *FailureContext) limitText() string {
	free := fmt.Sprintf("%s were free by %s", units.FormatBytes(c.free.bytes), c.free.source)
	switch {
	case c.limit > 0:
		return fmt.Sprintf("%s, and the allocator gave up without calling the driver: it may hold %s by "+
			"set_per_process_memory_fraction, and held %s", free, units.FormatBytes(c.limit),
			units.FormatBytes(c.totals.Reserved))
	case c.byAllocator && c.driverCalls == 0:
		return free + ", and the allocator gave up without calling the driver: it has a limit, such as " +
			"set_per_process_memory_fraction or that of a pool"
	case c.memory == format.MemoryAsync:
		return free + ", and the driver refused: the pool may have a maximum size"
	}
	return free + ", and the driver refused: a limit of a MIG slice, a cgroup or a quota, or another allocation at " +
		"the same time"
}

// permittedBytes returns how many bytes the allocator's own limit certainly still permitted at the failure.
func (c *FailureContext) permittedBytes() int64 {
	return max(0, max(c.limit, c.limitLeast)-c.totals.Reserved)
}

// wouldFitInOnePiece reports whether the holes of the allocator together were large enough for the
// request, with what the limit still permitted, and each hole was too small. PyTorch's own limit does not apply to holes.
func (c *FailureContext) wouldFitInOnePiece() bool {
	return c.hasAllocator && c.byAllocator && c.roundedSize > 0 && c.fragmented > 0 &&
		c.fragmented+c.permittedBytes() >= c.roundedSize
}

// underLimitText returns a sentence on unused memory of the allocator that did not help, or "".
func (c *FailureContext) underLimitText(wouldFit bool) string {
	_, largest := c.UnusedBytes()
	switch {
	case wouldFit && c.fragmented < c.roundedSize:
		return fmt.Sprintf(
			"; the request of %s would have succeeded if %s of unused memory were in whole segments, because the "+
				"limit%s still permits %s",
			units.FormatBytes(c.Requested),
			units.FormatBytes(c.fragmented),
			c.limitBoundsText(),
			units.FormatBytes(c.permittedBytes()),
		)
	case wouldFit:
		return fmt.Sprintf("; the request of %s would have succeeded if %s of unused memory were in one piece, or "+
			"without the limit%s",
			units.FormatBytes(c.Requested), units.FormatBytes(c.fragmented), c.limitBoundsText())
	case c.byAllocator && largest >= c.roundedSize && largest > 0:
		return fmt.Sprintf(
			"; an unused piece of %s does not help: it is for another stream, pool or size class",
			units.FormatBytes(largest),
		)
	}
	return ""
}

// limitBoundsText returns the allocator's own limit or its bounds as text, or "" if they are
// unknown.
func (c *FailureContext) limitBoundsText() string {
	switch {
	case c.limit > 0:
		return " of " + units.FormatBytes(c.limit)
	case c.limitBelow == 0:
		return ""
	case c.limitLeast == 0:
		return fmt.Sprintf(" of less than %s", units.FormatBytes(c.limitBelow))
	}
	return fmt.Sprintf(" of %s to %s", units.FormatBytes(c.limitLeast), units.FormatBytes(c.limitBelow))
}

// fragmentedText returns a sentence on the fragmentation of the free memory. unused is in bytes.
func (c *FailureContext) fragmentedText(unused int64) string {
	_, largest := c.UnusedBytes()
	text := fmt.Sprintf(
		"%s of the device were free and %s unused in segments, but the largest piece is %s",
		units.FormatBytes(c.free.bytes),
		units.FormatBytes(unused),
		units.FormatBytes(largest),
	)
	if largest >= c.Requested {
		text += " and cannot serve this request"
	}
	return text
}

// setConfidence sets the confidence of the verdict. level and reasons are those of the recording.
// Missing or old data about the failure lower them.
func (v *Verdict) setConfidence(sc *FailureContext, level string, reasons []string) {
	reasons = reasons[:len(reasons):len(reasons)]
	lower := func(to, reason string) {
		if level == report.ConfidenceHigh || to == report.ConfidenceLow {
			level = to
		}
		reasons = append(reasons, reason)
	}
	age := max(sc.free.ageNs, -sc.free.ageNs)
	switch {
	case !sc.isDeviceRequest():
	case v.Class == ClassUnknown:
		lower(report.ConfidenceLow, "the free memory is unknown")
	case sc.free.source == freeFromUpperBound:
		lower(report.ConfidenceMedium, "the free memory is known only from recorded allocations")
	case age > 1_000_000_000:
		lower(report.ConfidenceLow, fmt.Sprintf("the sample of the free memory is %s away", units.FormatDuration(age)))
	case age > 50_000_000:
		lower(
			report.ConfidenceMedium,
			fmt.Sprintf("the sample of the free memory is %s away", units.FormatDuration(age)),
		)
	}
	level, reasons = frag.LowerConfidence(sc.spaces, sc.unseen, level, reasons)
	if v.Class == ClassLimit && sc.byAllocator && sc.driverCalls > 0 {
		lower(report.ConfidenceLow, "the driver refused although enough memory was free")
	}
	v.Confidence, v.Reasons = level, reasons
}

// evidenceText returns a sentence with the numbers behind the verdict.
func (c *FailureContext) evidenceText(v *Verdict) string {
	parts := []string{fmt.Sprintf("requested %s; %s", units.FormatBytes(c.Requested), v.Explanation)}
	if c.byAllocator && c.driverCalls > 0 {
		parts = append(
			parts,
			fmt.Sprintf(
				"the driver refused %s, and the allocator returned %s to the driver in between",
				units.CountWithNoun(c.driverCalls, "time"),
				units.FormatBytes(c.returnedBytes),
			),
		)
	}
	if len(c.holders) > 0 {
		h := c.holders[0]
		blocks := units.CountWithNoun(h.Blocks, "block")
		parts = append(
			parts,
			fmt.Sprintf("%s held the most memory, %s in %s", h.site, units.FormatBytes(h.Bytes), blocks),
		)
	}
	switch c.Outcome {
	case OutcomeRetried:
		later := units.FormatDuration(c.outcomeNs - c.firstNs)
		parts = append(parts, fmt.Sprintf("the same request succeeded %s later", later))
	case OutcomeRecovered:
		later := units.FormatDuration(c.outcomeNs - c.AtNs)
		parts = append(parts, fmt.Sprintf("the thread allocated as much %s later", later))
	}
	if c.freedAfter > 0 {
		parts = append(parts, fmt.Sprintf("%s were freed within the next second", units.FormatBytes(c.freedAfter)))
	}
	text := strings.Join(parts, "; ") + "; confidence " + v.Confidence
	if len(v.Reasons) > 0 {
		text += ": " + strings.Join(v.Reasons, ", ")
	}
	return text
}
