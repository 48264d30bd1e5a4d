//go:build linux

package memory

import (
	"errors"

	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// Process is the process whose memory is shown.
type Process struct {
	Pid     int
	Comm    string
	Version string // of PyTorch, "" if it is unknown
}

// Device is the result of a reading of one device. Sizes are in bytes, times in Unix ns.
type Device struct {
	Device  int     `json:"device"`
	UnixNs  int64   `json:"read_unix_ns"`
	Refused string  `json:"refused,omitempty"` // the reason if the memory is unknown or not proved
	Holder  *Holder `json:"lock_holder,omitempty"`
	*Memory         // nil if it is unknown
}

// Holder is the thread that held the allocator's lock during the whole reading.
type Holder struct {
	Tid          int    `json:"tid,omitempty"` // in gpurec's PID namespace
	NamespaceTid int    `json:"namespace_tid"`
	Name         string `json:"name,omitempty"`
	HeldNs       int64  `json:"held_at_least_ns"`
	SystemCall   string `json:"system_call,omitempty"`
	WaitPlace    string `json:"kernel_function,omitempty"`
}

// Memory is the memory of the allocator of one device. Sizes are in bytes.
type Memory struct {
	IsProved        bool  `json:"proved"` // the allocator changed nothing meanwhile, and all totals agree
	AllocatedBytes  int64 `json:"allocated_bytes"`
	AllocatedBlocks int64 `json:"allocated_blocks"`
	RequestedBytes  int64 `json:"requested_bytes"` // of allocated blocks, and of those that await a stream
	AwaitingBytes   int64 `json:"awaiting_bytes"`  // of blocks that the program freed and a stream still uses
	AwaitingBlocks  int64 `json:"awaiting_blocks"`
	ReservedBytes   int64 `json:"reserved_bytes"`
	Segments        int64 `json:"segments"`      // without mapped ranges
	MappedRanges    int64 `json:"mapped_ranges"` // of expandable segments
	FreeBytes       int64 `json:"free_bytes"`    // cached bytes inside segments
	FreePieces      int64 `json:"free_pieces"`
	LargestFree     int64 `json:"largest_free_bytes"` // largest free piece of all pools
	// LargestRequest is the largest request that fits into the default pool without a new segment, for the stream
	// LargestRequestStream. 0: none does.
	LargestRequest       int64  `json:"largest_request_bytes"`
	LargestRequestStream string `json:"largest_request_stream,omitempty"`
	UnusedSegments       int64  `json:"unused_segments"` // segments and mapped ranges of the default pool without blocks
	UnusedSegmentBytes   int64  `json:"unused_segment_bytes"`
	LimitBytes           int64  `json:"limit_bytes,omitempty"` // limit of reserved bytes that the program has set

	Pools      []Pool     `json:"pools"` // the largest first
	Sizes      []Size     `json:"sizes"` // of blocks in use, those with most bytes first
	OtherSizes SizeSum    `json:"other_sizes"`
	Sparse     []Segment  `json:"sparse_segments"` // that few bytes keep, the largest first
	AllSparse  SegmentSum `json:"all_sparse_segments"`
	Proof      Proof      `json:"proof"`
}

// Pool is the memory of one pool, for blocks of one kind and one stream.
type Pool struct {
	Pool           string    `json:"pool"` // as in reports: default, graph 2, private 1
	ID             [2]uint64 `json:"pool_id"`
	SegmentsOf     string    `json:"segments_of"` // small or large, and whether they are expandable
	Stream         string    `json:"stream"`
	Segments       int64     `json:"segments"` // or mapped ranges
	ReservedBytes  int64     `json:"reserved_bytes"`
	AllocatedBytes int64     `json:"allocated_bytes"`
	AwaitingBytes  int64     `json:"awaiting_bytes"`
	FreeBytes      int64     `json:"free_bytes"`
	LargestFree    int64     `json:"largest_free_bytes"`
	Blocks         int64     `json:"blocks"` // in use by the program or a stream
}

// Size sums up the blocks of one requested size.
type Size struct {
	RequestedBytes int64 `json:"requested_bytes"`
	Blocks         int64 `json:"blocks"`
	Bytes          int64 `json:"bytes"` // of the blocks, which are rounded up
}

// SizeSum sums up the sizes that are not listed.
type SizeSum struct {
	Sizes  int64 `json:"sizes"`
	Blocks int64 `json:"blocks"`
	Bytes  int64 `json:"bytes"`
}

// Segment is a segment that few bytes keep: less than a quarter is used. A mapped range is none, because its free pages
// can be released.
type Segment struct {
	Address   string `json:"address"` // hexadecimal: JSON numbers have 53 bits
	Bytes     int64  `json:"bytes"`
	UsedBytes int64  `json:"used_bytes"` // of blocks in use by the program or a stream
	Blocks    int64  `json:"blocks"`
	Pool      string `json:"pool"`
	Stream    string `json:"stream"`
}

// SegmentSum sums up segments, also those that are not listed.
type SegmentSum struct {
	Segments  int64 `json:"segments"`
	FreeBytes int64 `json:"free_bytes"`
}

// Proof says how the memory was read, and whether the blocks add up to the allocator's own statistics.
type Proof struct {
	Totals      int     `json:"totals"`
	TotalsAgree int     `json:"totals_agree"`
	Differing   []Total `json:"differing_totals"`
	ReadNs      int64   `json:"read_ns"`
	Tries       int     `json:"tries"`
	Calls       int     `json:"calls"`
	ReadBytes   int64   `json:"read_bytes"`
	Layout      string  `json:"layout,omitempty"` // the newest version of PyTorch with this layout
}

// Total is a statistic of the allocator that its blocks contradict.
type Total struct {
	Name       string `json:"name"`
	Blocks     uint64 `json:"blocks"`
	Statistics uint64 `json:"statistics"`
}

// NewDevice returns a reading with at most top sizes of blocks.
func NewDevice(r *record.TorchReading, top int) Device {
	d := Device{Device: r.Device, UnixNs: r.UnixNs, Holder: newHolder(r)}
	if r.Refused != nil {
		d.Refused = r.Refused.Error()
	}
	if r.State != nil {
		d.Memory = newMemory(r.State, top)
		d.IsProved = r.Refused == nil
	}
	return d
}

// IsEmpty reports whether the allocator has no memory.
func (d *Device) IsEmpty() bool {
	return d.Memory != nil && d.Refused == "" && d.ReservedBytes == 0 && d.AllocatedBlocks == 0
}

func newHolder(r *record.TorchReading) *Holder {
	var busy *torchallocator.BusyError
	if r.Holder == nil || !errors.As(r.Refused, &busy) {
		return nil
	}
	return &Holder{
		Tid: r.Holder.Tid, NamespaceTid: r.Holder.NamespaceTid, Name: r.Holder.Name, HeldNs: busy.Held.Nanoseconds(),
		SystemCall: r.Holder.SystemCall, WaitPlace: r.Holder.WaitPlace,
	}
}
