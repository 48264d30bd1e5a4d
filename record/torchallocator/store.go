//go:build linux

package torchallocator

import (
	"bytes"
	"cmp"
	"slices"
)

// blockStore has the memory of all active blocks of an allocator, as it was read last. It follows the table of active
// blocks. Both are read while the allocator works, so neither proves anything.
type blockStore struct {
	memory  Memory
	width   int    // bytes that are read of each block
	data    []byte // of all blocks, by number
	at      []uint64
	listed  []int16 // entries of the table with the block
	absent  []uint8 // calls of follow since the table had the block
	numbers map[uint64]int32
	unused  []int32
	order   []int32 // numbers in order of address
	isOld   bool    // order is older than numbers

	entries  []byte // of the table, as they were read last
	previous []byte
	head     table

	pieces           []Part
	arena            []byte
	calls, readBytes int
}

func newBlockStore(m Memory, width int) *blockStore {
	return &blockStore{memory: m, width: width, numbers: make(map[uint64]int32)}
}

// get returns the memory of a block. ok is false if the table did not have it.
func (s *blockStore) get(at uint64) (data []byte, ok bool) {
	n, ok := s.numbers[at]
	if !ok {
		return nil, false
	}
	return s.of(n), true
}

// of returns the memory of the block with a number.
func (s *blockStore) of(n int32) []byte { return s.data[int(n)*s.width:][:s.width:s.width] }

// follow adds the blocks that are new in the table, and deletes those that are gone for long. It returns the new ones, whose
// memory is not read yet.
func (s *blockStore) follow(t table) (added []int32, err error) {
	s.entries, s.previous = s.previous, s.entries
	if n := int(t.bytes(blockEntryBytes)); cap(s.entries) < n {
		s.entries = make([]byte, n)
	} else {
		s.entries = s.entries[:n]
	}
	part := [1]Part{{Address: t.entries, Data: s.entries}}
	calls, err := s.memory.ReadParts(part[:])
	s.calls += calls
	s.readBytes += len(s.entries)
	if err != nil {
		return nil, err
	}
	isSame := t.entries == s.head.entries && len(s.previous) == len(s.entries) && t.shift == s.head.shift
	if !isSame || part[0].IsMissing {
		s.previous = s.previous[:0]
		clear(s.listed)
	}
	if s.head = t; part[0].IsMissing {
		s.entries, s.head = s.entries[:0], table{}
		return nil, errUnreadable
	}
	for i := 0; i < len(s.entries); i += blockEntryBytes {
		entry, old := s.entries[i:i+blockEntryBytes], []byte(nil)
		if isSame {
			if old = s.previous[i : i+blockEntryBytes]; bytes.Equal(entry, old) {
				continue
			}
		}
		if at, ok := t.pointer(i/blockEntryBytes, old); ok {
			s.listed[s.numbers[at]]--
		}
		if at, ok := t.pointer(i/blockEntryBytes, entry); ok {
			n, isKnown := s.numbers[at]
			if !isKnown {
				n = s.add(at)
				added = append(added, n)
			}
			s.listed[n]++
		}
	}
	s.deleteAbsent()
	if len(s.data) > maxReadBytes {
		return nil, errTooLarge
	}
	return added, nil
}

// pointer returns the pointer of entry i. ok is false if the entry is empty, or not where its hash puts it.
func (t table) pointer(i int, entry []byte) (at uint64, ok bool) {
	if len(entry) == 0 || int8(entry[0]) < 0 {
		return 0, false
	}
	at = word(entry, 8)
	return at, at != 0 && at%8 == 0 && t.hasPlace(i, int8(entry[0]), at)
}

// add gives a block a number.
func (s *blockStore) add(at uint64) (n int32) {
	if last := len(s.unused) - 1; last >= 0 {
		n, s.unused = s.unused[last], s.unused[:last]
	} else {
		n = int32(len(s.at))
		s.at, s.listed, s.absent = append(s.at, 0), append(s.listed, 0), append(s.absent, 0)
		s.data = append(s.data, make([]byte, s.width)...)
	}
	s.at[n], s.numbers[at], s.isOld = at, n, true
	clear(s.of(n))
	return n
}

