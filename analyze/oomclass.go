package analyze

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// oomClass says why memory could not be had.
type oomClass uint8

const (
	oomCapacity      oomClass = iota // not even all free memory would have been enough
	oomFragmentation                 // enough is free in total, but no piece is large enough
	oomCached                        // enough is free in whole pieces of a cache that the call could not reach
	oomLimit                         // the device has enough free: somebody said no
	oomOtherProcess                  // it would have been enough without other processes
	oomUnknown
	numOOMClasses
)

func (c oomClass) String() string {
	return [...]string{"capacity", "fragmentation", "cached", "limit", "other process", "unknown"}[c]
}

// oomVerdict is the class of a failure with what it rests on.
type oomVerdict struct {
	class      oomClass
	because    string
	confidence string
	reasons    []string
	fits       any // see expandableFits
	// also: class limit, and the request would have fit without fragmentation too.
	also bool
}

// need is how much the driver would have had to give.
func (sc *scene) need() int64 {
	if sc.asked > 0 && !sc.expandable {
		return sc.asked
	}
	return sc.requested
}

// unused returns the bytes of gaps in the segments of the process's caching allocator.
func (sc *scene) unused() (bytes, largest int64) {
	for _, s := range sc.spaces {
		bytes += s.Unused
		largest = max(largest, s.Largest)
	}
	return bytes, largest
}

// expandableFits tells whether a request would have been met with expandable segments:
// yes if all that is whole in PyTorch's own steps is enough, perhaps if all whole pages
// are, else no; nil where that is no question. Blocks would lie in other places then.
func (sc *scene) expandableFits() any {
	if !sc.hasAllocator || !sc.byAllocator || sc.expandable || sc.free.source == "" {
		return nil
	}
	least := sc.whole
	if !sc.hitOwnLimit() || sc.free.bytes < sc.need() { // below a limit only what went back could be had again
		least += sc.free.bytes
	}
	most := least
	for _, s := range sc.spaces {
		least += s.SavedLeast
		most += s.Saved
	}
	switch need := units.RoundUp(sc.requested, caching.PageBytes); {
	case least >= need:
		return "yes"
	case most >= need:
		return "perhaps"
	}
	return "no"
}

// judge says of which class a failure is. In this order:
//
//	limit          memory of the host; or the device had enough free; also fragmentation if the
//	               allocator's gaps were enough together
//	cached         enough with whole segments of PyTorch's cache, which the driver gets
//	               back only if PyTorch asks
//	fragmentation  enough with all that is free in segments
//	other process  enough with what other processes use
//	capacity       the rest
//	unknown        nobody tells what was free
func (sc *scene) judge() oomVerdict {
	unused, _ := sc.unused()
	free, need := sc.free.bytes, sc.need()
	others, _ := sc.free.others.(int64)
	v := oomVerdict{fits: sc.expandableFits()}
	switch {
	case !sc.onDevice():
		v.class = oomLimit
		v.because = fmt.Sprintf("memory of kind %s is the host's: what the host, a limit on locked memory or a cgroup allows counts, not the device", sc.memory)
	case sc.free.source == "":
		v.class = oomUnknown
		v.because = "neither the program nor NVML asked how much was free"
	case free >= need && sc.free.source == atMost:
		v.class = oomUnknown
		v.because = fmt.Sprintf("%s of the device are not known to be used, and nobody asked how much was free", units.Bytes(free))
	case free >= need:
		v.class, v.because, v.also = oomLimit, sc.limitText(), sc.wouldFitInOnePiece()
		v.because += sc.underLimitText(v.also)
	case sc.whole > 0 && free+sc.whole >= need:
		v.class = oomCached
		v.because = fmt.Sprintf("%s were free, and %s more in whole segments of PyTorch's cache", units.Bytes(free), units.Bytes(sc.whole))
	case unused > 0 && free+unused >= sc.requested:
		v.class, v.because = oomFragmentation, sc.fragmentedText(unused)
	case others > 0 && free+unused+others >= need:
		v.class = oomOtherProcess
		v.because = fmt.Sprintf("%s free, and other processes used %s (%s)", sc.freeText(), units.Bytes(others), strings.Join(sc.free.othersNamed, ", "))
	default:
		v.class = oomCapacity
		v.because = fmt.Sprintf("%s free", sc.freeText())
		if sc.hasAllocator {
			v.because += fmt.Sprintf(", %s of the allocator's memory unused", units.Bytes(unused))
		}
	}
	if text, ok := fitsText[v.fits]; ok && (v.class == oomFragmentation || v.also) {
		v.because += text
	}
	return v
}

