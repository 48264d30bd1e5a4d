//go:build linux

package hoststack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind/remote"
)

const (
	// maxRounds bounds the rounds of a snapshot. Threads that wait 100 µs at a time need up to four.
	maxRounds = 10
	// samplingRounds are the rounds without a sample of running threads, before each sampling.
	samplingRounds = 2
	// samplingTime bounds the wait for samples. A running thread gets one each millisecond.
	samplingTime = 20 * time.Millisecond
	// maxSampled bounds the threads that are sampled at a time: each needs a file descriptor.
	maxSampled = 256
	// maxThreads bounds the threads of a snapshot.
	maxThreads = 1 << 16
)

// rounds is one snapshot in progress. run has its own goroutine; found, notes and python are shared with
// the caller under mu.
type rounds struct {
	snapshotter   *Snapshotter
	reader        *snapshot.Reader
	target        *target
	pid           int
	result        *ProcessSnapshot
	first, before map[uint32]*snapshot.Snapshot // by tid: at the start of the snapshot, and of the round
	interpreter   *cpython.Interpreter
	python        *pythonThreads
	gils          []cpython.GIL
	round         int
	isPartial     bool // only some threads are wanted

	mu        sync.Mutex
	abandoned bool
	timedOut  bool
	found     map[uint32]*candidate
	notes     []string
	version   string // of Python
	identity  *format.Identity
}

// candidate is the stack of a thread. It is not changed after it is in found.
type candidate struct {
	snapshot *snapshot.Snapshot
	native   []format.Frame
	isLoop   []bool
	err      error // why the native frames are incomplete
	isLive   bool  // the native frames need memory that was read later

	isPython  bool // the thread is a Python thread
	python    []cpython.Frame
	pythonErr error
	isMoving  bool // the Python frames are not of the moment of the native ones
	rounds    int
	memory    waitMemory
}

// states reads the states of the threads that are not done.
func (r *rounds) states() (map[uint32]*snapshot.Snapshot, error) {
	reader := r.reader
	if reader == nil {
		reader = r.snapshotter.reader
	}
	threads := make(map[uint32]*snapshot.Snapshot)
	err := reader.States(r.pid, func(s *snapshot.Snapshot) {
		if len(threads) < maxThreads {
			s.Stack = nil
			threads[s.Tid] = s
		}
	})
	return threads, err
}

// run takes stacks until all threads have one, or the rounds or the time of ctx are used up.
func (r *rounds) run(ctx context.Context) error {
	if err := r.target.space.refresh(); err != nil {
		if errors.Is(err, process.ErrNoProcess) {
			return err
		}
		r.note("no user frames: " + describeError(err))
		return nil
	}
	r.findInterpreter()
	r.readIdentity()
	for r.round = 1; r.round <= maxRounds && ctx.Err() == nil; r.round++ {
		left, err := r.take(ctx)
		if err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
		if r.round%samplingRounds == 0 {
			if err := r.sample(ctx); err != nil {
				r.note("threads that run have no stacks: " + err.Error())
				return nil
			}
		}
	}
	return nil
}

