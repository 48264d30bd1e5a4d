package streams

// overlapFinding is a reason why the work of a stream may not overlap with other work of its
// process.
type overlapFinding string

// Findings. They are values of the column "finding".
const (
	// findingLegacyDefault: the legacy default stream waits for all streams of its context that
	// were not created as non-blocking, and they wait for it (CUDA C++ Programming Guide, Default
	// Stream). The recording has no flags of stream creation.
	findingLegacyDefault overlapFinding = "may hold others up"
	// findingOnlyStream: no work can overlap, because no other stream of the process has work.
	findingOnlyStream overlapFinding = "only one"
)

// findOverlapLimits returns the finding of each stream. A stream without work has no finding.
func (sc *scan) findOverlapLimits() map[streamKey]overlapFinding {
	busy := make(map[processDevice]int)
	for key, w := range sc.streams {
		if w.operationCount() > 0 {
			busy[key.deviceOf()]++
		}
	}
	findings := make(map[streamKey]overlapFinding)
	for key, w := range sc.streams {
		switch {
		case w.operationCount() == 0:
		case busy[key.deviceOf()] == 1:
			findings[key] = findingOnlyStream
		case key.handle == legacyStreamHandle:
			findings[key] = findingLegacyDefault
		}
	}
	return findings
}
