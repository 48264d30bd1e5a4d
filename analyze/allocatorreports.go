package analyze

// An allocator that is known by its reports only (format.SourceReports) has blocks and totals,
// but no segments, pools and streams: all its blocks are strays, as those in segments from
// before the recording are. Of a block the size is told and not what was asked for. A free
// ends it at once. Reports come when the totals have changed already.

// limitsText says what all of that means to a reader.
const limitsText = "bytes are sizes of blocks, what was asked for rounded up; segments and what is unused in them, streams, pools and requests that failed are not known"
