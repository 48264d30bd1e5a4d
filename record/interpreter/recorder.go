//go:build linux

package interpreter

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/rows"
)

const (
	// listInterval is the time between two searches for processes that have come or ended.
	listInterval = 200 * time.Millisecond
	// reportInterval is the time between two rows of a metric.
	reportInterval = time.Second
	// hungAfter is the time after which a reading counts as hung.
	hungAfter = 2 * time.Second
	// stopWait is the longest time that the end waits for readings. A reading that hangs does not end.
	stopWait = time.Second
	// maxReaders limits the processes that are read.
	maxReaders = 256
	// maxMissing limits the reasons in Missing.
	maxMissing = 32
)

// Sink takes rows of class host. SendHost must not block, and takes over their memory.
type Sink interface{ SendHost(rows []format.Row) }

// Options are the options of a Recorder.
type Options struct {
	Sink  Sink
	Clock clock.Clock
	// IsFull selects the constant rate FullHz. Otherwise the rate is AutoHz at most, and falls if it costs too
	// much.
	IsFull bool
	// Processes returns the start times of the recorded processes, by PID. It must be fast.
	Processes func() map[int]int64
	// Threads returns the threads whose waits for the GIL are counted, as PID<<32|TID. Threads that have ended
	// may be among them. nil: none.
	Threads func() []uint64
}

// Recorder reads the interpreters of processes. Run starts one goroutine for each process, since
// reading another process's memory can block.
type Recorder struct {
	options  Options
	pace     *pace
	readers  map[int]*reader // owned by the goroutine of Run
	counters *rows.Counters  // owned by the goroutine of Run

	gils sync.Map // *cpython.GIL by pid; those of ended processes stay

	mu      sync.Mutex
	missing []string
	endedNs int64 // CPU time of readers that have ended
	readNs  int64 // CPU time of all readers at the last report
}

// New returns a Recorder that reads nothing before Run.
func New(o Options) *Recorder {
	return &Recorder{
		options: o, pace: newPace(o.IsFull), readers: make(map[int]*reader), counters: rows.NewCounters(),
	}
}

// Run records until stop is closed. It sends the last rows before it returns.
func (r *Recorder) Run(stop <-chan struct{}) {
	go r.pace.measureWake()
	lastReport := r.options.Clock.NowNs()
	for ended := false; !ended; {
		r.startReaders()
		r.shareThreads()
		ended = clock.Sleep(stop, listInterval)
		r.reapReaders()
		if now := r.options.Clock.NowNs(); !ended && now-lastReport >= reportInterval.Nanoseconds() {
			r.report(now)
			lastReport = now
		}
	}
	r.stopReaders()
}

// startReaders starts readers for new processes.
func (r *Recorder) startReaders() {
	for pid := range r.options.Processes() {
		if r.readers[pid] != nil {
			continue
		}
		if len(r.readers) >= maxReaders {
			r.miss(fmt.Sprintf("GIL and garbage collection: more than %d processes", maxReaders))
			return
		}
		p, err := process.Open(pid)
		if err != nil {
			continue // it has ended
		}
		r.readers[pid] = newReader(p, r)
		go r.readers[pid].run()
	}
}

// shareThreads passes the threads whose waits are counted to the readers.
func (r *Recorder) shareThreads() {
	if r.options.Threads == nil {
		return
	}
	threads := make(map[int][]int)
	for _, th := range r.options.Threads() {
		pid := int(th >> 32)
		threads[pid] = append(threads[pid], int(uint32(th)))
	}
	for pid, p := range r.readers {
		p.threads.Store(&threadList{threads[pid]})
	}
}

// reapReaders sends the last rows of processes that have ended or are no longer recorded.
func (r *Recorder) reapReaders() {
	pids := r.options.Processes()
	for pid, p := range r.readers {
		select {
		case <-p.done:
			r.endReader(p)
		default:
			if _, ok := pids[pid]; !ok {
				p.ended.Store(true)
			}
		}
	}
}

// stopReaders ends all readers, except those that hang, and sends the last rows.
func (r *Recorder) stopReaders() {
	for _, p := range r.readers {
		p.ended.Store(true)
	}
	deadline := time.After(stopWait)
	for _, p := range r.readers {
		select {
		case <-p.done:
		case <-deadline:
			deadline = closedTime
		}
		r.endReader(p)
	}
}

// closedTime is a deadline that has passed.
var closedTime = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// endReader sends the last rows of a reader, and forgets it.
func (r *Recorder) endReader(p *reader) {
	now := r.options.Clock.NowNs()
	last := r.appendReader(nil, p, now)
	last = r.counters.End(last, int32(p.pid))
	r.send(last)
	r.mu.Lock()
	r.endedNs += p.cpuNs.Load()
	r.mu.Unlock()
	delete(r.readers, p.pid)
}

// report sends the rows of all processes, and adapts the rate.
func (r *Recorder) report(now int64) {
	var all []format.Row
	wakes, readNs := int64(0), int64(0)
	for _, p := range r.readers {
		if since := p.busySince.Load(); since != 0 &&
			clock.ReadNs(unix.CLOCK_MONOTONIC)-since > hungAfter.Nanoseconds() {
			r.miss(fmt.Sprintf("GIL and garbage collection of process %d: a reading hangs", p.pid))
		}
		all = r.appendReader(all, p, now)
		wakes = max(wakes, p.wakes.Swap(0)) // readers wake together
		readNs += p.cpuNs.Load()
	}
	r.send(all)
	r.mu.Lock()
	r.readNs = readNs + r.endedNs
	readNs = r.readNs
	r.mu.Unlock()
	r.pace.adapt(now, wakes, readNs)
}

// appendReader appends the rows of a process.
func (r *Recorder) appendReader(all []format.Row, p *reader, now int64) []format.Row {
	t, pauses := p.take()
	all = append(all, pauses...)
	if t.firstNs == 0 {
		return all // no interpreter yet
	}
	for _, s := range t.samples(int32(p.pid)) {
		if s.Tid == 0 {
			all = r.counters.Start(all, t.firstNs, s)
		} else {
			all = r.counters.Start(all, t.threadStart(p.reportedNs), s)
		}
		all = r.counters.Append(all, min(now, t.lastNs), s)
	}
	p.reportedNs = t.lastNs
	return all
}

func (r *Recorder) send(all []format.Row) {
	if len(all) > 0 {
		r.options.Sink.SendHost(all)
	}
}

// miss notes what is not recorded. It is safe for concurrent use.
func (r *Recorder) miss(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.missing) < maxMissing && !slices.Contains(r.missing, why) {
		r.missing = append(r.missing, why)
	}
}

// IsGIL reports whether an address of a process is in the GIL of its main interpreter. It is safe for concurrent
// use.
func (r *Recorder) IsGIL(pid int, addr uint64) bool {
	gil, ok := r.gils.Load(pid)
	return ok && gil.(*cpython.GIL).Contains(addr)
}

// Missing names what was not recorded, and why. It is safe for concurrent use.
func (r *Recorder) Missing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.missing)
}

// Cost returns the CPU time of the readings until the last report, with an estimate for the wake-ups. It is
// safe for concurrent use.
func (r *Recorder) Cost() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(max(r.readNs, r.endedNs) + r.pace.wakeCostNs())
}

// Hz returns the rate of readings, and the lowest one so far. It is safe for concurrent use.
func (r *Recorder) Hz() (now, lowest float64) { return r.pace.hz() }
