package caching

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

// Sizes of PyTorch's CUDA caching allocator, c10/cuda/CUDACachingAllocator.cpp, the
// same since its version 1.7.
const (
	BlockUnit    = 512     // sizes of blocks are multiples of it
	SmallRequest = 1 << 20 // blocks up to this share segments of SmallSegment
	SmallSegment = 2 << 20
	LargeSegment = 20 << 20 // blocks below half of this share such segments
)

// Rules are how an allocator makes blocks of requests, as its configuration
// says. That may be changed by the program, or be of a version with other rules:
// where the allocator's totals tell another size, they are believed.
type Rules struct {
	MaxSplit   int64 // larger segments are not split; 0: all are
	Expandable bool
	// Divisions says in how many steps sizes are rounded between two powers of two, by
	// the power from 1 MiB on, the first for all below; 0 and 1: not so.
	Divisions [16]int64
}

// ParseRules understands PYTORCH_CUDA_ALLOC_CONF: settings with commas
// between, such as max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]. What it
// does not know it leaves out.
func ParseRules(conf string) Rules {
	var r Rules
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

// readDivisions understands a list such as 256:1,512:2,>:8: by sizes in MiB. The first
// entry is for all sizes below it, too, the last one (>) for all above.
func (r *Rules) readDivisions(list string) {
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

// Round returns how many bytes of a segment a request needs.
func (r *Rules) Round(bytes int64) int64 {
	if bytes < BlockUnit {
		return BlockUnit
	}
	power := bits.Len64(uint64(bytes)) - 1
	divisions := r.Divisions[min(max(0, power-20), len(r.Divisions)-1)]
	if divisions <= 1 || bytes <= BlockUnit*divisions {
		return (bytes + BlockUnit - 1) / BlockUnit * BlockUnit
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

// Segment returns the most that an allocator gets from the driver at once for a block.
func (r *Rules) Segment(bytes int64) int64 {
	switch {
	case bytes <= SmallRequest:
		return SmallSegment
	case bytes < LargeSegment/2 || r.Expandable:
		return units.RoundUp(bytes, LargeSegment)
	}
	return units.RoundUp(bytes, SmallSegment)
}

// splits reports whether a gap is cut when a block of size bytes goes into it, or given
// away as a whole.
func (r *Rules) splits(gap, size int64, small bool) bool {
	if small || r.Expandable {
		return gap-size >= BlockUnit
	}
	return gap-size > SmallRequest && (r.MaxSplit == 0 || size < r.MaxSplit)
}
