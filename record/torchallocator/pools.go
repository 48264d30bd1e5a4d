//go:build linux

package torchallocator

// addPrivatePools adds the pools of all private pools. It finds their tables behind the table of active blocks, by
// their content: an entry of such a table has a pointer to an object with two BlockPools that this object owns.
func (w *walk) addPrivatePools(data []byte) error {
	known := make(map[uint64]bool)
	for at := w.object.pools + 2*poolBytes + tableBytes; at <= len(data)-tableBytes; at += 8 {
		t, ok := readTable(data[at:], maxPrivatePoolSlots)
		if !ok || t.count == 0 {
			continue
		}
		entries, err := w.readEntries(t, poolEntryBytes)
		if err != nil && err != errUnreadable {
			return err
		}
		if err != nil || uint64(len(entries)) != t.count {
			continue // the table has other entries
		}
		if err := w.addPrivatePoolTable(entries, known); err != nil {
			return err
		}
	}
	return nil
}

// addPrivatePoolTable adds the private pools of a table, if all its entries are private pools.
func (w *walk) addPrivatePoolTable(entries [][]byte, known map[uint64]bool) error {
	objects := make([]uint64, len(entries))
	for i, entry := range entries {
		objects[i] = word(entry, 24)
		if objects[i] == 0 || objects[i]%8 != 0 {
			return nil
		}
	}
	if err := w.image.load(objects, privatePoolBytes); err != nil {
		return err
	}
	offsets := make([]int, len(objects))
	for i, at := range objects {
		offset, ok := findPools(w.image.prefix(at, privatePoolBytes), at, 8, privatePoolBytes, at)
		if !ok {
			return nil
		}
		offsets[i] = offset
	}
	for i, at := range objects {
		if known[at] {
			continue // graph_pools_freeable has some of the pools of graph_pools
		}
		known[at] = true
		data := w.image.prefix(at, privatePoolBytes)
		w.addPools(data[offsets[i]:], at+uint64(offsets[i]), PoolID{word(entries[i], 8), word(entries[i], 16)})
	}
	return nil
}
