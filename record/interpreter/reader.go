//go:build linux

package interpreter

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/process"
)

const (
	// firstFindInterval is the time between two searches for an interpreter in a new process. It doubles up to
	// maxFindInterval, since a search reads all mappings.
	firstFindInterval = 100 * time.Millisecond
	maxFindInterval   = 30 * time.Second
	// endInterval is the time between two checks whether a waiting reader must end, or must search for an
	// interpreter in another program.
	endInterval = 250 * time.Millisecond
	// maxFailures is the number of unreadable states in a row after which the interpreter is looked for again.
	maxFailures = 20
	// costSample is the part of readings whose CPU time is measured.
	costSample = 16
	// maxPauses limits the pauses between two reports.
	maxPauses = 4096
	// maxHolders limits the threads of a process with counters.
	maxHolders = 4096
)

// reader reads the interpreter of one process. Its goroutine owns all members without a comment.
type reader struct {
	pid      int
	process  *process.Process
	recorder *Recorder
	state    *state
	tids     *tids
	waiters  waiters
	pauses   pauses
	last     reading
	hasLast  bool
	n        int64 // readings of the interpreter
	failures int

	ended     atomic.Bool   // the reader has to end
	done      chan struct{} // closed at the end
	busySince atomic.Int64  // start of the current reading on CLOCK_MONOTONIC, 0: none
	cpuNs     atomic.Int64  // CPU time of readings
	wakes     atomic.Int64  // since the last report

	// threads are the threads whose waits are counted, nil if they have not changed.
	threads atomic.Pointer[threadList]

	mu       sync.Mutex
	totals   totals       // guarded by mu
	finished []format.Row // rows of pauses, guarded by mu

	reportedNs int64 // owned by the Recorder
}

// threadList is a list of threads of a process.
type threadList struct{ tids []int }

func newReader(p *process.Process, r *Recorder) *reader {
	return &reader{
		pid: p.Pid, process: p, recorder: r, tids: newTids(p.Pid), done: make(chan struct{}),
		totals: newTotals(),
	}
}

// run finds and reads the interpreter until the process or the recording ends.
func (r *reader) run() {
	defer close(r.done)
	defer r.process.Close()
	defer r.waiters.close()
	for wait := firstFindInterval; r.goOn(); wait = min(2*wait, maxFindInterval) {
		program := r.program()
		if r.find() {
			r.readUntilLost()
			r.state, wait = nil, firstFindInterval/2
		}
		if r.sleep(wait, program) {
			wait = firstFindInterval / 2
		}
	}
}

// goOn reports whether the process runs and the recording continues.
func (r *reader) goOn() bool { return !r.ended.Load() && r.process.Alive() }

// program returns the program that the process executes.
func (r *reader) program() file { return fileOf(r.process.Path("exe")) }

// sleep waits, unless the reader has to end. It returns true early if the process executes another program.
func (r *reader) sleep(d time.Duration, program file) (isOther bool) {
	for end := time.Now().Add(d); r.goOn(); {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		time.Sleep(min(left, endInterval))
		if r.program() != program {
			return true
		}
	}
	return false
}

// find looks for the interpreter.
func (r *reader) find() bool {
	r.begin()
	defer r.busySince.Store(0)
	cpu := startCPU()
	found, err := findState(r.process)
	r.cpuNs.Add(cpu.stop())
	switch {
	case errors.Is(err, cpython.ErrGIL) || errors.Is(err, process.ErrNoProcess):
		return false // it starts or ends
	case err != nil:
		r.recorder.miss(fmt.Sprintf("GIL and garbage collection of process %d: %v", r.pid, err))
		return false
	case found == nil:
		return false
	}
	if found.places.GC == 0 {
		r.recorder.miss(fmt.Sprintf("garbage collection of process %d: %v", r.pid, cpython.ErrGC))
	}
	r.state = found
	return true
}

// readUntilLost reads the interpreter until it cannot be read.
func (r *reader) readUntilLost() {
	program := r.program()
	nextCheck := int64(0)
	for r.failures = 0; !r.ended.Load() && r.failures < maxFailures; {
		now := clock.ReadNs(unix.CLOCK_MONOTONIC)
		r.updateThreads()
		if now >= nextCheck {
			if !r.process.Alive() || r.program() != program {
				break // it has ended or executed another program
			}
			r.check()
			nextCheck = now + reportInterval.Nanoseconds()
		}
		time.Sleep(time.Duration(r.recorder.pace.next(now) - now))
		r.wakes.Add(1)
		r.readOnce()
	}
	r.addPauses(r.pauses.end(r.last.toNs))
	r.hasLast = false
}

// updateThreads opens the files of threads whose waits are counted, if they have changed.
func (r *reader) updateThreads() {
	if threads := r.threads.Swap(nil); threads != nil {
		r.begin()
		defer r.busySince.Store(0)
		r.waiters.set(r.pid, threads.tids)
	}
}

// check checks what changes rarely.
func (r *reader) check() {
	r.begin()
	defer r.busySince.Store(0)
	r.tids.check()
	if gils, err := r.state.interpreter.GILs(); err == nil && len(gils) > 1 {
		r.recorder.miss(
			fmt.Sprintf("GIL and garbage collection of %d more interpreters of process %d", len(gils)-1, r.pid),
		)
	}
}

func (r *reader) begin() { r.busySince.Store(clock.ReadNs(unix.CLOCK_MONOTONIC)) }

// readOnce takes one reading.
func (r *reader) readOnce() {
	r.begin()
	defer r.busySince.Store(0)
	if r.n++; r.n%costSample == 0 {
		cpu := startCPU()
		defer func() { r.cpuNs.Add(costSample * cpu.stop()) }()
	}
	now, err := r.state.read()
	if err != nil {
		if r.failures++; errors.Is(err, unix.EPERM) || errors.Is(err, unix.ESRCH) {
			r.failures = maxFailures
		}
		return
	}
	r.failures = 0
	if !r.hasLast || now.gil.Start != r.last.gil.Start {
		gil := now.gil
		r.recorder.gils.Store(r.pid, &gil)
	}
	holder := int32(0)
	if now.locked {
		holder = r.tids.host(now.holder.NativeID)
	}
	var waiting []int32
	if now.locked {
		waiting = r.waiters.find(now.gil)
	}
	finished := r.pauses.add(now, holder)
	r.mu.Lock()
	r.totals.add(&now, &r.last, r.hasLast, holder, waiting)
	r.mu.Unlock()
	r.addPauses(finished)
	r.last, r.hasLast = now, true
}

// addPauses adds rows of pauses.
func (r *reader) addPauses(finished []pause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range finished {
		if len(r.finished) < maxPauses {
			r.finished = append(r.finished, p.row(r.pid, r.recorder.options.Clock))
		}
	}
}

// take returns a copy of the totals, and the rows of pauses since the last call.
func (r *reader) take() (totals, []format.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	finished := r.finished
	r.finished = nil
	return r.totals.clone(r.recorder.options.Clock), finished
}

// cpuTime measures the CPU time of a part of a goroutine.
type cpuTime struct{ startNs int64 }

func startCPU() cpuTime {
	runtime.LockOSThread()
	return cpuTime{clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)}
}

// stop returns the CPU time in ns.
func (c cpuTime) stop() int64 {
	defer runtime.UnlockOSThread()
	return clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - c.startNs
}

// file identifies a file.
type file struct{ dev, inode uint64 }

// fileOf returns the file at a path, or the zero value.
func fileOf(path string) file {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return file{}
	}
	return file{uint64(st.Dev), st.Ino}
}
