package format

// Rows of kind block are readings of a caching allocator's memory at regular times: with record --blocks-every, and
// since 1.5 while allocator events are sampled. All rows of one reading have the same Pid, Device, StartNs, DurNs,
// AllocatedBytes and ReservedBytes. Its first row is BlocksRead. A row for each segment and each block that is gone
// since the reading before follows, and then one for each segment and each block that is new or changed. Since 1.4.

// KindBlock is a change of a segment or a block since the reading before, or the begin of a reading. Name is one of the
// names of rows of kind allocator_block, without BlockCached, or one of the constants below. Ptr, Bytes, SrcPtr,
// Stream, Value and Message are as in rows of kind allocator_block. The class is ClassBlock. Since 1.4.
const KindBlock = "block"

// Values of Row.Name in rows of kind block, in addition to those of rows of kind allocator_block.
const (
	// BlockSegmentGone is a segment or mapped range that the allocator had at the reading before.
	BlockSegmentGone = "segment_gone"
	// BlockGone is a block that was in use at the reading before.
	BlockGone = "block_gone"
	// BlocksRead begins a reading. Value is the number of blocks in use. Message is BlocksComplete if the rows of the
	// reading list all segments and blocks: those of earlier readings do not count any more. Bytes is the number of
	// bytes that were read from the process.
	BlocksRead = "read"
	// BlocksRefused is a reading that failed. It has no other rows. Message is the reason, as a clause.
	BlocksRefused = "refused"
	// BlockTotals are the allocator's own statistics at StartNs. The row belongs to no reading, and may come between
	// the rows of one. AllocatedBytes and ReservedBytes are the present totals, Bytes the peak of the allocated bytes
	// since the program last reset it. Value is the number of blocks that the allocator has allocated so far, Counter
	// the number that the program has freed. Since 1.5.
	BlockTotals = "totals"
)

// BlocksComplete is the Message of rows BlocksRead whose reading lists all segments and blocks.
const BlocksComplete = "all"
