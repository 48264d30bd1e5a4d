package timeline

import "github.com/gpurec/gpurec/format"

// NoResult are the flags of calls without a valid result.
const NoResult = format.FlagOpen | format.FlagAbandoned | format.FlagNoReturn

// IsLane reports whether calls of the kind enqueue work on a stream.
func IsLane(kind string) bool {
	return kind == format.KindLaunch || kind == format.KindMemcpy || kind == format.KindMemset
}
