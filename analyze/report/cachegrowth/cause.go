package cachegrowth

import "github.com/gpurec/gpurec/analyze/model/caching"

// Cause is the reason why requests need new segments although the cache has unused memory.
type Cause int

const (
	CauseLonger   Cause = iota // requests become larger than all free blocks
	CauseStreams               // free blocks that are large enough belong to other streams
	CausePools                 // free blocks that are large enough belong to other pools
	CauseStranded              // live blocks cut the free memory into pieces that are too small
	CauseUnknown               // the cache has too little unused memory for the request
	causeCount
)

// strandedShare is the share of the free bytes in segments with live blocks from which these blocks
// are the cause. Otherwise most free bytes are whole segments, which are too small.
const strandedShare = 0.5

// causeOf returns the cause for which the request of block b needed a new segment. free is the
// memory that was free before.
func causeOf(b *caching.SegmentPiece, free caching.FreeMemory) Cause {
	own := free.Own >= b.Size && free.OwnLargest < b.Size
	switch {
	case own && float64(free.OwnStranded) >= strandedShare*float64(free.Own):
		return CauseStranded
	case own:
		return CauseLonger
	case free.OtherStreams >= b.Size:
		return CauseStreams
	case b.Pool != 0 && free.OtherPools >= b.Size:
		return CausePools
	}
	return CauseUnknown
}

// largestKnownCause returns the cause with most bytes. CauseUnknown counts only if there is no other:
// live memory that grows, too, needs segments for itself.
func (ca *cache) largestKnownCause() Cause {
	cause := CauseLonger
	for c := range CauseUnknown {
		if ca.causes[c].bytes > ca.causes[cause].bytes {
			cause = c
		}
	}
	if ca.causes[cause].bytes == 0 {
		return CauseUnknown
	}
	return cause
}

// Advice returns the recommended action, in at most two sentences.
func (c Cause) Advice() string {
	return [...]string{
		CauseLonger: "Pad inputs to a few lengths (buckets), or start with the longest. Or set " +
			"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
		CauseStreams: "Create one or a few streams once, and reuse them. Or allocate on the current stream, and call " +
			"record_stream for the other one.",
		CausePools: "Share one pool between CUDA graphs: pass the same torch.cuda.graph_pool_handle() to each " +
			"capture. Or capture fewer graphs.",
		CauseStranded: "Free the live blocks earlier, or allocate them first: gpurec analyze frag names them. Or set " +
			"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
		CauseUnknown: "gpurec analyze frag shows the unused memory by size. Try " +
			"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
	}[c]
}
