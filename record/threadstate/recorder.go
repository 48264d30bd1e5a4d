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

// Limits of snapshots.
const (
	// silentSnapshotTime bounds the snapshots of the processes that are silent at one time.
	silentSnapshotTime = 3 * time.Second
	// endSnapshotTime bounds the snapshots at the end of a recording, of all processes together.
	endSnapshotTime = 2 * time.Second
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
	// OnSilence is called after the snapshots of silent processes, with these processes. It must not be nil.
	OnSilence func(pids []int)
	// Files has the unwind tables and symbols of processes. nil: the recorder has its own.
	Files *hoststack.Files
	// UsedCUDA are processes that used CUDA before the recording.
	UsedCUDA []int
}

// Recorder takes snapshots of processes. Run and TakeAtEnd may be called concurrently.
type Recorder struct {
	opt Options

	mu sync.Mutex // held during snapshots
	// snapshotter is nil before the first snapshot.
	snapshotter *hoststack.Snapshotter
	// failed is the first reason why snapshots are not possible.
	failed error
	cost   Cost

	cancelMu sync.Mutex
	cancel   context.CancelFunc // ends the snapshots of Run
}

// Cost is the effort of snapshots.
type Cost struct {
	Snapshots, Threads int
	Took               time.Duration // of all snapshots
}

// New returns a Recorder. Close releases it.
func New(opt Options) *Recorder { return &Recorder{opt: opt} }

// Run takes snapshots of silent processes until stop is closed.
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
			r.take(ctx, due, silentSnapshotTime, format.WhenSilence)
			r.opt.OnSilence(due)
		}
	}
}

// TakeAtEnd takes snapshots of all processes in at most two seconds. It ends those of Run.
func (r *Recorder) TakeAtEnd() {
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
	r.take(context.Background(), pids, endSnapshotTime, format.WhenEnd)
}

// TakeNow takes snapshots of processes because of a trigger, in at most three seconds.
func (r *Recorder) TakeNow(pids []int) {
	r.take(context.Background(), pids, silentSnapshotTime, format.WhenTrigger)
}

// take takes snapshots of processes one by one, and sends the rows. It counts a process without a snapshot as one lost
// row.
func (r *Recorder) take(ctx context.Context, pids []int, limit time.Duration, when string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open() != nil {
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
		snapshot, err := r.snapshotter.Take(ctx, pid)
		if errors.Is(err, process.ErrNoProcess) {
			continue // it has ended
		}
		if err != nil {
			r.opt.Sink.CountLostHost(1)
			r.failed = fmt.Errorf("take a snapshot of process %d: %w", pid, err)
			return
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return // TakeAtEnd follows
		}
		rows, left := makeRows(snapshot, when, atNs)
		r.opt.Sink.SendHost(rows)
		if left > 0 {
			r.opt.Sink.CountLostHost(left)
		}
		r.cost.Snapshots++
		r.cost.Threads += len(snapshot.Threads)
		r.cost.Took += snapshot.Took
	}
}

// open loads the BPF programs at the first call. It returns the reason why snapshots are not possible.
func (r *Recorder) open() error {
	if r.snapshotter == nil && r.failed == nil {
		r.snapshotter, r.failed = hoststack.Open(r.opt.Files)
	}
	return r.failed
}

// Look returns a snapshot of a process that is not recorded. Its errors are those of hoststack.Snapshotter.Take, and Err.
func (r *Recorder) Look(ctx context.Context, pid int) (*hoststack.ProcessSnapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.open(); err != nil {
		return nil, err
	}
	return r.snapshotter.Take(ctx, pid)
}

// Cost returns the effort of all snapshots so far.
func (r *Recorder) Cost() Cost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cost
}

// Err returns the reason why snapshots are missing, or nil.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Close releases the BPF programs. No snapshot may be in progress.
func (r *Recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.snapshotter != nil {
		r.snapshotter.Close()
		r.snapshotter = nil
	}
	r.failed = errors.New("closed")
}
