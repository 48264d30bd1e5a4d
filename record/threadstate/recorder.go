//go:build linux

package threadstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/process"
)

// Limits of looks.
const (
	// silentLookTime bounds the looks at the processes that are silent at one time.
	silentLookTime = 3 * time.Second
	// endLookTime bounds the looks at the end of a recording, of all processes together.
	endLookTime = 2 * time.Second
	// readingInterval is the time between two readings of the counts of calls.
	readingInterval = time.Second
)

// Sink receives rows. The row writer is one.
type Sink interface {
	// SendHost takes over rows of class host. It never blocks.
	SendHost(rows []format.Row)
	// CountLostHost counts rows of class host that were not sent.
	CountLostHost(n int64)
}

// Options configure a Recorder.
type Options struct {
	Sink  Sink
	Clock clock.Clock
	// Processes returns the recorded processes.
	Processes func() []int
	// ReadHits returns the probe hits of the processes, by pid. They change if a process makes a call.
	ReadHits func() map[int]uint64
	// OnSilence is called after the looks at silent processes, with these processes. It must not be nil.
	OnSilence func(pids []int)
	// UsedCUDA are processes that used CUDA before the recording.
	UsedCUDA []int
}

// Recorder looks at processes. Run and LookAtEnd may be called concurrently.
type Recorder struct {
	opt Options

	mu sync.Mutex // held during looks
	// looker is nil before the first look.
	looker *hoststack.Looker
	// failed is the first reason why looks are not possible.
	failed error
	cost   Cost

	cancelMu sync.Mutex
	cancel   context.CancelFunc // ends the looks of Run
}

// Cost is the effort of looks.
type Cost struct {
	Looks, Threads int
	Took           time.Duration // of all looks
}

// New returns a Recorder. Close releases it.
func New(opt Options) *Recorder { return &Recorder{opt: opt} }

// Run looks at silent processes until stop is closed.
func (r *Recorder) Run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.cancelMu.Lock()
	r.cancel = cancel
	r.cancelMu.Unlock()
	s := newSilence()
	s.expectCalls(r.opt.UsedCUDA, time.Now())
	for !clock.Sleep(stop, readingInterval) {
		hits := r.opt.ReadHits()
		for _, pid := range r.opt.Processes() {
			hits[pid] += 0 // a process without a call, too
		}
		if due := s.update(hits, time.Now()); len(due) > 0 {
			slices.Sort(due)
			r.lookAt(ctx, due, silentLookTime, format.WhenSilence)
			r.opt.OnSilence(due)
		}
	}
}

// LookAtEnd looks at all processes. It takes at most two seconds, and ends looks of Run.
func (r *Recorder) LookAtEnd() {
	r.cancelMu.Lock()
	if r.cancel != nil {
		r.cancel()
	}
	r.cancelMu.Unlock()
	hits := r.opt.ReadHits()
	pids := slices.SortedFunc(slices.Values(r.opt.Processes()), func(a, b int) int {
		if (hits[a] == 0) != (hits[b] == 0) {
			return cmp.Compare(hits[b], hits[a]) // processes that called CUDA come first
		}
		return a - b
	})
	r.lookAt(context.Background(), pids, endLookTime, format.WhenEnd)
}

// LookNow looks at processes because of a trigger. It takes at most three seconds.
func (r *Recorder) LookNow(pids []int) {
	r.lookAt(context.Background(), pids, silentLookTime, format.WhenTrigger)
}

// lookAt looks at processes one by one, and sends the rows. It counts a process without a look as one lost
// row.
func (r *Recorder) lookAt(ctx context.Context, pids []int, limit time.Duration, when string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looker == nil && r.failed == nil {
		r.looker, r.failed = hoststack.Open()
	}
	if r.failed != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, pid := range pids {
		if ctx.Err() != nil {
			r.opt.Sink.CountLostHost(1)
			continue
		}
		atNs := r.opt.Clock.NowNs()
		look, err := r.looker.Look(ctx, pid)
		if errors.Is(err, process.ErrNoProcess) {
			continue // it has ended
		}
		if err != nil {
			r.opt.Sink.CountLostHost(1)
			r.failed = fmt.Errorf("look at process %d: %w", pid, err)
			return
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return // LookAtEnd follows
		}
		rows, left := makeRows(look, when, atNs)
		r.opt.Sink.SendHost(rows)
		if left > 0 {
			r.opt.Sink.CountLostHost(left)
		}
		r.cost.Looks++
		r.cost.Threads += len(look.Threads)
		r.cost.Took += look.Took
	}
}

// Cost returns the effort of all looks so far.
func (r *Recorder) Cost() Cost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cost
}

// Err returns the reason why looks are missing, or nil.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Close releases the BPF programs. No look may be in progress.
func (r *Recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looker != nil {
		r.looker.Close()
		r.looker = nil
	}
	r.failed = errors.New("closed")
}
