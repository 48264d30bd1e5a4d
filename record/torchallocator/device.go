//go:build linux

package torchallocator

import "slices"

// maxCandidates bounds the layouts that a search proposes.
const maxCandidates = 64

// isEmpty reports whether the allocator of a device has no memory: no free blocks, and the current values of the
// statistics behind its lock are 0.
func isEmpty(data []byte, at uint64) bool {
	pools, ok := findPools(data, at, 0, nil)
	if !ok || word(data, pools[0]+setRootOffset) != 0 || word(data, pools[1]+setRootOffset) != 0 {
		return false
	}
	for o := 0; o+mutexBytes+statsBytes <= len(data); o += 8 {
		if isMutex(data[o:]) {
			return readTotals(data[o+mutexBytes:]) == totals{}
		}
	}
	return false
}

// tableFinder returns the offsets of tables of pointers to count blocks in the memory of an object.
type tableFinder func(img *image, data []byte, count uint64) (offsets []int, err error)

// deviceLayouts returns the layouts that the memory of a device's allocator may have.
func deviceLayouts(o *object, data []byte, findActive tableFinder) (list []deviceLayout, err error) {
	l := deviceLayout{}
	var ok bool
	if l.pools, ok = findPools(data, o.address, 0, nil); !ok {
		return nil, nil
	}
	for l.stats = 0; l.stats+statsBytes <= len(data); l.stats += 8 {
		if !areStats(data[l.stats:]) {
			continue
		}
		if l.lock, ok = findLock(data, l.stats); !ok {
			continue
		}
		tables, err := findActive(o.image, data, currentStat(data, l.stats, activeStat, 0))
		if err != nil {
			return nil, err
		}
		for _, l.active = range tables {
			for _, l.small = range findSmallFlags(data, l.pools) {
				if list = append(list, l); len(list) == maxCandidates {
					return list, nil
				}
			}
		}
	}
	return list, nil
}

// areStats reports whether data has DeviceStats of an allocator with memory. The values of all pools are the sums of those of
// the small and the large ones. Peaks may have been reset, and so may the sums of increases and decreases.
func areStats(data []byte) bool {
	for s := range numStats {
		a := data[s*arrayBytes:]
		for _, at := range []int{0, 16, 24} { // current, increases, decreases
			if word(a, at) != word(a, statBytes+at)+word(a, 2*statBytes+at) {
				return false
			}
		}
	}
	n := func(stat int) uint64 { return currentStat(data, 0, stat, 0) }
	return n(reservedBytesStat) > 0 && n(allocationStat) <= n(activeStat) && n(activeStat) <= maxBlocks &&
		n(allocatedBytesStat) <= n(activeBytesStat) && n(activeBytesStat) <= n(reservedBytesStat) &&
		n(reservedBytesStat) < 1<<48 && n(requestedBytesStat) <= n(activeBytesStat) &&
		n(activeBytesStat) >= blockUnit*n(activeStat) && n(activeBytesStat)%blockUnit == 0
}

// currentStat returns the current value of a statistic of DeviceStats in data.
func currentStat(data []byte, stats, stat, kind int) uint64 {
	return word(data, stats+stat*arrayBytes+kind*statBytes)
}

// findLock returns the offset of the mutex that is nearest to the statistics, first of those before it.
func findLock(data []byte, stats int) (offset int, ok bool) {
	for o := stats - mutexBytes; o >= 0; o -= 8 {
		if isMutex(data[o:]) {
			return o, true
		}
	}
	for o := stats + statsBytes; o+mutexBytes <= len(data); o += 8 {
		if isMutex(data[o:]) {
			return o, true
		}
	}
	return 0, false
}

// findSmallFlags returns the offsets of bytes in a BlockPool that can say which of the two is for small blocks.
func findSmallFlags(data []byte, pools [2]int) (offsets []int) {
	for o := 2 * setBytes; o < min(pools[1]-pools[0], maxPoolBytes) && pools[1]+o < len(data); o++ {
		if a, b := data[pools[0]+o], data[pools[1]+o]; a <= 1 && b <= 1 && a != b {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

// findActive returns the offsets of tables of pointers to count blocks. Each pointer lies where its hash puts it.
func findActive(img *image, data []byte, count uint64) (offsets []int, err error) {
	for o := 0; o+tableBytes <= len(data); o += 8 {
		t, ok := readTable(data[o:], maxBlocks)
		if !ok || t.count != count {
			continue
		}
		switch _, err := readPointers(img, t); {
		case err == nil:
			offsets = append(offsets, o)
			if count == 0 {
				return offsets, nil // each empty table will do
			}
		case !isMisfit(err):
			return nil, err
		}
	}
	return offsets, nil
}

// readPointers returns the pointers of a table, sorted.
func readPointers(img *image, t table) (pointers []uint64, err error) {
	if t.count == 0 {
		return nil, nil
	}
	data, err := img.fetch(t.entries, t.bytes(blockEntryBytes))
	if err != nil {
		return nil, err
	}
	pointers = make([]uint64, 0, t.count)
	for i := 0; len(data) > 0; i, data = i+1, data[blockEntryBytes:] {
		distance := int8(data[0])
		if distance < 0 {
			continue
		}
		pointer := word(data, 8)
		if pointer == 0 || pointer%8 != 0 || !t.hasPlace(i, distance, pointer) || uint64(len(pointers)) == t.count {
			return nil, errNotInPlace
		}
		pointers = append(pointers, pointer)
	}
	if uint64(len(pointers)) != t.count {
		return nil, &MismatchError{"active blocks", uint64(len(pointers)), t.count}
	}
	slices.Sort(pointers)
	for i := 1; i < len(pointers); i++ {
		if pointers[i] == pointers[i-1] {
			return nil, errNotInPlace
		}
	}
	return pointers, nil
}
