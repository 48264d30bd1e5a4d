//go:build linux

package torchallocator

// Behind the table of active blocks, DeviceCachingAllocator has the number of reserved bytes and, in newer versions, a
// cudaDeviceProp, which begins with the name of the device. Then follows the limit that
// torch.cuda.set_per_process_memory_fraction sets: a word, and a byte that says whether there is one. Behind a
// cudaDeviceProp, two vectors follow.
const (
	maxLimitGap        = 1 << 10 // from the table of active blocks to the number of reserved bytes
	propMemoryOffset   = 288     // totalGlobalMem in cudaDeviceProp
	limitFlagOffset    = 8
	vectorBytes        = 24 // begin, end, and end of the memory
	minDeviceNameBytes = 4
)

// propBytes are the sizes of cudaDeviceProp in CUDA 13, 12 and 11.
var propBytes = [...]int{1008, 1032, 728, 712}

// findLimit returns the limit of reserved bytes in the memory of an object. It is 0 if there is none, or if its place is
// not certain.
func findLimit(data []byte, l *layout) (limit uint64) {
	reserved := currentStat(data, l.stats, reservedBytesStat, 0)
	if reserved == 0 {
		return 0
	}
	end := min(l.active+tableBytes+maxLimitGap, len(data)-16)
	for o := l.active + tableBytes; o < end; o += 8 {
		if word(data, o) != reserved {
			continue
		}
		if hasName(data[o+8:]) {
			limit = findLimitBehindProp(data[o+8:])
		} else if data[o+8+limitFlagOffset] == 1 {
			limit = word(data, o+8)
		}
		if limit >= blockUnit && limit < 1<<48 {
			return limit
		}
	}
	return 0
}

// hasName reports whether data begins with a printable text.
func hasName(data []byte) bool {
	for i := range minDeviceNameBytes {
		if i >= len(data) || data[i] < ' ' || data[i] > '~' {
			return false
		}
	}
	return true
}

// areVectors reports whether data begins with the two std::vector that follow the limit.
func areVectors(data []byte) bool {
	for o := 0; o < 2*vectorBytes; o += vectorBytes {
		if o+vectorBytes > len(data) {
			return false
		}
		begin, end, limit := word(data, o), word(data, o+8), word(data, o+16)
		isEmpty := begin == 0 && end == 0 && limit == 0
		if !isEmpty && (begin < minHeapObject || end < begin || limit < end || limit >= endOfUser) {
			return false
		}
	}
	return true
}

// findLimitBehindProp returns the limit behind a cudaDeviceProp, or 0.
func findLimitBehindProp(data []byte) (limit uint64) {
	if len(data) < propMemoryOffset+8 {
		return 0
	}
	memory := word(data, propMemoryOffset)
	for _, size := range propBytes {
		if size+16 > len(data) || data[size+limitFlagOffset] != 1 {
			continue
		}
		if n := word(data, size); n >= blockUnit && n <= memory && areVectors(data[size+16:]) {
			if limit != 0 {
				return 0
			}
			limit = n
		}
	}
	return limit
}
