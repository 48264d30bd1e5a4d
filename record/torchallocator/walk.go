//go:build linux

package torchallocator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Reasons why one reading fails.
var (
	errTooLarge   = errors.New("the allocator has more memory than gpurec reads at once, 64 MiB")
	errUnreadable = errors.New("a part of the allocator could not be read")
	errDamaged    = errors.New("neighboring blocks contradict each other")
	errNotInPlace = errors.New("a pointer of the table of active blocks is not where its hash puts it")
)

// isMisfit reports whether a reading failed because the memory does not fit the layout.
func isMisfit(err error) bool {
	for _, other := range []error{ErrDenied, ErrEnded, ErrBusy, errTooLarge} {
		if errors.Is(err, other) {
			return false
		}
	}
	return err != nil
}

// walk is one reading of all blocks of a device's allocator. It reads in rounds: each round loads all that the pointers
// of the round before lead to.
type walk struct {
	image      *image
	object     *object
	layout     *layout
	data       []byte          // the object's memory
	blockBytes uint64          // that are read of each block
	pools      map[uint64]pool // by address of the BlockPool
	blocks     []block
	places     map[uint64]int // in blocks, by address of the Block
	// read is the number of blocks that were read. Those behind it were only found.
	read int
	// nodesLeft are addresses of nodes of sets that were not read yet. nodes counts the nodes that were found, and
	// wantNodes those that the sets say they have.
	nodesLeft        []uint64
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
	at                               uint64
	stream, pool, prev, next         uint64
	isActive, isMapped, isExpandable bool
	cold                             int32 // 1 + the number in the store of a survey; 0: it is hot, or there is none
}

// newWalk returns a walk of about n blocks. data is the memory of the object.
func newWalk(o *object, l *layout, data []byte, blockBytes uint64, n int) *walk {
	return &walk{
		image: o.image, object: o, layout: l, data: data, blockBytes: blockBytes,
		pools: make(map[uint64]pool), blocks: make([]block, 0, n), places: make(map[uint64]int, n),
	}
}

// grow makes room for more blocks.
func (w *walk) grow(n int) {
	w.blocks = slices.Grow(w.blocks, n)
	places := make(map[uint64]int, len(w.places)+n)
	maps.Copy(places, w.places)
	w.places = places
}

// readBlocks reads all blocks.
func (w *walk) readBlocks() error {
	if err := w.addAllPools(); err != nil {
		return err
	}
	t, ok := readTable(w.data[w.layout.active:], maxBlocks)
	if !ok {
		return errUnreadable
	}
	active, err := readPointers(w.image, t)
	if err != nil {
		return err
	}
	for _, at := range active {
		w.addBlock(at)
		w.blocks[len(w.blocks)-1].isActive = true
	}
	for w.read < len(w.blocks) || len(w.nodesLeft) > 0 {
		if err := w.readRound(); err != nil {
			return err
		}
	}
	return compare("cached blocks", w.nodes, w.wantNodes)
}

// readRound reads the blocks and nodes that were found, and finds others.
func (w *walk) readRound() error {
	blocks, nodes := make([]uint64, 0, len(w.blocks)-w.read), w.nodesLeft
	for i := range w.blocks[w.read:] {
		blocks = append(blocks, w.blocks[w.read+i].at)
	}
	w.nodesLeft = nil
	if err := w.image.load(blocks, w.blockBytes); err != nil {
		return err
	}
	if err := w.image.load(nodes, nodeBytes); err != nil {
		return err
	}
	for _, at := range nodes {
		if err := w.readNode(at); err != nil {
			return err
		}
	}
	for _, at := range blocks {
		data, ok := w.image.get(at, w.blockBytes)
		if !ok {
			return errUnreadable
		}
		if err := w.decodeNext(data); err != nil {
			return err
		}
	}
	return nil
}

// decodeNext reads the first block that was only found from its memory, and adds its neighbors.
func (w *walk) decodeNext(data []byte) error {
	b := &w.blocks[w.read]
	w.read++
	if err := w.decode(b, data); err != nil {
		return err
	}
	prev, next := b.prev, b.next // b is invalid when blocks grow
	w.addBlock(prev)
	w.addBlock(next)
	if len(w.blocks) > maxBlocks {
		return errTooLarge
	}
	return nil
}

// readNodes finds the blocks of all sets, without reading them.
func (w *walk) readNodes() error {
	for len(w.nodesLeft) > 0 {
		nodes := w.nodesLeft
		w.nodesLeft = nil
		if err := w.image.load(nodes, nodeBytes); err != nil {
			return err
		}
		for _, at := range nodes {
			if err := w.readNode(at); err != nil {
				return err
			}
		}
	}
	return compare("cached blocks", w.nodes, w.wantNodes)
}

// readNode finds the block and the children of a node of a set.
func (w *walk) readNode(at uint64) error {
	data, ok := w.image.get(at, nodeBytes)
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
	return nil
}

// addBlock adds a block, unless it is known.
func (w *walk) addBlock(at uint64) {
	if at == 0 {
		return
	}
	if _, known := w.places[at]; !known {
		w.places[at] = len(w.blocks)
		w.blocks = append(w.blocks, block{at: at})
	}
}

// blockUnit divides the size of every block.
const blockUnit = 512

// decode reads a block from its memory.
func (w *walk) decode(b *block, data []byte) error {
	l := &w.layout.blockLayout
	b.Address, b.Bytes = word(data, l.ptr), word(data, l.size)
	b.stream, b.pool = word(data, blockStreamOffset), word(data, l.pool)
	b.prev, b.next = word(data, l.prev), word(data, l.next)
	b.isMapped = data[l.allocated+1] != 0
	isAllocated := data[l.allocated] != 0
	_, isKnown := w.pools[b.pool]
	switch {
	case data[l.allocated] > 1 || data[l.allocated+1] > 1:
		return errors.New("a flag of a block is neither true nor false")
	case int(data[blockDeviceOffset]) != w.object.device:
		return fmt.Errorf("a block is on device %d", data[blockDeviceOffset])
	case !isSize(b.Bytes) || b.Address == 0 || b.Address+b.Bytes < b.Address:
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
		if b.Requested = word(data, l.requested); b.Requested > b.Bytes {
			return fmt.Errorf("a request of %d bytes has a block of %d bytes", b.Requested, b.Bytes)
		}
	}
	b.isExpandable = l.expandable != 0 && word(data, l.expandable) != 0
	return nil
}

// compare returns an error if the two numbers differ.
func compare(what string, blocks, statistics uint64) error {
	if blocks != statistics {
		return &MismatchError{what, blocks, statistics}
	}
	return nil
}
