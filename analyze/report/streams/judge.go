package streams

// A finding says why the work of a stream may not overlap with other work of its process.
type finding string

const (
	// findingLegacy: the legacy default stream waits for all streams of its context that were not
	// created as non-blocking, and they wait for it (CUDA C++ Programming Guide, Default Stream). How
	// a stream was created is not recorded.
	findingLegacy finding = "may hold others up"
	// findingOnly: nothing can overlap, because no other stream of the process has work.
	findingOnly finding = "only one"
)

// judge returns the findings of streams. A stream without work has none.
func (sc *scan) judge() map[stream]finding {
	busy := make(map[deviceOf]int)
	for key, w := range sc.streams {
		if w.operations() > 0 {
			busy[key.deviceOf()]++
		}
	}
	findings := make(map[stream]finding)
	for key, w := range sc.streams {
		switch {
		case w.operations() == 0:
		case busy[key.deviceOf()] == 1:
			findings[key] = findingOnly
		case key.handle == streamLegacy:
			findings[key] = findingLegacy
		}
	}
	return findings
}
