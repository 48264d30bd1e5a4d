//go:build linux

package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// maxEarlierBlocksRead is the number of processes whose blocks are read at the same time.
const maxEarlierBlocksRead = 4

// errFork is the reason if a process has a copy of its parent's allocator.
var errFork = errors.New("the process is a fork, and has only a copy of its parent's allocator")

// readEarlierBlocks starts a goroutine that reads the blocks of a process's caching allocator once. The events of the
// allocator are recorded already, so that blocks and later events together have no gap.
func (s *Session) readEarlierBlocks(pid int) {
	s.helpers.Go(func() {
		select {
		case s.earlierBlocks <- struct{}{}:
			defer func() { <-s.earlierBlocks }()
		case <-s.stop:
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-s.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		if s.opt.onEarlierBlocks != nil {
			defer s.opt.onEarlierBlocks(pid)
		}
		m, err := OpenTorchMemory(ctx, pid)
		if err != nil {
			s.sendAllocatorState(pid, -1, nil, reasonOf(err))
			return
		}
		defer m.Close()
		for device := range m.Devices() {
			r, err := m.Read(ctx, device)
			s.sendAllocatorState(pid, device, r.State, cmp.Or(reasonOf(err), r.Refused))
		}
	})
}

// reasonOf returns an error of TorchMemory without the name of the process.
func reasonOf(err error) error {
	var named *TorchMemoryError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// openAllocator finds the allocator of a process.
func openAllocator(pid int, lib *library.Library) (*torchallocator.Reader, error) {
	p, err := process.Open(pid)
	if err != nil {
		return nil, torchallocator.ErrEnded
	}
	defer p.Close()
	r, err := findAllocator(p, lib)
	if err != nil {
		return nil, err
	}
	parent, err := process.Open(p.ParentPid())
	if err != nil {
		return r, nil
	}
	defer parent.Close()
	if other, err := findAllocator(parent, lib); err == nil && r.IsCopyOf(other) {
		return nil, errFork
	}
	return r, nil
}

// findAllocator finds the allocator of a process that may have mapped a library.
func findAllocator(p *process.Process, lib *library.Library) (*torchallocator.Reader, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, torchallocator.ErrEnded
	}
	variable, ok := lib.AllocatorVariable(maps)
	if !ok {
		return nil, torchallocator.ErrUnused
	}
	r, err := torchallocator.Open(torchallocator.ProcessMemory(p.Pid), variable)
	if err == nil {
		r.Remember(lib.BuildID)
	}
	return r, err
}

// sendAllocatorState passes the blocks of an allocator to the row writer, or the reason why they are unknown.
func (s *Session) sendAllocatorState(pid, device int, state *torchallocator.State, err error) {
	for _, end := range []error{torchallocator.ErrEnded, process.ErrNoProcess, ErrReplaced, errFork, context.Canceled} {
		if errors.Is(err, end) {
			return // the process has no memory of its own, or the recording ends
		}
	}
	note := format.Row{
		Kind:    format.KindNote,
		Name:    format.NoteAllocatorState,
		StartNs: s.clock.NowNs(),
		Pid:     int32(pid),
		Device:  int32(device),
	}
	var fact format.AllocatorStateFact
	var rows []format.Row
	if err != nil {
		fact.Refused = err.Error()
	} else {
		note.StartNs = s.clock.UnixNs(uint64(state.AtNs))
		fact.Blocks, fact.Segments, fact.Tries = state.CountBlocks(), len(state.Segments), state.Tries
		fact.ReadNs = state.EndNs - state.AtNs
		fact.LimitBytes = int64(min(state.LimitBytes, math.MaxInt64))
		rows = allocatorBlockRows(state, format.Row{
			Kind: format.KindAllocatorBlock, StartNs: note.StartNs, DurNs: state.EndNs - state.AtNs, Pid: note.Pid,
			Device: note.Device, MemoryKind: format.MemoryTorch,
			AllocatedBytes: int64(state.AllocatedBytes), ReservedBytes: int64(state.ReservedBytes),
		})
	}
	text, err := json.Marshal(fact)
	if err != nil {
		return // cannot happen: the members are strings and numbers
	}
	note.Message = string(text)
	s.pipeline.writer.Send(append(rows, note))
}

// allocatorBlockRows returns the rows of an allocator's segments and blocks. row has the columns that all of them share.
func allocatorBlockRows(state *torchallocator.State, row format.Row) (rows []format.Row) {
	names := map[torchallocator.Use]string{
		torchallocator.Cached: format.BlockCached, torchallocator.Allocated: format.BlockAllocated,
		torchallocator.AwaitsStream: format.BlockAwaitsStream,
	}
	for i := range state.Segments {
		segment := &state.Segments[i]
		row.Stream, row.SrcPtr = int64(segment.Stream), PoolNumber(segment.Pool)
		row.Name, row.Message, row.Value = format.BlockSegment, format.BlocksLarge, 0
		if segment.IsExpandable {
			row.Name = format.BlockMappedRange
		}
		if segment.IsSmall {
			row.Message = format.BlocksSmall
		}
		row.Ptr, row.Bytes = int64(segment.Address), int64(segment.Bytes)
		rows = append(rows, row)
		row.Message = ""
		for _, b := range segment.Blocks {
			row.Name, row.Ptr, row.Bytes, row.Value = names[b.Use], int64(
				b.Address,
			), int64(
				b.Bytes,
			), float64(
				b.Requested,
			)
			rows = append(rows, row)
		}
	}
	return rows
}

// PoolNumber returns the number of a private pool in rows: n for pool {0, n}, -n for pool {n, 0}.
func PoolNumber(id torchallocator.PoolID) int64 {
	if id[0] != 0 {
		return -int64(id[0])
	}
	return int64(id[1])
}
