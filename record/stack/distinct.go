//go:build linux

package stack

import (
	"encoding/binary"
	"hash/maphash"
	"maps"

	"github.com/gpurec/gpurec/format"
)

// maxStackTableBytes bounds the memory of the table of distinct stacks, to about 250,000 stacks. A
// hostile program can create any number. PyTorch programs have thousands.
const maxStackTableBytes = 64 << 20

const (
	// bytesPerStack is the approximate memory of a distinct stack without its site. bytesPerStackID
	// is the memory of one kernel stack ID. Both consider that maps are half empty.
	bytesPerStack, bytesPerStackID = 160, 48
)

// chainKey identifies a chain of frames.
type chainKey [2]uint64

// chainHasher computes 128-bit keys of chains, because frames take kilobytes. The seeds are random,
// so a hostile process cannot create two chains with the same key.
type chainHasher struct {
	seeds [2]maphash.Seed
	text  []byte // buffer
}

// newChainHasher returns a chainHasher with random seeds.
func newChainHasher() chainHasher {
	return chainHasher{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// hashBuffer returns the 128-bit key of the text in the buffer.
func (h *chainHasher) hashBuffer() chainKey {
	return chainKey{maphash.Bytes(h.seeds[0], h.text), maphash.Bytes(h.seeds[1], h.text)}
}

// hashAddresses returns the key of a chain of addresses in a process.
func (h *chainHasher) hashAddresses(pid uint32, chain []uint64) chainKey {
	h.text = binary.LittleEndian.AppendUint32(h.text[:0], pid)
	for _, pc := range chain {
		h.text = binary.LittleEndian.AppendUint64(h.text, pc)
	}
	return h.hashBuffer()
}

// hashFrames returns the key of named frames. Stacks that look the same have the same key.
func (h *chainHasher) hashFrames(pid uint32, why string, frames []format.Frame) chainKey {
	h.text = append(binary.LittleEndian.AppendUint32(h.text[:0], pid), why...)
	for i := range frames {
		f := &frames[i]
		for _, text := range []string{f.Func, f.File, f.Module, f.SelfClass} {
			h.text = append(append(h.text, text...), 0)
		}
		h.text = binary.LittleEndian.AppendUint32(h.text, uint32(f.Line))
		h.text = binary.LittleEndian.AppendUint64(h.text, uint64(f.Addr))
	}
	return h.hashBuffer()
}

// insertStack numbers a new stack and completes its row. If the table is full, it returns a note
// once, and calls with this stack have no stack.
func (t *Table) insertStack(id uint64, key chainKey, row format.Row) []format.Row {
	s := &KnownStack{
		ID: t.lastID + 1, pid: row.Pid, Site: nameCallSite(row.Frames), Status: row.StackStatus,
		NoTable: row.StackStatus == format.StackTruncated && row.Message == format.TruncationMapping,
	}
	if t.roomBytes < s.memoryBytes()+bytesPerStackID {
		return t.noteTableFull()
	}
	t.lastID++
	t.roomBytes -= s.memoryBytes() + bytesPerStackID
	t.stacks[id], t.chains[key] = s, s
	row.Kind, row.Device, row.StackID, row.Site, row.Stack = format.KindStack, -1, s.ID, s.Site, foldStack(row.Frames)
	return []format.Row{row}
}

// aliasStackID maps another kernel stack ID to a known stack.
func (t *Table) aliasStackID(id uint64, s *KnownStack) []format.Row {
	if _, ok := t.stacks[id]; !ok {
		if t.roomBytes < bytesPerStackID {
			return t.noteTableFull()
		}
		t.roomBytes -= bytesPerStackID
	}
	t.stacks[id] = s
	return nil
}

// memoryBytes returns the approximate memory of the stack in the table, in bytes.
func (s *KnownStack) memoryBytes() int { return bytesPerStack + len(s.Site) }

// noteTableFull returns a note that the table of distinct stacks is full, once.
func (t *Table) noteTableFull() []format.Row {
	if t.fullNoted {
		return nil
	}
	t.fullNoted = true
	return []format.Row{{
		Kind: format.KindNote, Name: "stacks", Device: -1,
		Message: "the table of distinct stacks is full: later calls with a new stack have no stack",
	}}
}

// ForgetProcesses removes the stacks of processes that have ended.
func (t *Table) ForgetProcesses(gone map[int32]bool) {
	maps.DeleteFunc(t.spaces, func(pid uint32, _ *addressSpace) bool { return gone[int32(pid)] })
	maps.DeleteFunc(
		t.stacks,
		func(_ uint64, s *KnownStack) bool {
			bytes := bytesPerStackID
			if s.Status == format.StackRationed {
				bytes += bytesPerStack // it is in no chain
			}
			return t.releaseBytes(gone[s.pid], bytes)
		},
	)
	maps.DeleteFunc(
		t.chains,
		func(_ chainKey, s *KnownStack) bool { return t.releaseBytes(gone[s.pid], s.memoryBytes()) },
	)
}

// releaseBytes adds bytes to the free space of the table of stacks if gone is true. It returns
// gone.
func (t *Table) releaseBytes(gone bool, bytes int) bool {
	if gone {
		t.roomBytes += bytes
	}
	return gone
}
