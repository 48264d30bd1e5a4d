//go:build linux

package record

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// knownBlocks are the segments and blocks of a device at the last reading.
type knownBlocks struct {
	entries  map[blockKey]blockEntry
	readings int
}

// blockKey names a segment or a block.
type blockKey struct {
	address   uint64
	isSegment bool
}

// blockEntry is a segment or a block, as its last row. reading is the number of the last reading that had it.
type blockEntry struct {
	row     format.Row
	reading int
}

// update returns the rows of a reading: what changed since the last one. row has the columns that all rows share.
func (k *knownBlocks) update(state *torchallocator.State, row format.Row) (rows []format.Row) {
	first := row
	first.Name, first.Value, first.Bytes = format.BlocksRead, float64(state.CountBlocks()), int64(state.ReadBytes)
	if k.readings%completeReadings == 0 {
		first.Message = format.BlocksComplete
		k.entries = make(map[blockKey]blockEntry)
	}
	k.readings++
	changed := k.addChanged(allocatorBlockRows(state, row))
	rows = append(rows, first)
	for key, e := range k.entries {
		if e.reading == k.readings {
			continue
		}
		gone := row
		gone.Name, gone.Ptr = format.BlockGone, e.row.Ptr
		if key.isSegment {
			gone.Name = format.BlockSegmentGone
		}
		rows = append(rows, gone)
		delete(k.entries, key)
	}
	return append(rows, changed...)
}

// addChanged marks the segments and blocks of a reading as known, and returns those that are new or changed.
func (k *knownBlocks) addChanged(rows []format.Row) (changed []format.Row) {
	for _, r := range rows {
		if r.Name == format.BlockCached {
			continue
		}
		key := blockKey{uint64(r.Ptr), r.Name == format.BlockSegment || r.Name == format.BlockMappedRange}
		old, isKnown := k.entries[key]
		if !isKnown || !isSameBlock(&old.row, &r) {
			changed = append(changed, r)
		}
		k.entries[key] = blockEntry{r, k.readings}
	}
	return changed
}

// isSameBlock reports whether two rows say the same of a segment or a block.
func isSameBlock(a, b *format.Row) bool {
	return a.Name == b.Name && a.Bytes == b.Bytes && a.Value == b.Value && a.Stream == b.Stream &&
		a.SrcPtr == b.SrcPtr &&
		a.Message == b.Message
}
