package timeline

import "github.com/gpurec/gpurec/format"

// NoResult are the flags of calls whose result means nothing.
const NoResult = format.FlagOpen | format.FlagAbandoned | format.FlagNoReturn

// IsLane reports whether calls of the kind give a stream something to do.
func IsLane(kind string) bool {
	return kind == format.KindLaunch || kind == format.KindMemcpy || kind == format.KindMemset
}
