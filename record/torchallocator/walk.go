//go:build linux

package torchallocator

import (
	"errors"
	"fmt"
)

// Reasons why one reading fails.
var (
	errTooLarge   = errors.New("the allocator has more memory than gpurec reads")
	errUnreadable = errors.New("a part of the allocator could not be read")
)

// walk is one reading of all blocks of a device's allocator. It reads in rounds: each round loads the pages of all
// pointers that the round before found.
type walk struct {
	image  *image
	object *object
	layout *blockLayout
	pools  map[uint64]pool // by address of the BlockPool
	blocks map[uint64]*block
	// blocksLeft and nodesLeft are addresses of blocks, and of nodes of sets, that were not read yet.
	blocksLeft, nodesLeft []uint64
	// nodes counts the nodes that were found, and wantNodes those that the sets say they have.
	nodes, wantNodes uint64
}

// pool is a BlockPool.
type pool struct {
	id      PoolID
	isSmall bool
}

// block is a Block in the memory of the process.
type block struct {
	Block
	stream, pool, prev, next         uint64
	isActive, isMapped, isExpandable bool
}

// readBlocks reads all blocks. data is the memory of the object.
func (w *walk) readBlocks(data []byte) error {
	at := w.object.pools
	w.addPools(data[at:], w.object.address+uint64(at), PoolID{})
	active, ok := readTable(data[at+2*poolBytes:], maxBlocks)
	if !ok {
		return errUnreadable
	}
	if err := w.addPrivatePools(data); err != nil {
		return err
	}
	if err := w.addActive(active); err != nil {
		return err
	}
	for len(w.blocksLeft)+len(w.nodesLeft) > 0 {
		if err := w.image.load(w.blocksLeft, uint64(w.layout.bytes)); err != nil {
			return err
		}
		if err := w.image.load(w.nodesLeft, nodeBytes); err != nil {
			return err
		}
		if err := w.readRound(); err != nil {
			return err
		}
	}
	return compare("cached blocks", w.nodes, w.wantNodes)
}

// addPools adds the BlockPool for large blocks in data, and the one for small blocks after it.
func (w *walk) addPools(data []byte, at uint64, id PoolID) {
	for k := range uint64(2) {
		w.pools[at+k*poolBytes] = pool{id: id, isSmall: k == 1}
		set := data[k*poolBytes:]
		w.wantNodes += word(set, setCountOffset)
		if root := word(set, setRootOffset); root != 0 {
			w.nodesLeft = append(w.nodesLeft, root)
		}
	}
}

// addActive adds the blocks of the table of active blocks.
func (w *walk) addActive(t table) error {
	if t.count == 0 {
		return nil
	}
	entries, err := w.readEntries(t, blockEntryBytes)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		at := word(entry, 8)
		w.blocks[at] = &block{isActive: true}
		w.blocksLeft = append(w.blocksLeft, at)
	}
	return compare("active blocks", uint64(len(w.blocks)), t.count)
}

// readEntries returns the entries of a table that are not empty.
func (w *walk) readEntries(t table, entryBytes uint64) (entries [][]byte, err error) {
	if err := w.image.load([]uint64{t.entries}, t.bytes(entryBytes)); err != nil {
		return nil, err
	}
	data, ok := w.image.bytes(t.entries, t.bytes(entryBytes))
	if !ok {
		return nil, errUnreadable
	}
	for ; len(data) > 0; data = data[entryBytes:] {
		if int8(data[0]) >= 0 {
			entries = append(entries, data[:entryBytes])
		}
	}
	return entries, nil
}

// readRound reads the blocks and nodes that were found, and finds others.
func (w *walk) readRound() error {
	blocks, nodes := w.blocksLeft, w.nodesLeft
	w.blocksLeft, w.nodesLeft = nil, nil
	for _, at := range nodes {
		data, ok := w.image.bytes(at, nodeBytes)
		if !ok {
			return errUnreadable
		}
		if w.nodes++; w.nodes > w.wantNodes {
			return &MismatchError{"cached blocks", w.nodes, w.wantNodes}
		}
		for _, o := range []int{nodeLeftOffset, nodeRightOffset} {
			if child := word(data, o); child != 0 {
				w.nodesLeft = append(w.nodesLeft, child)
			}
		}
		w.addBlock(word(data, nodeValueOffset))
	}
	for _, at := range blocks {
		data, ok := w.image.bytes(at, uint64(w.layout.bytes))
		if !ok {
			return errUnreadable
		}
		b := w.blocks[at]
		if err := w.decode(b, data); err != nil {
			return err
		}
		w.addBlock(b.prev)
		w.addBlock(b.next)
	}
	if len(w.blocks) > maxBlocks {
		return errTooLarge
	}
	return nil
}

// addBlock adds a block that is not active, unless it is known.
func (w *walk) addBlock(at uint64) {
	if _, known := w.blocks[at]; at != 0 && !known {
		w.blocks[at] = new(block)
		w.blocksLeft = append(w.blocksLeft, at)
	}
}

// blockUnit divides the size of every block.
const blockUnit = 512

// decode reads a block from its memory.
func (w *walk) decode(b *block, data []byte) error {
	l := w.layout
	b.Address, b.Bytes = word(data, l.ptr), word(data, l.size)
	b.stream, b.pool = word(data, blockStreamOffset), word(data, l.pool)
	b.prev, b.next = word(data, l.prev), word(data, l.next)
	b.isMapped, b.isExpandable = data[l.allocated+1] != 0, word(data, l.expandable) != 0
	isAllocated := data[l.allocated] != 0
	_, isKnown := w.pools[b.pool]
	switch {
	case data[l.allocated] > 1 || data[l.allocated+1] > 1:
		return errors.New("a flag of a block is neither true nor false")
	case int(data[blockDeviceOffset]) != w.object.device:
		return fmt.Errorf("a block is on device %d", data[blockDeviceOffset])
	case b.Bytes == 0 || b.Bytes%blockUnit != 0 || b.Address+b.Bytes < b.Address:
		return fmt.Errorf("a block has %d bytes", b.Bytes)
	case !isKnown:
		return errors.New("a block is in an unknown pool")
	case isAllocated && !b.isActive || b.isActive && !b.isMapped:
		return errors.New("the flags of a block contradict the table of active blocks")
	case b.isActive && isAllocated:
		b.Use = Allocated
	case b.isActive:
		b.Use = AwaitsStream
	}
	if b.isActive {
		b.Requested = word(data, l.requested)
	}
	return nil
}

// compare returns an error if the two numbers differ.
func compare(what string, blocks, statistics uint64) error {
	if blocks != statistics {
		return &MismatchError{what, blocks, statistics}
	}
	return nil
}