// fitsText says whether expandable segments would have helped against fragmentation.
var fitsText = map[any]string{
	"no":      "; expandable segments would not have helped: the pieces hold too few whole pages",
	"perhaps": "; expandable segments would have helped if blocks had come to lie closer together: the pieces hold enough whole pages of 2 MiB, but not enough of the 20 MiB that PyTorch gives back at once",
	"yes":     "; with expandable segments it would have fitted",
}

// freeText says what was free on the device.
func (sc *scene) freeText() string {
	if sc.free.source == atMost {
		return "at most " + units.Bytes(sc.free.bytes)
	}
	return units.Bytes(sc.free.bytes)
}

func (sc *scene) limitText() string {
	free := fmt.Sprintf("%s were free by %s", units.Bytes(sc.free.bytes), sc.free.source)
	switch {
	case sc.byAllocator && sc.calls == 0:
		return free + ", and the allocator gave up without asking the driver: a limit on it, such as set_per_process_memory_fraction or one of a pool"
	case sc.memory == format.MemoryAsync:
		return free + ", and the driver refused: the pool may have a maximum"
	}
	return free + ", and the driver refused: a limit such as that of a MIG slice, a cgroup or a quota, or memory that came and went"
}

// wouldFitInOnePiece reports whether an allocator's gaps were enough for the request together, and
// each of them too small. PyTorch's limit does not count then: it is about memory from the driver.
func (sc *scene) wouldFitInOnePiece() bool {
	return sc.hasAllocator && sc.byAllocator && sc.size > 0 && sc.fragmented >= sc.size
}

// underLimitText says what a limit has to do with the allocator's unused memory.
func (sc *scene) underLimitText(wouldFit bool) string {
	_, largest := sc.unused()
	switch {
	case wouldFit:
		return fmt.Sprintf("; the request of %s would have fit into %s of unused memory in one piece, or without the limit%s",
			units.Bytes(sc.requested), units.Bytes(sc.fragmented), sc.limitBounds())
	case sc.byAllocator && largest >= sc.size && largest > 0:
		return fmt.Sprintf("; an unused piece of %s is of no use here: it is of another stream, pool or size", units.Bytes(largest))
	}
	return ""
}

// limitBounds says between which bounds the allocator's limit lies, "" if nothing is known of it.
func (sc *scene) limitBounds() string {
	switch {
	case sc.limitBelow == 0:
		return ""
	case sc.limitLeast == 0:
		return fmt.Sprintf(" of less than %s", units.Bytes(sc.limitBelow))
	}
	return fmt.Sprintf(" of %s to %s", units.Bytes(sc.limitLeast), units.Bytes(sc.limitBelow))
}

func (sc *scene) fragmentedText(unused int64) string {
	_, largest := sc.unused()
	text := fmt.Sprintf("%s of the device were free and %s unused in segments, but the largest piece has %s", units.Bytes(sc.free.bytes), units.Bytes(unused), units.Bytes(largest))
	if largest >= sc.requested {
		text += " and is of no use here"
	}
	return text
}

// trust sets the confidence: the recording's, lowered for what is thin about one failure.
func (v *oomVerdict) trust(sc *scene, level string, reasons []string) {
	reasons = reasons[:len(reasons):len(reasons)]
	lower := func(to, reason string) {
		if level == confidenceHigh || to == confidenceLow {
			level = to
		}
		reasons = append(reasons, reason)
	}
	age := max(sc.free.ageNs, -sc.free.ageNs)
	switch {
	case !sc.onDevice():
	case v.class == oomUnknown:
		lower(confidenceLow, "free memory is not known")
	case sc.free.source == atMost:
		lower(confidenceMedium, "free memory is only known by what calls allocated")
	case age > 1_000_000_000:
		lower(confidenceLow, fmt.Sprintf("free memory is as of %s away", units.Duration(age)))
	case age > 50_000_000:
		lower(confidenceMedium, fmt.Sprintf("free memory is as of %s away", units.Duration(age)))
	}
	d := fragDetail{spaces: sc.spaces, unseen: sc.unseen}
	level, reasons = d.trust(level, reasons)
	if v.class == oomLimit && sc.byAllocator && sc.calls > 0 {
		lower(confidenceLow, "the driver refused what it had free")
	}
	v.confidence, v.reasons = level, reasons
}
