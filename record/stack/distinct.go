//go:build linux

package stack

import (
	"encoding/binary"
	"hash/maphash"
	"maps"

	"github.com/gpurec/gpurec/format"
)

// maxStackBytes bounds what the table of distinct stacks takes, some 250,000 of them: a program
// can make up as many as it likes. PyTorch has thousands.
const maxStackBytes = 64 << 20

const (
	// stackBytes is about what a distinct stack takes beside its site, idBytes a number of the kernel
	// for one: maps are half empty.
	stackBytes, idBytes = 160, 48
)

// chainKey tells chains of frames apart.
type chainKey [2]uint64

// chainHasher makes keys: 128 bits instead of the frames themselves, which take kilobytes. No
// recorded process knows the seeds, so none can make two chains look alike.
type chainHasher struct {
	seeds [2]maphash.Seed
	text  []byte // used again
}

func newChainHasher() chainHasher {
	return chainHasher{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

func (h *chainHasher) key() chainKey {
	return chainKey{maphash.Bytes(h.seeds[0], h.text), maphash.Bytes(h.seeds[1], h.text)}
}

func (h *chainHasher) ofAddresses(pid uint32, chain []uint64) chainKey {
	h.text = binary.LittleEndian.AppendUint32(h.text[:0], pid)
	for _, pc := range chain {
		h.text = binary.LittleEndian.AppendUint64(h.text, pc)
	}
	return h.key()
}

// ofFrames is the same for stacks that read the same.
func (h *chainHasher) ofFrames(pid uint32, why string, frames []format.Frame) chainKey {
	h.text = append(binary.LittleEndian.AppendUint32(h.text[:0], pid), why...)
	for i := range frames {
		f := &frames[i]
		for _, text := range []string{f.Func, f.File, f.Module} {
			h.text = append(append(h.text, text...), 0)
		}
		h.text = binary.LittleEndian.AppendUint32(h.text, uint32(f.Line))
		h.text = binary.LittleEndian.AppendUint64(h.text, uint64(f.Addr))
	}
	return h.key()
}

// keep numbers a stack that is new and completes its row. If there is no room for it, calls with
// it have none, and the rows say so, once.
func (t *Table) keep(id uint64, key chainKey, row format.Row) []format.Row {
	s := &Info{ID: t.lastID + 1, pid: row.Pid, Site: site(row.Frames), Status: row.StackStatus}
	if t.room < s.bytes()+idBytes {
		return t.full()
	}
	t.lastID++
	t.room -= s.bytes() + idBytes
	t.stacks[id], t.chains[key] = s, s
	row.Kind, row.Device, row.StackID, row.Site, row.Stack = format.KindStack, -1, s.ID, s.Site, folded(row.Frames)
	return []format.Row{row}
}

// remember notes that a number of the kernel stands for a known stack.
func (t *Table) remember(id uint64, s *Info) []format.Row {
	if _, ok := t.stacks[id]; !ok {
		if t.room < idBytes {
			return t.full()
		}
		t.room -= idBytes
	}
	t.stacks[id] = s
	return nil
}

func (s *Info) bytes() int { return stackBytes + len(s.Site) }

func (t *Table) full() []format.Row {
	if t.told {
		return nil
	}
	t.told = true
	return []format.Row{{
		Kind: format.KindNote, Name: "stacks", Device: -1,
		Message: "there were more distinct stacks than gpurec keeps: calls whose stacks are new from here on have none",
	}}
}

// Forget drops the stacks of processes that have ended.
func (t *Table) Forget(gone map[int32]bool) {
	maps.DeleteFunc(t.spaces, func(pid uint32, _ *addressSpace) bool { return gone[int32(pid)] })
	maps.DeleteFunc(t.stacks, func(_ uint64, s *Info) bool { return t.leaves(gone[s.pid], idBytes) })
	maps.DeleteFunc(t.chains, func(_ chainKey, s *Info) bool { return t.leaves(gone[s.pid], s.bytes()) })
}

// leaves takes back what something took that goes.
func (t *Table) leaves(gone bool, bytes int) bool {
	if gone {
		t.room += bytes
	}
	return gone
}
