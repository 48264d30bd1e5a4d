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
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/ring"
	"github.com/gpurec/gpurec/record/stack"
	"github.com/gpurec/gpurec/record/unwind"
)

// batchRows is how many rows go to the writer at once: 4,096 x 320 bytes = 1.3 MiB.
const batchRows = 4096

// Writer decodes what the ring buffer brought into rows and writes them. It has a goroutine of its
// own, so that symbol tables, compression and the disk never delay the drain. Its state belongs to
// that goroutine until Wait returns, and to the caller afterwards.
type Writer struct {
	writer          *format.Writer
	counters        *counters
	stacks          *stack.Table
	names           kernelNames
	threads         map[int32]*knownThread
	captures        *captures
	namesDistrusted bool               // names read behind handles
	baseMeta        func() format.Meta // without what the row writer counts

	Chunks chan []byte // ring records, back to back
	pool   *ring.Pool
	rows   chan []format.Row // from NVML and others; one class per slice
	asks   chan chan overhead.Rates
	done   chan struct{}

	gathered    [gatheredClasses][]format.Row // calls, by class of rows from ClassMemory on
	launches    launchRate
	sinceRotate [bpf.CudaCallClassCLASS_COUNT]int64
	unsure      []turnRows // that may not be on disk yet
	failed      error
	onFailure   func(error) // told once, when the disk refuses
	progress    atomic.Pointer[Progress]
	// launchRate is how many kernels the busiest process launches in a second.
	launchRate atomic.Int64
	rated      accountSums // when rates were asked for last
	ratedAt    time.Time

	bounds  bounds
	onFull  func()          // told once, when the recording has reached its size
	ended   map[int32]int64 // processes that have ended and are not forgotten yet → when
	orphans chan []bpf.CudaEvent
}

// gatheredClasses are the classes of rows that come one by one, in masses.
const gatheredClasses = format.ClassAllocator - format.ClassMemory + 1

// rowClass says in which rows calls of a class are.
func rowClass(class bpf.CudaCallClass) format.Class {
	switch class {
	case bpf.CudaCallClassCLASS_MEMORY:
		return format.ClassMemory
	case bpf.CudaCallClassCLASS_ALLOCATOR:
		return format.ClassAllocator
	}
	return format.ClassCall
}

// Progress counts what was recorded so far.
type Progress struct {
	Calls     int64 // written
	Counted   int64 // only counted
	Lost      int64
	FileBytes int64 // finished segments
}

// Options are the parts that a Writer works with.
type Options struct {
	Writer   *format.Writer
	Probes   *probe.Probes
	Clock    clock.Clock
	Unwinder *unwind.Unwinder // nil: stacks are not unwound
	Pool     *ring.Pool       // of the chunks; the row writer frees it
	Limits   format.Limits
	// Meta returns the metadata but for what the row writer counts. Any goroutine may call it.
	Meta func() format.Meta
	// OnFailure is called once, when the disk refuses; OnFull once, at the greatest size.
	OnFailure func(error)
	OnFull    func()
}

// New returns a Writer whose goroutine, Run, has not begun.
func New(opt Options) *Writer {
	s := &Writer{
		writer: opt.Writer, counters: newAccounts(opt.Probes, opt.Clock), stacks: stack.NewTable(opt.Unwinder),
		names: newKernelNames(), threads: make(map[int32]*knownThread), baseMeta: opt.Meta,
		Chunks: make(chan []byte, ring.MaxChunks), pool: opt.Pool, rows: make(chan []format.Row, 64),
		asks: make(chan chan overhead.Rates), orphans: make(chan []bpf.CudaEvent), done: make(chan struct{}),
		launches: newLaunchRate(), ratedAt: time.Now(), bounds: newBounds(opt.Limits), ended: make(map[int32]int64),
		onFailure: opt.OnFailure, onFull: opt.OnFull,
	}
	s.captures = newCaptures(&opt.Probes.Missing)
	s.progress.Store(new(Progress))
	return s
}

// Run writes what comes until the chunks and the rows have ended. Segments are finished every
// rotateEvery.
func (s *Writer) Run(rotateEvery time.Duration) {
	defer close(s.done)
	look := time.NewTicker(lossInterval)
	defer look.Stop()
	rotate := time.NewTicker(rotateEvery)
	defer rotate.Stop()
	chunks, rows := s.Chunks, s.rows
	for chunks != nil || rows != nil {
		select {
		case chunk, ok := <-chunks:
			if !ok {
				chunks = nil
				continue
			}
			s.decode(chunk)
			s.pool.Put(chunk)
			s.keepBounds()
		case open := <-s.orphans:
			for i := range open {
				s.add(&open[i])
			}
		case r, ok := <-rows:
			if !ok {
				rows = nil
				continue
			}
			s.take(r)
			s.keepBounds()
		case reply := <-s.asks:
			reply <- s.rates(time.Now())
		case <-look.C:
			s.look()
		case <-rotate.C:
			s.rotate()
		}
	}
}

