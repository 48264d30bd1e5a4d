//go:build linux

package record

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// completeReadings is the number of readings from one that lists all blocks to the next one.
const completeReadings = 64

// readBlocks starts a goroutine that reads the blocks of a process's caching allocator at regular times, until the
// recording or the process ends, or the process maps another allocator.
func (s *Session) readBlocks(pid int) {
	ctx, cancel := context.WithCancel(context.Background())
	s.blockReaders.replace(pid, cancel)
	s.helpers.Go(func() {
		defer cancel()
		go func() {
			select {
			case <-s.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		w := blockWatch{session: s, pid: pid, known: make(map[int]*knownBlocks)}
		defer w.close()
		w.run(ctx, s.opt.BlocksEvery)
	})
}

// blockReaders end the goroutines of readBlocks, by pid. It is safe for concurrent use.
type blockReaders struct {
	mu   sync.Mutex
	stop map[int]context.CancelFunc
}

// replace ends the goroutine of a process, and stores what ends the new one.
func (b *blockReaders) replace(pid int, stop context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.stop[pid]; old != nil {
		old()
	}
	if b.stop == nil {
		b.stop = make(map[int]context.CancelFunc)
	}
	b.stop[pid] = stop
}

// blockWatch reads the blocks of one process at regular times.
type blockWatch struct {
	session *Session
	pid     int
	memory  *TorchMemory         // nil until the allocator was found
	known   map[int]*knownBlocks // by device
	refused string               // why the allocator was not found at the last reading
	openAt  time.Time            // when to look for the allocator again
}

// openPause is the shortest time between two searches for an allocator: each reads the symbols of its library.
const openPause = time.Second

// run reads until ctx ends, or the process ends or executes another program.
func (w *blockWatch) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for w.readAll(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *blockWatch) close() {
	if w.memory != nil {
		w.memory.Close()
	}
}

// readAll reads the blocks of all devices once. It returns false if there will be nothing to read any more.
func (w *blockWatch) readAll(ctx context.Context) bool {
	if w.memory == nil {
		if time.Now().Before(w.openAt) {
			return true
		}
		w.openAt = time.Now().Add(openPause)
		m, err := OpenTorchMemory(ctx, w.pid)
		switch {
		case err == nil:
			w.memory = m
		case ctx.Err() != nil:
			return false
		default:
			return w.refuse(err)
		}
	}
	for device := range w.memory.Devices() {
		r, err := w.memory.Read(ctx, device)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			return w.refuse(err)
		case r.Refused != nil:
			w.send(device, nil, r.Refused)
		default:
			w.send(device, r.State, nil)
		}
	}
	return true
}

// refuse writes why the allocator cannot be read, unless it did so at the last reading. It returns false if the program
// has ended, or its memory is a copy of its parent's.
func (w *blockWatch) refuse(err error) bool {
	for _, end := range []error{torchallocator.ErrEnded, process.ErrNoProcess, ErrReplaced, errFork} {
		if errors.Is(err, end) {
			return false
		}
	}
	if text := err.Error(); text != w.refused && !errors.Is(err, torchallocator.ErrUnused) {
		w.refused = text
		w.send(-1, nil, err)
	}
	return true
}

// send passes the rows of one reading to the row writer.
func (w *blockWatch) send(device int, state *torchallocator.State, err error) {
	row := format.Row{
		Kind: format.KindBlock, StartNs: w.session.clock.NowNs(), Pid: int32(w.pid), Device: int32(device),
		MemoryKind: format.MemoryTorch,
	}
	if err != nil {
		row.Name, row.Message = format.BlocksRefused, err.Error()
		w.session.pipeline.writer.Send([]format.Row{row})
		return
	}
	row.StartNs, row.DurNs = w.session.clock.UnixNs(uint64(state.AtNs)), state.EndNs-state.AtNs
	row.AllocatedBytes, row.ReservedBytes = int64(state.AllocatedBytes), int64(state.ReservedBytes)
	known := w.known[device]
	if known == nil {
		known = new(knownBlocks)
		w.known[device] = known
	}
	w.session.pipeline.writer.Send(known.update(state, row))
}

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
