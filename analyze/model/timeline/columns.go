package timeline

import "github.com/gpurec/gpurec/format"

// NoResultFlags are the flags of calls without a valid result.
const NoResultFlags = format.FlagOpen | format.FlagAbandoned | format.FlagNoReturn

// IsStreamWork reports whether calls of the kind enqueue work on a stream.
func IsStreamWork(kind string) bool {
	return kind == format.KindLaunch || kind == format.KindMemcpy || kind == format.KindMemset
}
