//go:build linux

package rowwriter

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/kernelargs"
	"github.com/gpurec/gpurec/record/liveset"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/ring"
	"github.com/gpurec/gpurec/record/stack"
	"github.com/gpurec/gpurec/record/unwind"
)

// rowsPerBatch is the number of rows in one write to the segment writer: 4,096 x 320 bytes = 1.3
// MiB.
const rowsPerBatch = 4096

// Writer decodes the records from the ring buffer into rows and writes the rows. It runs in its own
// goroutine, so that symbolization, compression and the disk never delay the drain. Its state
// belongs to that goroutine until Wait returns, and to the caller of Wait afterwards.
type Writer struct {
	writer          *format.Writer
	counters        *callCounters
	stacks          *stack.Table
	names           kernelNames
	threads         map[int32]*knownThread
	captures        *captureTracker
	engine          engineCalls
	namesDistrusted bool               // names read through handles are discarded
	baseMeta        func() format.Meta // returns the metadata without the row writer's counts

	// Chunks receives ring buffer records, one after the other, from the drain.
	Chunks chan []byte
	pool   *ring.ChunkPool
	rows   chan []format.Row // rows of other goroutines, such as NVML; one class per slice
	done   chan struct{}

	// gathered has the calls that are not written yet, by row class.
	gathered    [numRowClasses][]format.Row
	launches    launchRateMeter
	sinceRotate [bpf.CudaCallClassCLASS_COUNT]int64 // calls since the last rotation
	pending     []rotationCallCounts                // rotations that may not be on disk yet
	failed      error                               // the first write error; no more rows are written
	onFailure   func(error)                         // called once, at the first write error
	progress    atomic.Pointer[Progress]
	// launchRateMeter is the launch rate of the busiest process, per second.
	launchRate atomic.Int64

	channelProgress progressQueue
	host            hostQueue
	communicators   communicators
	censuses        chan ProcessCensus
	arguments       *argumentKeeper // nil: the arguments of launches are not recorded

	bounds    recordingBounds
	onFull    func() // called once, when the recording reaches its size limit
	tap       func(format.Class, []format.Row)
	exited    map[int32]int64 // pid of each recently exited process -> exit time in Unix ns
	openCalls chan []bpf.CudaEvent
	requests  chan func()   // run by the row writer's goroutine
	returned  returnedCalls // nil: no capture ends now
	watch     rowWatch
	live      *liveset.Set // nil: live memory is not followed
}

// numRowClasses is the number of row classes. Calls are written in batches.
const numRowClasses = format.ClassCollective + 1

// rowClassOfCall returns the row class in which calls of a class are written.
func rowClassOfCall(class bpf.CudaCallClass) format.Class {
	switch class {
	case bpf.CudaCallClassCLASS_MEMORY:
		return format.ClassMemory
	case bpf.CudaCallClassCLASS_ALLOCATOR:
		return format.ClassAllocator
	case bpf.CudaCallClassCLASS_COLLECTIVE:
		return format.ClassCollective
	}
	return format.ClassCall
}

// Progress counts the calls recorded so far.
type Progress struct {
	Calls     int64 // calls with a row
	Counted   int64 // calls that are counted by function, without a row
	Lost      int64 // calls that could not be recorded
	FileBytes int64 // size of the finished segments
}

// Options are the components that a Writer uses.
type Options struct {
	Writer   *format.Writer
	Probes   *probe.Probes
	Clock    clock.Clock
	Unwinder *unwind.Unwinder // nil: stacks are not unwound
	Pool     *ring.ChunkPool  // pool of the chunks; Wait frees the pool
	Limits   format.Limits
	// KernelArgs is the number of launches of a stream whose arguments are kept, AllLaunches, or 0. Resolver
	// finds the parameters of kernels then.
	KernelArgs int
	Resolver   *kernelargs.Resolver
	// Meta returns the metadata without the row writer's counts. Any goroutine may call it.
	Meta func() format.Meta
	// OnFailure is called once, at the first write error. OnFull is called once, when the
	// recording reaches its size limit. The row writer's goroutine calls both.
	OnFailure func(error)
	OnFull    func()
	// Tap, if set, is called with all rows that are written, at most counterReadInterval after they came. It
	// must not keep them. The row writer's goroutine calls it.
	Tap func(format.Class, []format.Row)
	// Watch sees all rows of calls, allocator events and samples before they are written, at most 100 ms after
	// they arrive. The row writer's goroutine calls it. nil: none.
	Watch Watcher
	// Live, if set, gets all memory calls before Watch sees them. Captures get the live memory whose rows the ring
	// has dropped from it. The row writer's goroutine owns it.
	Live *liveset.Set
}

