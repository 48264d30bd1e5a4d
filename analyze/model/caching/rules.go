package caching

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

// Constants of PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp). They have not
// changed since version 1.7.
const (
	BlockUnitBytes       = 512     // block sizes are multiples of it
	MaxSmallRequestBytes = 1 << 20 // largest request that is placed in a segment of SmallSegmentBytes bytes
	// SmallSegmentBytes is the size of a segment for small blocks.
	SmallSegmentBytes = 2 << 20
	LargeSegmentBytes = 20 << 20 // segment size for requests below half of it
)

// AllocatorRules are the parts of an allocator's configuration that determine block and segment
// sizes. The program can change the configuration, or use a version with other rules. If the
// allocator's totals show another size, the model takes the totals.
type AllocatorRules struct {
	MaxSplit   int64 // segments of more bytes are not split; 0: no limit
	Expandable bool
	// Divisions is the number of rounding steps between two powers of two. It is indexed by the
	// power of two, from 1 MiB on; the first entry also applies to smaller sizes. 0 and 1 mean no
	// such rounding.
	Divisions [16]int64
}

// ParseAllocatorRules parses PYTORCH_CUDA_ALLOC_CONF: comma-separated settings such as
// max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]. It ignores settings that it does not
// know.
func ParseAllocatorRules(conf string) AllocatorRules {
	var r AllocatorRules
	for conf = strings.ReplaceAll(conf, " ", ""); conf != ""; {
		var key, value string
		key, conf, _ = strings.Cut(conf, ":")
		if list, ok := strings.CutPrefix(conf, "["); ok {
			value, conf, _ = strings.Cut(list, "]")
			conf = strings.TrimPrefix(conf, ",")
			if key == "roundup_power2_divisions" {
				r.readDivisions(value)
			}
			continue
		}
		value, conf, _ = strings.Cut(conf, ",")
		switch n, _ := strconv.ParseInt(value, 10, 32); key {
		case "max_split_size_mb":
			r.MaxSplit = n << 20
		case "roundup_power2_divisions":
			for i := range r.Divisions {
				r.Divisions[i] = n
			}
		case "expandable_segments":
			r.Expandable = value == "True"
		}
	}
	return r
}

// readDivisions parses a list such as 256:1,512:2,>:8, with sizes in MiB. The first entry also
// applies to all smaller sizes. The entry > applies to all larger sizes.
func (r *AllocatorRules) readDivisions(list string) {
	last := -1
	for entry := range strings.SplitSeq(list, ",") {
		size, value, _ := strings.Cut(entry, ":")
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			continue
		}
		from, to := last+1, len(r.Divisions)
		if size != ">" {
			mib, err := strconv.ParseUint(size, 10, 32)
			if err != nil || mib == 0 {
				continue
			}
			to = min(bits.Len64(mib), len(r.Divisions))
			if last >= 0 {
				from = to - 1
			}
		}
		for i := from; i < to; i++ {
			r.Divisions[i] = n
		}
		last = to - 1
	}
}

// RoundBlockSize returns the block size for a request of the given bytes.
func (r *AllocatorRules) RoundBlockSize(bytes int64) int64 {
	if bytes < BlockUnitBytes {
		return BlockUnitBytes
	}
	power := bits.Len64(uint64(bytes)) - 1
	divisions := r.Divisions[min(max(0, power-20), len(r.Divisions)-1)]
	if divisions <= 1 || bytes <= BlockUnitBytes*divisions {
		return (bytes + BlockUnitBytes - 1) / BlockUnitBytes * BlockUnitBytes
	}
	step := int64(1) << power >> (bits.Len64(uint64(divisions)) - 1)
	switch {
	case bytes&(bytes-1) == 0:
		return bytes
	case step == 0:
		return 2 << power
	}
	return (bytes + step - 1) / step * step
}

// MaxSegmentSize returns the size of the largest segment that the allocator requests from the
// driver for a block of the given bytes.
func (r *AllocatorRules) MaxSegmentSize(bytes int64) int64 {
	switch {
	case bytes <= MaxSmallRequestBytes:
		return SmallSegmentBytes
	case bytes < LargeSegmentBytes/2 || r.Expandable:
		return units.RoundUp(bytes, LargeSegmentBytes)
	}
	return units.RoundUp(bytes, SmallSegmentBytes)
}

// splitsHole reports whether the allocator splits a hole when it places a block of size bytes in
// it. Otherwise the block takes the whole hole.
func (r *AllocatorRules) splitsHole(gap, size int64, small bool) bool {
	if small || r.Expandable {
		return gap-size >= BlockUnitBytes
	}
	return gap-size > MaxSmallRequestBytes && (r.MaxSplit == 0 || size < r.MaxSplit)
}