// maxAbsent is the number of calls of follow after which a block is deleted that the table does not have. Before, it
// may be given out again in the same object.
const maxAbsent = 4

// deleteAbsent deletes the blocks that the table did not have for some calls.
func (s *blockStore) deleteAbsent() {
	for n, at := range s.at {
		switch {
		case at == 0:
		case s.listed[n] > 0:
			s.absent[n] = 0
		case s.absent[n] < maxAbsent:
			s.absent[n]++
		default:
			delete(s.numbers, at)
			s.at[n], s.absent[n], s.isOld = 0, 0, true
			s.unused = append(s.unused, int32(n))
		}
	}
}

// isListed reports whether the table had a block at the last call of follow.
func (s *blockStore) isListed(n int32) bool { return s.listed[n] > 0 }

// all returns the numbers of all blocks in order of address. The caller must not change them.
func (s *blockStore) all() []int32 {
	if s.isOld {
		s.order, s.isOld = s.order[:0], false
		for n, at := range s.at {
			if at != 0 {
				s.order = append(s.order, int32(n))
			}
		}
		s.sort(s.order)
	}
	return s.order
}

// sort brings numbers in order of address.
func (s *blockStore) sort(numbers []int32) {
	slices.SortFunc(numbers, func(a, b int32) int { return cmp.Compare(s.at[a], s.at[b]) })
}

// Bounds of one system call of a store.
const (
	maxBatchBytes  = 256 << 10
	maxBatchPieces = 256
)

// read reads blocks, and calls see with the memory of each, which is valid during the call. It is nil if it cannot be
// read. numbers are in order of address.
func (s *blockStore) read(numbers []int32, see func(n int32, data []byte)) error {
	for len(numbers) > 0 {
		batch, err := s.readBatch(numbers)
		if err != nil {
			return err
		}
		for i, piece := 0, 0; i < batch; i++ {
			at := s.at[numbers[i]]
			for at >= s.pieces[piece].Address+uint64(len(s.pieces[piece].Data)) {
				piece++
			}
			p := &s.pieces[piece]
			if !p.IsMissing {
				see(numbers[i], p.Data[at-p.Address:][:s.width])
			} else if err := s.readAlone(numbers[i], see); err != nil {
				return err
			}
		}
		numbers = numbers[batch:]
	}
	return nil
}

// readBatch reads the first of some blocks into pieces, and returns their number.
func (s *blockStore) readBatch(numbers []int32) (n int, err error) {
	if s.arena == nil {
		s.arena = make([]byte, maxBatchBytes)
	}
	s.pieces = s.pieces[:0]
	used, width := 0, uint64(s.width)
	for ; n < len(numbers); n++ {
		at := s.at[numbers[n]]
		if last := len(s.pieces) - 1; last >= 0 {
			p := &s.pieces[last]
			end := p.Address + uint64(len(p.Data))
			if grown := int(at + width - end); at <= end+gapBytes && used+grown <= len(s.arena) {
				p.Data = s.arena[used-len(p.Data) : used+grown]
				used += grown
				continue
			}
		}
		if len(s.pieces) == maxBatchPieces || used+s.width > len(s.arena) {
			break
		}
		s.pieces = append(s.pieces, Part{Address: at, Data: s.arena[used : used+s.width]})
		used += s.width
	}
	calls, err := s.memory.ReadParts(s.pieces)
	s.calls += calls
	s.readBytes += used
	return n, err
}

// readAlone reads one block of a piece that cannot be read as a whole.
func (s *blockStore) readAlone(n int32, see func(n int32, data []byte)) error {
	part := [1]Part{{Address: s.at[n], Data: make([]byte, s.width)}}
	calls, err := s.memory.ReadParts(part[:])
	s.calls += calls
	if err != nil {
		return err
	}
	if part[0].IsMissing {
		part[0].Data = nil
	}
	see(n, part[0].Data)
	return nil
}
