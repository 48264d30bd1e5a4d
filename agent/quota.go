package agent

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
)

// captureTimeLayout is the time at the start of the ID of a capture.
const captureTimeLayout = "20060102T150405Z"

// stored is a sealed capture.
type stored struct {
	format.Capture
	at   time.Time
	kind string
}

// parseID returns time and kind of a capture, TIME-KIND-SUFFIX. They are zero for other names.
func parseID(id string) (at time.Time, kind string) {
	parts := strings.SplitN(id, "-", 3)
	if len(parts) < 3 {
		return time.Time{}, ""
	}
	at, err := time.Parse(captureTimeLayout, parts[0])
	if err != nil {
		return time.Time{}, ""
	}
	return at, parts[1]
}

// space bounds the captures in a file system.
type space struct {
	limits                Captures
	freeBytes, totalBytes int64
}

// missingFree returns how many bytes must be deleted for the share of the file system that stays free.
func (s *space) missingFree() int64 {
	return max(0, int64(float64(s.totalBytes)*s.limits.FreePct/100)-s.freeBytes)
}

// chooseExpired returns the captures to delete now: those that are too old, and the oldest ones until the others are
// within the limits. It never chooses the newest of a kind for the limits, nor a capture that is not sealed. enough
// says whether the limits hold afterwards.
func chooseExpired(all []format.Capture, s space, now time.Time) (expired []format.Capture, enough bool) {
	var sealed []stored
	var used int64
	for _, c := range all {
		used += c.Bytes
		if at, kind := parseID(c.ID); c.State == format.CaptureSuffix && kind != "" {
			sealed = append(sealed, stored{c, at, kind})
		}
	}
	slices.SortFunc(sealed, func(a, b stored) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.ID, b.ID))
	})
	newest := make(map[string]time.Time)
	for _, c := range sealed {
		newest[c.kind] = c.at
	}
	tooMuch := max(used-s.limits.Bytes, s.missingFree())
	for _, c := range sealed {
		old := s.limits.Keep > 0 && now.Sub(c.at) > s.limits.Keep
		if old || tooMuch > 0 && !c.at.Equal(newest[c.kind]) {
			expired = append(expired, c.Capture)
			tooMuch -= c.Bytes
		}
	}
	return expired, tooMuch <= 0
}
