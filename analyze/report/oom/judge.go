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

// Class is the reason of a failure.
type Class uint8

const (
	Capacity      Class = iota // all free memory together was not enough
	Fragmentation              // enough was free in total, but no piece was large enough
	Cached                     // enough was free in PyTorch's cache, which the call could not use
	Limit                      // the device had enough free: a limit refused the request
	OtherProcess               // enough with the memory of other processes
	Unknown                    // the free memory is not known
	NumClasses                 // number of classes
)

func (c Class) String() string {
	return [...]string{"capacity", "fragmentation", "cached", "limit", "other process", "unknown"}[c]
}

// Verdict is the class of a failure, and what it rests on.
type Verdict struct {
	Class      Class
	Because    string
	Confidence string
	Reasons    []string
	Fits       any // would it have fit with expandable segments? See Context.expandableFits
	// Also is set if the class is Limit and the request would have fit into unused memory in one
	// piece.
	Also bool
}

// Judge returns a verdict for each failure; p is the program at the end of the replay.
func Judge(contexts []*Context, p *timeline.Program, q *report.Quality) []Verdict {
	frees := p.Counts().Frees
	p.Allocators.All(func(a *caching.Allocator) { frees += a.Counts.Frees })
	level, reasons := q.Confidence(frees)
	verdicts := make([]Verdict, len(contexts))
	for i, sc := range contexts {
		verdicts[i] = sc.judge()
		verdicts[i].trust(sc, level, reasons)
	}
	return verdicts
}

// need returns the bytes that the driver would have had to give.
func (sc *Context) need() int64 {
	if sc.asked > 0 && !sc.Expandable {
		return sc.asked
	}
	return sc.Requested
}

// Unused returns the sum of the gaps in the segments of the process's allocator, and the largest.
func (sc *Context) Unused() (bytes, largest int64) {
	for _, s := range sc.spaces {
		bytes += s.Unused
		largest = max(largest, s.Largest)
	}
	return bytes, largest
}

// expandableFits returns whether the request would have fit with expandable segments: "yes" if the
// whole steps of 20 MiB in gaps are enough, "perhaps" if the whole pages of 2 MiB are, else "no". It
// returns nil if these segments are on, or the request was not to an allocator. Blocks would have
// other addresses then.
func (sc *Context) expandableFits() any {
	if !sc.hasAllocator || !sc.byAllocator || sc.Expandable || sc.free.source == "" {
		return nil
	}
	least := sc.whole
	if !sc.HitOwnLimit() || sc.free.bytes < sc.need() { // below a limit only what went back could be had again
		least += sc.free.bytes
	}
	most := least
	for _, s := range sc.spaces {
		least += s.SavedLeast
		most += s.Saved
	}
	switch need := units.RoundUp(sc.Requested, caching.PageBytes); {
	case least >= need:
		return "yes"
	case most >= need:
		return "perhaps"
	}
	return "no"
}

// judge returns the verdict of a failure. The first of these that holds:
//
//	limit          the request was for host memory, or the device had enough free; also
//	               fragmentation if the gaps of the allocator were enough together
//	cached         enough with whole segments of PyTorch's cache, which go back to the driver
//	               only if PyTorch is asked
//	fragmentation  enough with all gaps of segments
//	other process  enough with the memory of other processes
//	capacity       not enough with all of that
//
// It is unknown if the free memory is not known.
func (sc *Context) judge() Verdict {
	unused, _ := sc.Unused()
	free, need := sc.free.bytes, sc.need()
	others, _ := sc.free.others.(int64)
	v := Verdict{Fits: sc.expandableFits()}
	switch {
	case !sc.onDevice():
		v.Class = Limit
		v.Because = fmt.Sprintf("memory of kind %s is the host's: what the host, a limit on locked memory or a "+
			"cgroup allows counts, not the device", sc.memory)
	case sc.free.source == "":
		v.Class = Unknown
		v.Because = "neither the program nor NVML asked how much was free"
	case free >= need && sc.free.source == atMost:
		v.Class = Unknown
		v.Because = fmt.Sprintf(
			"%s of the device are not known to be used, and nobody asked how much was free",
			units.Bytes(free),
		)
	case free >= need:
		v.Class, v.Because, v.Also = Limit, sc.limitText(), sc.wouldFitInOnePiece()
		v.Because += sc.underLimitText(v.Also)
	case sc.whole > 0 && free+sc.whole >= need:
		v.Class = Cached
		v.Because = fmt.Sprintf(
			"%s were free, and %s more in whole segments of PyTorch's cache",
			units.Bytes(free),
			units.Bytes(sc.whole),
		)
	case unused > 0 && free+unused >= sc.Requested:
		v.Class, v.Because = Fragmentation, sc.fragmentedText(unused)
	case others > 0 && free+unused+others >= need:
		v.Class = OtherProcess
		v.Because = fmt.Sprintf(
			"%s free, and other processes used %s (%s)",
			sc.FreeText(),
			units.Bytes(others),
			strings.Join(sc.free.othersNamed, ", "),
		)
	default:
		v.Class = Capacity
		v.Because = fmt.Sprintf("%s free", sc.FreeText())
		if sc.hasAllocator {
			v.Because += fmt.Sprintf(", %s of the allocator's memory unused", units.Bytes(unused))
		}
	}
	if text, ok := fitsText[v.Fits]; ok && (v.Class == Fragmentation || v.Also) {
		v.Because += text
	}
	return v
}

// fitsText has the texts of Verdict.Fits for failures by fragmentation.
var fitsText = map[any]string{
	"no": "; expandable segments would not have helped: the pieces hold too few whole pages",
	"perhaps": "; expandable segments would have helped if blocks had come to lie closer together: the pieces hold " +
		"enough whole pages of 2 MiB, but not enough of the 20 MiB that PyTorch gives back at once",
	"yes": "; with expandable segments it would have fitted",
}