// Watcher looks at rows. It must neither keep nor change them.
type Watcher interface {
	// WatchRows gets rows of one class.
	WatchRows(c format.Class, rows []format.Row)
	// WatchTime is called every 100 ms.
	WatchTime(nowNs int64)
}

// New returns a Writer. The caller starts its goroutine with Run.
func New(opt Options) *Writer {
	s := &Writer{
		writer:    opt.Writer,
		counters:  newCallCounters(opt.Probes, opt.Clock),
		stacks:    stack.NewTable(opt.Unwinder),
		names:     newKernelNames(),
		threads:   make(map[int32]*knownThread),
		baseMeta:  opt.Meta,
		Chunks:    make(chan []byte, ring.MaxWaitingChunks),
		pool:      opt.Pool,
		rows:      make(chan []format.Row, 64),
		openCalls: make(chan []bpf.CudaEvent),
		requests:  make(chan func()),
		watch:     rowWatch{watcher: opt.Watch},
		live:      opt.Live,
		done:      make(chan struct{}),
		launches:  newLaunchRateMeter(),
		bounds:    newRecordingBounds(opt.Limits),
		exited:    make(map[int32]int64),
		onFailure: opt.OnFailure,
		onFull:    opt.OnFull,
		tap:       opt.Tap,

		channelProgress: newProgressQueue(),
		host:            newHostQueue(),
		communicators:   make(communicators),
		censuses:        make(chan ProcessCensus, maxWaitingCensuses),
		arguments:       newArgumentKeeper(opt.KernelArgs, opt.Resolver),
	}
	s.captures = newCaptureTracker(&opt.Probes.MissingLaunches)
	s.progress.Store(new(Progress))
	return s
}

// Run writes records and rows until Chunks is closed and Wait is called. It finishes segments every
// rotateEvery.
func (w *Writer) Run(rotateEvery time.Duration) {
	defer close(w.done)
	counterTicker := time.NewTicker(counterReadInterval)
	defer counterTicker.Stop()
	rotate := time.NewTicker(rotateEvery)
	defer rotate.Stop()
	chunks, rows := w.Chunks, w.rows
	for chunks != nil || rows != nil {
		select {
		case chunk, ok := <-chunks:
			if !ok {
				chunks = nil
				continue
			}
			w.decodeRecords(chunk)
			w.writeLaunchProgress()
			w.pool.PutChunk(chunk)
			w.enforceLimits()
		case open := <-w.openCalls:
			for i := range open {
				w.addCall(&open[i])
			}
		case r, ok := <-rows:
			if !ok {
				rows = nil
				continue
			}
			w.writeOtherRows(r)
			w.enforceLimits()
		case batch := <-w.channelProgress.waiting:
			w.writeProgressBatch(batch)
			w.enforceLimits()
		case census := <-w.censuses:
			w.addCensus(&census)
		case batch := <-w.host.waiting:
			w.writeHost(batch)
			w.enforceLimits()
		case do := <-w.requests:
			do()
		case <-counterTicker.C:
			w.updateCounters()
			if w.tap != nil {
				w.flushCalls()
			}
			w.watchGathered()
		case <-rotate.C:
			w.rotateSegments()
		}
	}
	w.writeWaitingProgress()
	w.writeWaitingHost()
	w.writeWaitingCensuses()
	w.writeLastCommunicators()
	w.writeAllArguments()
}

// writeOtherRows writes rows of other goroutines. A new process, or a target that called exec, has
// other mappings than the earlier process with this pid: its stacks are resolved again.
func (w *Writer) writeOtherRows(rows []format.Row) {
	for i := range rows {
		if rows[i].Kind != format.KindProcess {
			continue
		}
		exited := strings.Contains(rows[i].Message, `"exit_ns"`)
		w.noteProcessExit(rows[i].Pid, exited, w.counters.clock.NowNs())
		if !exited {
			w.stacks.RenewProcess(uint32(rows[i].Pid))
			w.forgetCommunicators(uint32(rows[i].Pid), rows[i].StartNs)
			w.forgetLiveMemory(rows[i].Pid)
		}
	}
	if rows[0].Kind == format.KindXid {
		for i := range rows {
			w.writeArgumentsOfXid(rows[i].Pid)
		}
	}
	class := format.ClassOf(rows[0].Kind)
	if class == format.ClassSample && w.bounds.endNs != 0 {
		return // the recording has reached its size limit
	}
	if w.watch.watcher != nil {
		w.watch.watcher.WatchRows(class, rows)
	}
	w.writeRows(class, rows)
}

