//go:build linux

package probe

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
)

// MaxProgressSlots is the number of slots of a process that the BPF programs read.
const MaxProgressSlots = len(bpf.CudaProgressProcess{}.Slots)

// ErrProgressFull is the error of ProgressTable.Add if the table has no room for another process.
var ErrProgressFull = errors.New("launches read the progress of at most 64 processes")

// ProgressTable is memory that is shared with the BPF programs. For each process it has the slots
// that launches read, and a count of calls that submit work. It is safe for concurrent use.
type ProgressTable struct {
	probes *Probes
	mapped []byte

	mu   sync.Mutex
	used map[uint32]bool // indexes of processes
}

// OpenProgressTable maps the table. The programs must have been loaded with SampleProgress.
func (p *Probes) OpenProgressTable() (*ProgressTable, error) {
	table := p.Objects.ProgressProcesses
	size := int(table.MaxEntries()) * int(unsafe.Sizeof(bpf.CudaProgressProcess{}))
	size = (size + os.Getpagesize() - 1) &^ (os.Getpagesize() - 1)
	mapped, err := unix.Mmap(table.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table of progress: %w", err)
	}
	return &ProgressTable{probes: p, mapped: mapped, used: make(map[uint32]bool)}, nil
}

// Close unmaps the table. No ProcessProgress may be used afterwards.
func (t *ProgressTable) Close() error { return unix.Munmap(t.mapped) }

// Add makes the BPF programs count the calls of a process that submit work.
func (t *ProgressTable) Add(pid int) (*ProcessProgress, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index := uint32(0)
	for t.used[index] {
		index++
	}
	if index >= t.probes.Objects.ProgressProcesses.MaxEntries() {
		return nil, ErrProgressFull
	}
	at := uintptr(index) * unsafe.Sizeof(bpf.CudaProgressProcess{})
	shared := (*bpf.CudaProgressProcess)(unsafe.Pointer(&t.mapped[at]))
	*shared = bpf.CudaProgressProcess{}
	if err := t.probes.Objects.ProgressIndexes.Put(uint32(pid), index); err != nil {
		return nil, fmt.Errorf("count the calls of process %d: %w", pid, err)
	}
	t.used[index] = true
	return &ProcessProgress{table: t, pid: uint32(pid), index: index, shared: shared}, nil
}

// ProcessProgress is the part of a ProgressTable of one process. SetSlots is not safe for
// concurrent use.
type ProcessProgress struct {
	table  *ProgressTable
	pid    uint32
	index  uint32
	shared *bpf.CudaProgressProcess
}

// ProgressSlot is a slot that launches read.
type ProgressSlot struct {
	Address uint64
	Channel int32
	Counter int64 // the newest recorded counter
}

// Submitted returns the number of calls that submit work.
func (p *ProcessProgress) Submitted() uint64 { return atomic.LoadUint64(&p.shared.Submitted) }

// Lost returns the number of samples that did not fit into the ring buffer.
func (p *ProcessProgress) Lost() int64 { return int64(atomic.LoadUint64(&p.shared.Lost)) }

// SetSlots replaces the slots that launches read. It uses the first MaxProgressSlots of slots. A
// BPF program that is running discards what it reads from a replaced slot.
func (p *ProcessProgress) SetSlots(slots []ProgressSlot) {
	slots = slots[:min(len(slots), MaxProgressSlots)]
	atomic.StoreUint32(&p.shared.SlotsLen, 0)
	for i := range slots {
		slot := &p.shared.Slots[i]
		if slot.Address == slots[i].Address && slot.Channel == uint32(slots[i].Channel) {
			continue
		}
		atomic.StoreUint64(&slot.Address, 0)
		atomic.StoreUint32(&slot.Channel, uint32(slots[i].Channel))
		atomic.StoreUint64(&slot.Counter, uint64(slots[i].Counter))
		atomic.StoreUint64(&slot.Address, slots[i].Address)
	}
	atomic.StoreUint32(&p.shared.SlotsLen, uint32(len(slots)))
}

// Counter returns the newest recorded counter of the slot at an index of SetSlots.
func (p *ProcessProgress) Counter(index int) int64 {
	return int64(atomic.LoadUint64(&p.shared.Slots[index].Counter))
}

// NoteCounter stores the counter of a row, so that no launch records it again. It reports whether the
// counter is newer than those of launches.
func (p *ProcessProgress) NoteCounter(index int, counter int64) bool {
	word := &p.shared.Slots[index].Counter
	for {
		recorded := atomic.LoadUint64(word)
		if recorded >= uint64(counter) {
			return false
		}
		if atomic.CompareAndSwapUint64(word, recorded, uint64(counter)) {
			return true
		}
	}
}

// Remove makes the BPF programs ignore the process.
func (p *ProcessProgress) Remove() error {
	atomic.StoreUint32(&p.shared.SlotsLen, 0)
	err := p.table.probes.Objects.ProgressIndexes.Delete(p.pid)
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	delete(p.table.used, p.index)
	return err
}
