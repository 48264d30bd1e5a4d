package livemem

import "github.com/gpurec/gpurec/format"

// Outcome returns the effect of a call whose op is that of a success, from its columns flags, result, ptr
// and bytes. It returns false for failed calls, and for frees that had not returned, because their effect
// is unknown.
func (o CallOp) Outcome(flags, result int32, ptr, bytes int64) (CallOp, bool) {
	unfinished := flags&(format.FlagOpen|format.FlagAbandoned) != 0
	captured := flags&format.FlagCaptured != 0
	switch {
	case o != OpAlloc:
		// Freeing a null pointer is valid and has no effect.
		return o, !unfinished && !captured && result == 0 && (ptr != 0 || o != OpFree)
	case unfinished:
		return OpAllocUnknownAddress, true
	case result != 0:
		return OpAllocFailed, true
	case ptr == 0:
		// cudaMalloc(0) succeeds with a null pointer and allocates nothing.
		return OpAllocUnknownAddress, bytes != 0 || flags&format.FlagUnreadable != 0
	case captured:
		return OpGraphAlloc, true
	}
	return OpAlloc, true
}