// updateCounters writes rows of lost and counted calls, and updates the progress.
func (w *Writer) updateCounters() {
	rows, err := w.counters.readKernelCounters()
	if err != nil {
		w.stopWriting(err)
	}
	for i := range rows {
		w.writeRows(format.ClassOf(rows[i].Kind), rows[i:i+1])
	}
	w.discardHandleNames()
	for _, c := range w.communicators {
		w.compareNumbers(c)
	}
	w.writeUnresolved()
	if rate, ok := w.launches.updateRate(time.Now()); ok {
		w.launchRate.Store(rate)
	}
	var p Progress
	for _, c := range w.counters.callCounts() {
		p.Calls += c.Recorded + c.Dropped
		p.Counted += c.Counted
		p.Lost += c.Lost
	}
	p.FileBytes = w.writer.Bytes()
	w.progress.Store(&p)
}

// decodeRecords decodes ring buffer records. Each record begins with its kind, and is padded to 8
// bytes.
func (w *Writer) decodeRecords(chunk []byte) {
	for len(chunk) >= 8 {
		size := 0
		switch kind := *(*uint16)(unsafe.Pointer(&chunk[0])); bpf.CudaRecordKind(kind) {
		case bpf.CudaRecordKindRECORD_CALL:
			size = int(unsafe.Sizeof(bpf.CudaEvent{}))
			w.addCall((*bpf.CudaEvent)(unsafe.Pointer(&chunk[0])))
		case bpf.CudaRecordKindRECORD_ENGINE:
			call := (*bpf.CudaEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Sizeof(*call))
			w.engine.add(call, w.stacks.GetCallStack(call))
		case bpf.CudaRecordKindRECORD_STACK:
			stack := (*bpf.CudaStackEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Offsetof(stack.Pc)) + 8*int(stack.Frames)
			w.writeStackRows(w.stacks.AddStack(stack))
		case bpf.CudaRecordKindRECORD_UNWOUND:
			stack := (*bpf.CudaUnwoundEvent)(unsafe.Pointer(&chunk[0]))
			words := int(stack.Words) + int(stack.ClassWords)
			size = int(unsafe.Sizeof(*stack)) + 8*words
			w.writeStackRows(w.stacks.AddUnwoundStack(stack, ring.StackWords(chunk[unsafe.Sizeof(*stack):], words)))
		case bpf.CudaRecordKindRECORD_LEARNED:
			learned := (*bpf.CudaLearnedEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Sizeof(*learned))
			w.writeStackRows(w.stacks.Learn(learned))
		case bpf.CudaRecordKindRECORD_PROGRESS:
			progress := (*bpf.CudaProgressEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Sizeof(*progress))
			w.addLaunchProgress(progress)
		case bpf.CudaRecordKindRECORD_ARGUMENTS:
			size = w.addArguments(chunk)
		case bpf.CudaRecordKindRECORD_NAME:
			name := (*bpf.CudaNameEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Offsetof(name.Name)) + int(name.Length)
			w.addKernelName(name)
		default:
			w.stopWriting(errors.New("decode ring buffer: unknown kind of record"))
			return
		}
		chunk = chunk[min((size+7)&^7, len(chunk)):]
	}
}

// addCall writes the row of a call, and counts the call and its probe hits.
func (w *Writer) addCall(e *bpf.CudaEvent) {
	call, name, perThread, ok := bpf.FunctionByCookie(e.Call)
	if !ok {
		return
	}
	class := call.Class
	rows := &w.gathered[rowClassOfCall(class)]
	if len(*rows) == rowsPerBatch { // write before the new call is counted, because writing may fail
		w.watchClass(rowClassOfCall(class))
		w.writeRows(rowClassOfCall(class), *rows)
		*rows = (*rows)[:0]
		w.watch.seen[rowClassOfCall(class)] = 0
	}
	if w.failed != nil {
		w.counters.unwritten[class]++
		return
	}
	if w.bounds.endNs != 0 && !w.clipCallToEnd(e) {
		w.counters.after[class]++
		return
	}
	w.counters.written[class]++
	w.sinceRotate[class]++
	w.bounds.lastNs = max(w.bounds.lastNs, w.counters.clock.UnixNs(e.StartNs+e.DurNs))
	if *rows == nil {
		*rows = make([]format.Row, 0, rowsPerBatch)
	}
	*rows = (*rows)[:len(*rows)+1]
	row := &(*rows)[len(*rows)-1]
	w.fillCallRow(row, e, call, name)
	if w.returned != nil {
		w.returned.add(e)
	}
	if perThread {
		row.Flags |= format.FlagPerThreadStream
	}
	if row.Flags&format.FlagOpen != 0 {
		w.counters.open[class]++
	}
	if row.Flags&format.FlagAbandoned != 0 {
		w.counters.abandoned[class]++
	}
	if _, ok := w.threads[row.Tid]; !ok {
		w.addThread(row.Pid, row.Tid)
	}
	if call.SamplesReturnProbes() {
		w.launches.countLaunch(row.Pid)
	}
	w.noteCallForArguments(e, call, row)
}
