package pointers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Judge sets the confidence of each argument, and sorts the arguments: the most suspect first.
func (s *Scan) Judge(q *report.Quality) {
	for i := range s.Arguments {
		s.setConfidence(&s.Arguments[i], q)
	}
	rank := map[string]int{report.ConfidenceHigh: 0, report.ConfidenceMedium: 1, report.ConfidenceLow: 2}
	slices.SortStableFunc(s.Arguments, func(a, b Argument) int {
		return cmp.Or(
			cmp.Compare(a.Fault.EndNs, b.Fault.EndNs),
			cmp.Compare(a.State, b.State),
			cmp.Compare(rank[a.Level], rank[b.Level]),
			cmp.Compare(b.Launch.StartNs, a.Launch.StartNs),
			cmp.Compare(a.Index, b.Index),
			cmp.Compare(a.Inside, b.Inside),
		)
	})
}

// setConfidence sets the confidence and the reasons that lower it.
func (s *Scan) setConfidence(a *Argument, q *report.Quality) {
	a.Level = report.ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if a.Level == report.ConfidenceHigh || to == report.ConfidenceLow {
			a.Level = to
		}
		a.Reasons = append(a.Reasons, fmt.Sprintf(format, args...))
	}
	if n := q.LostMemoryEvents; n > 0 {
		to := report.ConfidenceMedium
		if n*1000 > q.Events {
			to = report.ConfidenceLow
		}
		lower(to, "%s", units.CountWithNoun(n, "lost memory call"))
	}
	if n := q.DamagedSegments; n > 0 {
		lower(report.ConfidenceLow, "%s damaged", units.CountWithNoun(n, "segment"))
	}
	if a.Layout == format.ArgumentsUnknown {
		lower(report.ConfidenceMedium, "the layout of the parameters is unknown")
	}
	if gap := s.t.UnrecordedLaunchNs(a.Launch.StartNs, a.Fault.EndNs); gap > 0 {
		lower(report.ConfidenceMedium, "launches were not recorded for %s before the error", units.FormatDuration(gap))
	}
	switch a.State {
	case fault.PointerFreed:
		if a.Memory == format.MemoryAsync {
			lower(report.ConfidenceMedium, "memory of a pool can stay mapped after its free")
		}
	case fault.PointerFreedLater:
		lower(report.ConfidenceLow, "the kernel may have ended before the free, which events can order")
	case fault.PointerCached:
		lower(report.ConfidenceLow, "memory in the allocator's cache stays mapped, so its use does not fail")
	case fault.PointerUnknown:
		lower(report.ConfidenceMedium, "the word may be a number")
		if !a.Fault.IsComplete || q.DroppedEvents > 0 {
			lower(report.ConfidenceLow, "the recording began after the process: the memory may be from before")
		}
		if n := q.UnknownAllocs; n > 0 {
			lower(report.ConfidenceLow, "%s returned an unknown address", units.CountWithNoun(n, "allocation"))
		}
	}
	if !a.agreesWithXid() {
		lower(report.ConfidenceLow, "the Xid names an address outside of this memory")
	}
}

// agreesWithXid reports whether the address that the Xid names is in the memory of the argument. Without such an
// address it returns true.
func (a *Argument) agreesWithXid() bool {
	address := a.Fault.Address
	if address == 0 {
		return true
	}
	if a.State == fault.PointerUnknown { // its size is unknown; the driver names an address of the same region
		const regionBytes = 1 << 30
		return address >= a.Word && address-a.Word < regionBytes
	}
	const pageBytes = 2 << 20 // the driver rounds addresses
	start := a.Start &^ (pageBytes - 1)
	return address >= start && address < units.EndOfRange(a.Start, max(a.Block.Bytes, 1)) ||
		address/pageBytes == a.Word/pageBytes
}

// IsUseAfterFree reports whether the argument points into memory that was freed before the launch.
func (a *Argument) IsUseAfterFree() bool { return a.State == fault.PointerFreed }

// Sites returns the call sites of the allocation and of the free, "" if unknown.
func (s *Scan) Sites(a *Argument) (allocated, freed string) {
	if a.State != fault.PointerUnknown && a.Block.Origin != origin.NoOrigin {
		allocated = s.t.SiteOfOrigin(a.Block.Origin)
	}
	if a.By != origin.NoOrigin {
		freed = s.t.SiteOfOrigin(a.By)
	}
	return allocated, freed
}

// LaunchSite returns the call site of the launch.
func (s *Scan) LaunchSite(a *Argument) string { return s.t.SiteOfCall(a.Launch.Stack, a.Launch.Site) }

// Text returns a sentence on the memory, its free and the launch.
func (s *Scan) Text(a *Argument) string {
	at := func(ns int64) string { return units.FormatDuration(ns - s.t.RecordingWindow().FromNs) }
	allocated, freed := s.Sites(a)
	launch := fmt.Sprintf("%s passed %#x as %s of %s at %s (thread %d)", s.LaunchSite(a), uint64(a.Word), a.parameter(),
		cmp.Or(a.Launch.Kernel, a.Launch.Name), at(a.Launch.StartNs), a.Launch.Tid)
	var text string
	switch {
	case a.State == fault.PointerUnknown:
		text = launch + "; no recorded allocation has this address, but others are near it"
	case allocated == "":
		text = "the recording has no allocation of the block"
	case a.Block.IsEarlier():
		text = units.FormatBytes(a.Block.Bytes) + " of PyTorch were allocated before the recording"
	default:
		text = fmt.Sprintf("%s allocated %s at %s with %s", allocated, units.FormatBytes(a.Block.Bytes),
			at(a.Block.SinceNs), s.t.Origins.FunctionOf(a.Block.Origin))
	}
	if a.State != fault.PointerUnknown {
		by := fmt.Sprintf("its context ended at %s", at(a.FreedNs))
		if freed != "" {
			by = fmt.Sprintf(
				"%s freed it at %s with %s (thread %d)",
				freed,
				at(a.FreedNs),
				s.t.Origins.FunctionOf(a.By),
				s.t.Origins.List[a.By].Tid,
			)
		}
		when := fmt.Sprintf("%s after the free", units.FormatDuration(max(0, a.Launch.StartNs-a.FreedNs)))
		if a.State == fault.PointerFreedLater {
			when = fmt.Sprintf("%s before the free", units.FormatDuration(max(0, a.FreedNs-a.Launch.StartNs)))
		}
		text += "; " + by + "; " + launch + ", " + when
		if a.Offset > 0 {
			text += fmt.Sprintf(", %s after the start of the block", units.FormatBytes(a.Offset))
		}
	}
	if address := a.Fault.Address; address != 0 && a.agreesWithXid() {
		text += fmt.Sprintf("; the Xid names the address %#x", uint64(address))
	}
	return text + "; " + report.ConfidenceText(a.Level, a.Reasons)
}

// parameter names the parameter of the word.
func (a *Argument) parameter() string {
	text := fmt.Sprintf("parameter %d", a.Index)
	if a.Inside > 0 {
		text += fmt.Sprintf(", byte %d,", a.Inside)
	}
	return text
}