// readIdentity reads the role of the process in its job, from its environment.
func (r *rounds) readIdentity() {
	if r.target.facts == nil {
		facts := r.target.process.ReadFacts(nil)
		r.target.facts = &facts
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.identity = r.target.facts.Identity
}

// findInterpreter finds the Python of the process.
func (r *rounds) findInterpreter() {
	p, err := r.target.space.findPython()
	if err != nil {
		r.note("no Python frames: " + err.Error())
		return
	}
	if p != nil {
		r.interpreter = p
		r.mu.Lock()
		r.version = p.Version()
		r.mu.Unlock()
	}
}

// take is one round. It returns the number of threads without a stack.
func (r *rounds) take(ctx context.Context) (left int, err error) {
	if r.before, err = r.states(); err != nil {
		return 0, err
	}
	r.target.space.reset()
	r.readPythonThreads()
	var taken []*candidate
	err = r.reader.Stacks(r.pid, func(s *snapshot.Snapshot) {
		if len(taken) < maxThreads && ctx.Err() == nil {
			taken = append(taken, r.unwind(s))
		}
	})
	if err != nil {
		return 0, err
	}
	after, err := r.states()
	if err != nil {
		return 0, err
	}
	for _, c := range taken {
		id := c.snapshot.Tid
		before, now := r.before[id], after[id]
		if now == nil {
			continue // it has ended
		}
		isSame := before != nil && before.IsSameMoment(now) && before.IsSameMoment(c.snapshot)
		if !c.snapshot.IsConsistent() || c.isLive && !isSame {
			left++
			continue
		}
		c.isMoving = c.isPython && !isSame
		if c.isMoving {
			left++
		} else if err := r.reader.Done(c.snapshot); err != nil {
			return 0, err
		}
		r.publish(c)
	}
	return left, nil
}

// readPythonThreads reads the list of Python threads again. It changes when threads start.
func (r *rounds) readPythonThreads() {
	r.python, r.gils = nil, nil
	if r.interpreter == nil {
		return
	}
	r.interpreter.Forget()
	threads, err := listPythonThreads(r.interpreter, r.first)
	if err != nil {
		r.note("no Python frames: " + err.Error())
		r.interpreter = nil
		return
	}
	r.python = threads
	r.gils, _ = r.interpreter.GILs() // without them, a wait for the GIL is one for a condition
}

// unwind unwinds the stack of a snapshot.
func (r *rounds) unwind(s *snapshot.Snapshot) *candidate {
	c := &candidate{snapshot: s, rounds: r.round}
	if !hasUserStack(s) || !s.IsConsistent() {
		s.Stack = nil
		return c
	}
	r.unwindNative(c)
	if t, ok := r.python.of(s); ok {
		c.isPython = true
		c.python, c.pythonErr = r.readPythonFrames(t, s)
	}
	c.memory = r.readWaitMemory(s)
	s.Stack, s.Python = nil, nil
	return c
}

// readWaitMemory reads what the system call of a thread refers to.
func (r *rounds) readWaitMemory(s *snapshot.Snapshot) waitMemory {
	m := r.target.space.memory
	m.setSnapshot(s)
	defer m.setSnapshot(nil)
	w := readWaitMemory(m, s)
	if _, arguments, ok := s.Call(); ok {
		for _, gil := range r.gils {
			if w.isFutex && gil.Contains(arguments[0]) {
				w.isGIL, w.gilHolder = true, uint32(gil.Holder.NativeID)
			}
		}
	}
	return w
}

// unwindNative adds the native frames. Memory of a thread that runs changes at once, so only its
// snapshot is read.
func (r *rounds) unwindNative(c *candidate) {
	sp := r.target.space
	sp.setSnapshot(c.snapshot)
	defer sp.setSnapshot(nil)
	var frames []remote.Frame
	frames, c.err = remote.Unwind(sp, c.snapshot.Regs[:])
	c.isLive = sp.isLive
	c.err = sp.explain(c.err, c.snapshot)
	for _, f := range frames {
		c.native = append(c.native, sp.nameFrame(f))
		c.isLoop = append(c.isLoop, r.interpreter != nil && r.interpreter.InLoop(f.PC))
	}
}

// readPythonFrames reads the Python frames of a thread, from its snapshot if it was sampled.
func (r *rounds) readPythonFrames(t cpython.Thread, s *snapshot.Snapshot) ([]cpython.Frame, error) {
	if s.Sampled {
		return r.interpreter.CopiedFrames(s.Python, s.PythonNext == 0)
	}
	return r.interpreter.Frames(t)
}

// sample takes stacks of threads that run.
func (r *rounds) sample(ctx context.Context) error {
	threads, err := r.states()
	if err != nil {
		return err
	}
	var tids []int
	for _, s := range threads {
		if t := newThread(s, r.pid); hasUserStack(s) && len(tids) < maxSampled {
			tids = append(tids, t.Tid)
		}
	}
	if len(tids) == 0 {
		return nil
	}
	r.target.space.reset()
	r.readPythonThreads()
	if err := r.reader.SetPython(r.python.roots(threads)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, samplingTime)
	defer cancel()
	return r.reader.Sample(ctx, tids, func(s *snapshot.Snapshot) { r.publish(r.unwind(s)) })
}

// publish makes a candidate the stack of its thread.
func (r *rounds) publish(c *candidate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.abandoned {
		r.found[c.snapshot.Tid] = c
	}
}

// note adds a note on missing data, once.
func (r *rounds) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.notes {
		if known == text {
			return
		}
	}
	r.notes = append(r.notes, text)
}

// abandon ends the snapshot while run still waits for the process.
func (r *rounds) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned, r.timedOut = true, true
}

// finish makes the threads of the snapshot. Threads that started after the first states were read are
// part of it, too.
func (r *rounds) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Python, r.result.Notes, r.result.Identity = r.version, r.notes, r.identity
	if r.timedOut {
		r.result.Notes = append(r.result.Notes, reasonTimeout)
	}
	for id, s := range r.first {
		if r.found[id] == nil {
			r.result.Threads = append(r.result.Threads, r.missedThread(s))
		}
	}
	for _, c := range r.found {
		r.result.Threads = append(r.result.Threads, r.thread(c))
	}
	sortThreads(r.result.Threads, r.pid)
	r.findWaits(r.result.Threads)
	if len(r.first) >= maxThreads {
		r.result.Notes = append(r.result.Notes, fmt.Sprintf("only %d threads are shown", maxThreads))
	}
}
