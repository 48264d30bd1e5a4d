//go:build linux

package record

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/target"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// completeReadings is the number of readings from one that lists all blocks to the next one.
const completeReadings = 64

// totalsInterval is the time between readings of an allocator's statistics while its events are sampled.
const totalsInterval = 100 * time.Millisecond

// readingAge is the age of the last reading above which a process's blocks count as unknown. It has room for a few refused
// readings.
const readingAge = 30 * time.Second

// blockReaders read the blocks of processes' caching allocators at regular times, each in its own goroutine: with
// Options.BlocksEvery, or when their events begin to be sampled. It is a sampling.BlockReader, and safe for concurrent
// use.
type blockReaders struct {
	session *Session

	mayRequest bool // Request may be called

	mu      sync.Mutex
	every   time.Duration       // time between readings; 0: nothing is read yet
	totals  bool                // statistics are read, too
	watches map[int]*blockWatch // by pid, of processes that have mapped an allocator
	// prepared has the processes that prepare has started to watch, and add has not added yet.
	prepared map[int]bool
}

// newBlockReaders returns the blockReaders of a session. It reads nothing before its recording has begun.
func newBlockReaders(s *Session) *blockReaders {
	return &blockReaders{
		session: s, every: s.opt.BlocksEvery, mayRequest: s.opt.maySampleEvents(), watches: make(map[int]*blockWatch),
		prepared: make(map[int]bool),
	}
}

// prepare looks for the allocators of processes whose probes are about to be attached, so that their first reading
// comes soon after Request.
func (b *blockReaders) prepare(libraries []target.Library) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, lib := range libraries {
		isCandidate := lib.Kind == library.KindAllocator && lib.IsMapped && b.mayRequest && b.every == 0
		if isCandidate && !b.prepared[lib.Pid] {
			b.prepared[lib.Pid] = true
			b.start(lib.Pid)
		}
	}
}

// maxPrepareWait limits how long attaching waits until blocks were read once. The first reading searches the layout, and
// waits for pauses of the allocator. In busy programs it takes about a second.
const maxPrepareWait = 1500 * time.Millisecond

// awaitPrepared waits until all processes of prepare were read once, or could not be read, but not for long.
func (b *blockReaders) awaitPrepared() {
	b.mu.Lock()
	var watches []*blockWatch
	for pid := range b.prepared {
		watches = append(watches, b.watches[pid])
	}
	b.mu.Unlock()
	limit := time.After(maxPrepareWait)
	for _, w := range watches {
		select {
		case <-w.tried:
		case <-limit:
			return
		}
	}
}

// cancel ends all goroutines. A nil blockReaders has none.
func (b *blockReaders) cancel() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.watches {
		w.cancel()
	}
}

// add adds a process that has mapped a caching allocator, or another one than before.
func (b *blockReaders) add(pid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.prepared[pid] {
		delete(b.prepared, pid)
		return
	}
	if b.every > 0 || b.mayRequest {
		b.start(pid)
	}
}

// Request starts the readings for a recording that samples events of allocators.
func (b *blockReaders) Request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.totals {
		return
	}
	b.totals = true
	if b.every == 0 || b.every > time.Second {
		b.every = time.Second
	}
	for _, w := range b.watches {
		w.request(b.every, b.totals)
	}
}