// FreeText returns the free memory of the device, in words.
func (sc *Context) FreeText() string {
	if sc.free.source == atMost {
		return "at most " + units.Bytes(sc.free.bytes)
	}
	return units.Bytes(sc.free.bytes)
}

// limitText says which limit may have refused the request, in words.
func (sc *Context) limitText() string {
	free := fmt.Sprintf("%s were free by %s", units.Bytes(sc.free.bytes), sc.free.source)
	switch {
	case sc.byAllocator && sc.calls == 0:
		return free + ", and the allocator gave up without asking the driver: a limit on it, such as " +
			"set_per_process_memory_fraction or one of a pool"
	case sc.memory == format.MemoryAsync:
		return free + ", and the driver refused: the pool may have a maximum"
	}
	return free + ", and the driver refused: a limit such as that of a MIG slice, a cgroup or a quota, or memory " +
		"that came and went"
}

// wouldFitInOnePiece reports whether the gaps of the allocator were enough for the request together,
// and each of them too small. PyTorch's limit does not apply to gaps.
func (sc *Context) wouldFitInOnePiece() bool {
	return sc.hasAllocator && sc.byAllocator && sc.size > 0 && sc.fragmented >= sc.size
}

// underLimitText says why unused memory of the allocator did not help, in words.
func (sc *Context) underLimitText(wouldFit bool) string {
	_, largest := sc.Unused()
	switch {
	case wouldFit:
		return fmt.Sprintf("; the request of %s would have fit into %s of unused memory in one piece, or without "+
			"the limit%s",
			units.Bytes(sc.Requested), units.Bytes(sc.fragmented), sc.limitBounds())
	case sc.byAllocator && largest >= sc.size && largest > 0:
		return fmt.Sprintf(
			"; an unused piece of %s is of no use here: it is of another stream, pool or size",
			units.Bytes(largest),
		)
	}
	return ""
}

// limitBounds returns the bounds of the allocator's limit, in words; "" if they are not known.
func (sc *Context) limitBounds() string {
	switch {
	case sc.limitBelow == 0:
		return ""
	case sc.limitLeast == 0:
		return fmt.Sprintf(" of less than %s", units.Bytes(sc.limitBelow))
	}
	return fmt.Sprintf(" of %s to %s", units.Bytes(sc.limitLeast), units.Bytes(sc.limitBelow))
}

// fragmentedText says how the free memory was fragmented, in words.
func (sc *Context) fragmentedText(unused int64) string {
	_, largest := sc.Unused()
	text := fmt.Sprintf(
		"%s of the device were free and %s unused in segments, but the largest piece has %s",
		units.Bytes(sc.free.bytes),
		units.Bytes(unused),
		units.Bytes(largest),
	)
	if largest >= sc.Requested {
		text += " and is of no use here"
	}
	return text
}

// trust sets the confidence: level and reasons are those of the recording, and gaps in what is known
// of the failure lower them.
func (v *Verdict) trust(sc *Context, level string, reasons []string) {
	reasons = reasons[:len(reasons):len(reasons)]
	lower := func(to, reason string) {
		if level == report.ConfidenceHigh || to == report.ConfidenceLow {
			level = to
		}
		reasons = append(reasons, reason)
	}
	age := max(sc.free.ageNs, -sc.free.ageNs)
	switch {
	case !sc.onDevice():
	case v.Class == Unknown:
		lower(report.ConfidenceLow, "free memory is not known")
	case sc.free.source == atMost:
		lower(report.ConfidenceMedium, "free memory is only known by what calls allocated")
	case age > 1_000_000_000:
		lower(report.ConfidenceLow, fmt.Sprintf("free memory is as of %s away", units.Duration(age)))
	case age > 50_000_000:
		lower(report.ConfidenceMedium, fmt.Sprintf("free memory is as of %s away", units.Duration(age)))
	}
	level, reasons = frag.LowerConfidence(sc.spaces, sc.unseen, level, reasons)
	if v.Class == Limit && sc.byAllocator && sc.calls > 0 {
		lower(report.ConfidenceLow, "the driver refused what it had free")
	}
	v.Confidence, v.Reasons = level, reasons
}

// evidence returns what the verdict rests on, in words.
func (sc *Context) evidence(v *Verdict) string {
	parts := []string{fmt.Sprintf("asked for %s; %s", units.Bytes(sc.Requested), v.Because)}
	if sc.byAllocator && sc.calls > 0 {
		parts = append(
			parts,
			fmt.Sprintf(
				"the driver refused %s, %s were given back in between",
				units.Plural(sc.calls, "time"),
				units.Bytes(sc.returned),
			),
		)
	}
	if len(sc.holders) > 0 {
		h := sc.holders[0]
		parts = append(
			parts,
			fmt.Sprintf("%s held most, %s in %s", h.site, units.Bytes(h.Bytes), units.Plural(h.Blocks, "block")),
		)
	}
	switch sc.Outcome {
	case Retried:
		parts = append(parts, fmt.Sprintf("it succeeded %s later", units.Duration(sc.outcomeNs-sc.firstNs)))
	case Recovered:
		parts = append(parts, fmt.Sprintf("the thread got as much %s later", units.Duration(sc.outcomeNs-sc.AtNs)))
	}
	if sc.freedNext > 0 {
		parts = append(parts, fmt.Sprintf("%s were freed within the next second", units.Bytes(sc.freedNext)))
	}
	text := strings.Join(parts, "; ") + "; confidence " + v.Confidence
	if len(v.Reasons) > 0 {
		text += ": " + strings.Join(v.Reasons, ", ")
	}
	return text
}
