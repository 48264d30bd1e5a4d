//go:build linux

package torchallocator

// addAllPools adds the BlockPools of the default pool and of all private pools. It finds the tables of private pools by
// their content: an entry has a pointer to an object with two BlockPools whose order of blocks is that of the default
// pool.
func (w *walk) addAllPools() error {
	l := &w.layout.deviceLayout
	for _, o := range l.pools {
		if err := w.addPool(w.data[o:], w.object.address+uint64(o), PoolID{}); err != nil {
			return err
		}
	}
	known := make(map[uint64]bool)
	for at := 0; at <= len(w.data)-tableBytes; at += 8 {
		t, ok := readTable(w.data[at:], maxPrivatePoolSlots)
		if !ok || t.count == 0 || at == l.active {
			continue
		}
		data, err := w.image.fetch(t.entries, t.bytes(poolEntryBytes))
		if err == errUnreadable {
			continue // the table has smaller entries
		} else if err != nil {
			return err
		}
		var entries [][]byte
		for ; len(data) > 0; data = data[poolEntryBytes:] {
			if int8(data[0]) >= 0 {
				entries = append(entries, data[:poolEntryBytes])
			}
		}
		if uint64(len(entries)) != t.count {
			continue // the table has other entries
		}
		if err := w.addPrivatePools(entries, known); err != nil {
			return err
		}
	}
	return nil
}

// addPool adds a BlockPool in data.
func (w *walk) addPool(data []byte, at uint64, id PoolID) error {
	small := data[w.layout.small]
	if !areSets(data, at) || small > 1 {
		return errUnreadable
	}
	w.pools[at] = pool{id: id, isSmall: small == 1}
	w.wantNodes += word(data, setCountOffset)
	if root := word(data, setRootOffset); root != 0 {
		w.nodesLeft = append(w.nodesLeft, root)
	}
	return nil
}

// addPrivatePools adds the private pools of a table, if all its entries are private pools.
func (w *walk) addPrivatePools(entries [][]byte, known map[uint64]bool) error {
	objects := make([]uint64, len(entries))
	for i, entry := range entries {
		if objects[i] = word(entry, 24); objects[i] == 0 || objects[i]%8 != 0 {
			return nil
		}
	}
	if err := w.image.load(objects, privatePoolBytes); err != nil && err != errUnreadable {
		return err
	}
	like := w.data[w.layout.pools[0]:]
	pools := make([][2]int, len(objects))
	for i, at := range objects {
		data, ok := w.image.get(at, privatePoolBytes)
		if ok {
			pools[i], ok = findPools(data, at, 8, like)
		}
		if !ok || pools[i][1]+w.layout.poolBytes() > len(data) {
			return nil
		}
	}
	for i, at := range objects {
		if known[at] {
			continue // graph_pools_freeable has some of the pools of graph_pools
		}
		known[at] = true
		data, _ := w.image.get(at, privatePoolBytes)
		for _, o := range pools[i] {
			if err := w.addPool(data[o:], at+uint64(o), PoolID{word(entries[i], 8), word(entries[i], 16)}); err != nil {
				return err
			}
		}
	}
	return nil
}