// start starts the goroutine of a process, and ends an older one. The caller holds b.mu.
func (b *blockReaders) start(pid int) {
	if old := b.watches[pid]; old != nil {
		old.cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &blockWatch{
		session: b.session, pid: pid, known: make(map[int]*knownBlocks), cancel: cancel,
		window: make(chan struct{}, 1), requests: make(chan blockRequest, 2), tried: make(chan struct{}),
	}
	if b.every > 0 {
		w.request(b.every, b.totals)
	}
	b.watches[pid] = w
	b.session.helpers.Go(func() {
		defer cancel()
		go func() {
			select {
			case <-b.session.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		defer w.close()
		w.run(ctx)
	})
}

// Ready reports whether the blocks of each process are known: read some seconds ago at most, or none. Before a
// process's first reading it has no reason.
func (b *blockReaders) Ready() (isReady bool, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	isReady = b.totals
	for pid, w := range b.watches {
		known, why := w.isKnown()
		isReady = isReady && known
		if why != "" {
			reason = fmt.Sprintf("process %d: %s", pid, why)
		}
	}
	return isReady, reason
}

// WindowBegins asks for a reading of each process.
func (b *blockReaders) WindowBegins() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.watches {
		select {
		case w.window <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// blockWatch reads the blocks of one process at regular times.
type blockWatch struct {
	session  *Session
	pid      int
	requests chan blockRequest
	memory   *TorchMemory         // nil until the allocator was found
	known    map[int]*knownBlocks // by device
	refused  string               // why the allocator was not found at the last reading
	openAt   time.Time            // when to look for the allocator again
	cancel   context.CancelFunc   // ends run
	window   chan struct{}        // receives an element when a window of events begins
	tried    chan struct{}        // closed after tryReading
	cost     time.Duration        // processor time of the last reading of all devices

	mu     sync.Mutex
	begin  time.Time // of the first request
	readAt time.Time // of the last reading that was not refused
	why    string    // why the last reading was refused; "": it was not
	isNone bool      // the process has ended, or has no allocator of its own
}

// blockRequest is a request to read the blocks at regular times, and the statistics if hasTotals is set.
type blockRequest struct {
	every     time.Duration
	hasTotals bool
}

// request asks for readings. The last request counts.
func (w *blockWatch) request(every time.Duration, hasTotals bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin = time.Now()
	w.requests <- blockRequest{every, hasTotals} // there are two at most
}

// isKnown reports whether the blocks are known, and if not, why.
func (w *blockWatch) isKnown() (bool, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.isNone || !w.readAt.IsZero() && time.Since(w.readAt) < readingAge:
		return true, ""
	case time.Since(w.begin) < torchMemoryWait:
		return false, ""
	}
	return false, w.why
}

// note stores the result of a reading. isNone says that the process has no blocks.
func (w *blockWatch) note(why string, isNone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why, w.isNone = why, isNone; why == "" {
		w.readAt = time.Now()
	}
}

// openPause is the shortest time between two searches for an allocator: each reads the symbols of its library.
const openPause = time.Second

// minReadingPause is the shortest time between a reading and one that a window asks for.
const minReadingPause = 300 * time.Millisecond

// readingShare is the time between two readings for each unit of processor time that a reading takes: readings take 2 %
// of a processor at most.
const readingShare = 50

// maxReadingPause is the longest time between two readings.
const maxReadingPause = 5 * time.Second

// pauseFor returns the time until the next reading, if one after a time was asked for. It grows with the cost of the last
// reading.
func (w *blockWatch) pauseFor(asked time.Duration) time.Duration {
	return max(asked, min(readingShare*w.cost, maxReadingPause))
}

// run waits for a request, and reads until ctx ends, or the process ends or executes another program. It looks for the
// allocator before, and tries to read it, so that its events can be sampled at once.
func (w *blockWatch) run(ctx context.Context) {
	w.memory, _ = OpenTorchMemory(ctx, w.pid) // readAll tries again, and notes the error
	w.tryReading(ctx)
	close(w.tried)
	var request blockRequest
	select {
	case request = <-w.requests:
	case <-ctx.Done():
		return
	}
	blocks, totals := time.NewTimer(request.every), time.NewTicker(totalsInterval)
	defer blocks.Stop()
	defer totals.Stop()
	for w.readAll(ctx) {
		blocks.Reset(w.pauseFor(request.every))
		if !w.wait(ctx, &request, blocks.C, totals.C) {
			return
		}
	}
	w.note("", true)
}

// tryReading reads the blocks of all devices, and writes no rows. If it succeeds, the blocks count as known.
func (w *blockWatch) tryReading(ctx context.Context) {
	if w.memory == nil {
		return
	}
	for device := range w.memory.Devices() {
		if r, err := w.memory.Read(ctx, device); err != nil || r.Refused != nil {
			return // readAll tries again, and notes the error
		}
	}
	w.note("", false)
}

// wait waits for the next reading, and reads statistics meanwhile. It returns false if ctx ended.
func (w *blockWatch) wait(ctx context.Context, request *blockRequest, blocks, totals <-chan time.Time) bool {
	last := time.Now()
	for {
		select {
		case <-blocks:
			return true
		case <-w.window:
			if time.Since(last) >= w.pauseFor(minReadingPause) {
				return true
			}
		case *request = <-w.requests:
			return true
		case <-totals:
			if request.hasTotals {
				w.readTotals()
			}
		case <-ctx.Done():
			return false
		}
	}
}

// readTotals reads the statistics of all devices once, and passes them to the row writer. It writes nothing for a device
// whose statistics cannot be read now.
func (w *blockWatch) readTotals() {
	if w.memory == nil {
		return
	}
	var rows []format.Row
	for device := range w.memory.Devices() {
		t, err := w.memory.ReadStatistics(device)
		if err != nil || t.Reserved == 0 && t.Allocations == 0 {
			continue
		}
		rows = append(rows, format.Row{
			Kind: format.KindBlock, Name: format.BlockTotals, StartNs: w.session.clock.UnixNs(uint64(t.AtNs)),
			Pid: int32(w.pid), Device: int32(device), MemoryKind: format.MemoryTorch,
			AllocatedBytes: t.Allocated, ReservedBytes: t.Reserved, Bytes: t.Peak,
			Value: float64(t.Allocations), Counter: t.Frees,
		})
	}
	if len(rows) > 0 {
		w.session.pipeline.writer.Send(rows)
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
	w.cost = 0
	for device := range w.memory.Devices() {
		r, err := w.memory.Read(ctx, device)
		w.cost += r.Processor
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			return w.refuse(err)
		case r.Refused != nil:
			w.note(r.Refused.Error(), false)
			w.send(device, nil, r.Refused)
		default:
			w.note("", false)
			w.cost += threadTime(func() { w.send(device, r.State, nil) })
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
	w.note(err.Error(), errors.Is(err, torchallocator.ErrUnused))
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