// take writes rows that others made. A process that is new, or a new program, has
// other mappings than were known under its number.
func (s *Writer) take(rows []format.Row) {
	for i := range rows {
		if rows[i].Kind != format.KindProcess {
			continue
		}
		exited := strings.Contains(rows[i].Message, `"exit_ns"`)
		s.noteExit(rows[i].Pid, exited, s.counters.clock.NowNs())
		if !exited {
			s.stacks.Renew(uint32(rows[i].Pid))
		}
	}
	class := format.ClassOf(rows[0].Kind)
	if class == format.ClassSample && s.bounds.endNs != 0 {
		return // after the end
	}
	s.write(class, rows)
}

// look writes down what was lost and counted, and tells how far things are.
func (s *Writer) look() {
	rows, err := s.counters.look()
	if err != nil {
		s.fail(err)
	}
	for i := range rows {
		s.write(format.ClassOf(rows[i].Kind), rows[i:i+1])
	}
	s.distrustNames()
	if rate, ok := s.launches.look(time.Now()); ok {
		s.launchRate.Store(rate)
	}
	var p Progress
	for _, c := range s.counters.calls() {
		p.Calls += c.Recorded + c.Dropped
		p.Counted += c.Counted
		p.Lost += c.Lost
	}
	p.FileBytes = s.writer.Bytes()
	s.progress.Store(&p)
}

// decode reads ring records. Every record starts with its kind and is padded to 8
// bytes, as the drain left it.
func (s *Writer) decode(chunk []byte) {
	for len(chunk) >= 8 {
		size := 0
		switch kind := *(*uint16)(unsafe.Pointer(&chunk[0])); bpf.CudaRecordKind(kind) {
		case bpf.CudaRecordKindRECORD_CALL:
			size = int(unsafe.Sizeof(bpf.CudaEvent{}))
			s.add((*bpf.CudaEvent)(unsafe.Pointer(&chunk[0])))
		case bpf.CudaRecordKindRECORD_STACK:
			stack := (*bpf.CudaStackEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Offsetof(stack.Pc)) + 8*int(stack.Frames)
			s.addStack(s.stacks.Add(stack))
		case bpf.CudaRecordKindRECORD_UNWOUND:
			stack := (*bpf.CudaUnwoundEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Sizeof(*stack)) + 8*int(stack.Words)
			s.addStack(s.stacks.AddUnwound(stack, ring.Words(chunk[unsafe.Sizeof(*stack):], int(stack.Words))))
		case bpf.CudaRecordKindRECORD_NAME:
			name := (*bpf.CudaNameEvent)(unsafe.Pointer(&chunk[0]))
			size = int(unsafe.Offsetof(name.Name)) + int(name.Length)
			s.addName(name)
		default:
			s.fail(errors.New("decode ring buffer: unknown kind of record"))
			return
		}
		chunk = chunk[min((size+7)&^7, len(chunk)):]
	}
}

// add turns one call into a row.
func (s *Writer) add(e *bpf.CudaEvent) {
	call, name, perThread, ok := bpf.ByCookie(e.Call)
	if !ok {
		return
	}
	class := call.Class
	rows := &s.gathered[rowClass(class)-format.ClassMemory]
	if len(*rows) == batchRows { // before this call is in the books: it may show that the disk refuses
		s.write(rowClass(class), *rows)
		*rows = (*rows)[:0]
	}
	if s.failed != nil {
		s.counters.unwritten[class]++
		return
	}
	if s.bounds.endNs != 0 && !s.clip(e) {
		s.counters.after[class]++
		return
	}
	s.counters.written[class]++
	s.sinceRotate[class]++
	s.bounds.lastNs = max(s.bounds.lastNs, s.counters.clock.UnixNs(e.StartNs+e.DurNs))
	if *rows == nil {
		*rows = make([]format.Row, 0, batchRows)
	}
	*rows = (*rows)[:len(*rows)+1]
	row := &(*rows)[len(*rows)-1]
	s.fill(row, e, call, name)
	if perThread {
		row.Flags |= format.FlagPerThreadStream
	}
	if row.Flags&format.FlagOpen != 0 {
		s.counters.open[class]++
	}
	if row.Flags&format.FlagAbandoned != 0 {
		s.counters.abandoned[class]++
	}
	t, ok := s.threads[row.Tid]
	if !ok {
		t = s.noteThread(row.Pid, row.Tid)
	}
	n := int64(2)
	if row.Flags&(format.FlagNoReturn|format.FlagOpen|format.FlagAbandoned) != 0 {
		n = 1
	}
	switch {
	case call.SamplesReturns():
		s.launches.count(row.Pid)
		t.hits.Launches += n
	case class == bpf.CudaCallClassCLASS_ALLOCATOR:
		t.hits.Allocator += n
	default:
		t.hits.Others += n
	}
}
