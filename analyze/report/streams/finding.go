package streams

// finding is a reason why the work of a stream may not overlap with other work of its process.
type finding string

// Findings. They are values of the column "finding".
const (
	// findingLegacy: the legacy default stream waits for all streams of its context that were not
	// created as non-blocking, and they wait for it (CUDA C++ Programming Guide, Default Stream).
	// The recording has no flags of stream creation.
	findingLegacy finding = "may hold others up"
	// findingOnly: no work can overlap, because no other stream of the process has work.
	findingOnly finding = "only one"
)

// findOverlapLimits returns the finding of each stream. A stream without work has no finding.
func (sc *scan) findOverlapLimits() map[stream]finding {
	busy := make(map[processDevice]int)
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
