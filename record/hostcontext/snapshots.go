//go:build linux

package hostcontext

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/process"
)

const (
	// snapshotTime bounds the reads of one process in one snapshot.
	snapshotTime = 2 * time.Second
	// maxSnapshotCPU is the share of a processor that snapshots may take in ModeAuto, apart from firstSnapshotCPU.
	maxSnapshotCPU = 0.01
	// firstSnapshotCPU is CPU time for the unwind tables and symbols of a process, which are read once.
	firstSnapshotCPU = 300 * time.Millisecond
	// minHz is the lowest rate of snapshots.
	minHz = 2
)

// snapshotLoop takes the stacks of watched threads while they wait.
type snapshotLoop struct {
	recorder    *Recorder
	snapshotter *hoststack.Snapshotter
	hz          float64
	creditNs    float64      // CPU time that snapshots may take now
	changes     int          // of the watched threads that are sampled
	lost        int64        // samples
	pids        map[int]bool // processes that the snapshotter knows
}

// runSnapshots takes snapshots until stop is closed. Without the privileges for it, waits have no stacks.
func (r *Recorder) runSnapshots(stop <-chan struct{}) {
	snapshotter, err := hoststack.Open(r.opt.Files)
	if err != nil {
		text := fmt.Sprintf("waits have no stacks, and there are no CPU samples: %v", err)
		r.note(text)
		if r.opt.Warn != nil {
			r.opt.Warn("--host: " + text)
		}
		return
	}
	defer snapshotter.Close()
	l := &snapshotLoop{
		recorder:    r,
		snapshotter: snapshotter,
		hz:          r.opt.Mode.hz(),
		creditNs:    float64(firstSnapshotCPU),
		pids:        make(map[int]bool),
	}
	var meter meter
	var used int64
	second := time.Now()
	snapshotterCPU := snapshotter.CPUNs()
	for !clock.Sleep(stop, time.Duration(float64(time.Second)/l.hz)) {
		meter.start()
		l.setSampled()
		l.takeDue()
		l.readSamples()
		cpu := snapshotter.CPUNs()
		used += meter.stop() + cpu - snapshotterCPU
		snapshotterCPU = cpu
		if passed := time.Since(second); passed >= time.Second {
			r.addCost(used)
			l.pace(float64(used), passed)
			used, second = 0, time.Now()
			l.forgetProcesses()
		}
	}
	meter.start()
	l.readSamples()
	r.addCost(used + meter.stop())
}

// setSampled samples all watched threads while they run.
func (l *snapshotLoop) setSampled() {
	changes := l.recorder.threads.countChanges()
	if changes == l.changes {
		return
	}
	l.changes = changes
	tids := make(map[int][]int)
	for _, t := range l.recorder.threads.all() {
		tids[t.pid] = append(tids[t.pid], t.tid)
	}
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTime)
	defer cancel()
	for pid, list := range tids {
		l.pids[pid] = true
		err := l.snapshotter.SetSampled(ctx, pid, list, int(l.recorder.opt.Mode.hz()))
		if err != nil && !errors.Is(err, process.ErrNoProcess) {
			l.recorder.note(fmt.Sprintf("some threads have no samples: %v", err))
		}
	}
}

// readSamples sends the rows of samples.
func (l *snapshotLoop) readSamples() {
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTime)
	defer cancel()
	samples, lost, err := l.snapshotter.Samples(ctx)
	if err != nil {
		l.recorder.note(fmt.Sprintf("some threads have no samples: %v", err))
	}
	if lost > l.lost {
		l.recorder.opt.Sink.CountLostHost(lost - l.lost)
		l.lost = lost
	}
	period := int64(float64(time.Second) / l.recorder.opt.Mode.hz())
	rows := make([]format.Row, 0, len(samples))
	for i := range samples {
		s := &samples[i]
		row := format.Row{
			Kind:    format.KindCPUSample,
			StartNs: l.recorder.opt.Clock.UnixNs(uint64(s.AtNs)),
			DurNs:   period,
			Pid: int32(
				s.Pid,
			),
			Tid:         int32(s.Tid),
			CPU:         int32(s.CPU),
			Frames:      s.Frames,
			StackStatus: format.StackComplete,
		}
		if s.Status == hoststack.StatusTruncated {
			row.StackStatus = format.StackTruncated
		}
		rows = append(rows, row)
	}
	l.recorder.send(rows)
}

// pace sets the rate of snapshots by the CPU time that they took in a time.
func (l *snapshotLoop) pace(usedNs float64, passed time.Duration) {
	if l.recorder.opt.Mode == ModeFull {
		return
	}
	share := usedNs / float64(passed)
	l.creditNs = min(l.creditNs+(maxSnapshotCPU-share)*float64(passed), float64(firstSnapshotCPU))
	switch full := l.recorder.opt.Mode.hz(); {
	case share > maxSnapshotCPU && l.creditNs < 0:
		l.hz = max(minHz, l.hz*max(0.25, maxSnapshotCPU/share))
		l.recorder.note("snapshots took 1 % of a processor: they were taken less often for a while")
	case share < maxSnapshotCPU/2 && l.hz < full:
		l.hz = min(full, 1.5*l.hz)
	}
}

// youngestTaken is the age of a wait from which a snapshot takes its stack. So a wait that lasts longer than it
// and the time between snapshots has its own stack. Snapshots take stacks of shorter waits only after the thread
// had a wait in a place without a known stack.
const youngestTaken = 5 * time.Millisecond

// takeDue takes the stacks of threads that have been waiting for a while, once for each wait.
func (l *snapshotLoop) takeDue() {
	now := clock.ReadNs(unix.CLOCK_MONOTONIC)
	due := make(map[int][]int)
	for _, t := range l.recorder.threads.all() {
		account, ok, err := l.recorder.accounts.Read(t.tid, now)
		if err != nil || !ok || !account.IsWaiting {
			continue
		}
		id := waitID(&account)
		youngest := youngestTaken
		if t.wantsStack.Load() {
			youngest = minWait
		}
		if account.Open.OnNs-account.Open.OffNs < uint64(youngest) || t.takenWait == id {
			continue
		}
		t.takenWait = id
		due[t.pid] = append(due[t.pid], t.tid)
	}
	for pid, tids := range due {
		l.take(pid, tids)
	}
}

// waitID identifies a wait of a thread: by its start, which is never 0.
func waitID(t *switches.Thread) uint64 { return t.Open.OffNs }

// take takes the stacks of threads of one process.
func (l *snapshotLoop) take(pid int, tids []int) {
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTime)
	defer cancel()
	l.pids[pid] = true
	found, err := l.snapshotter.TakePartial(ctx, pid, tids)
	switch {
	case errors.Is(err, process.ErrNoProcess):
	case err != nil:
		l.recorder.note(fmt.Sprintf("some waits have no stacks: %v", err))
	case ctx.Err() != nil:
		l.recorder.note(fmt.Sprintf("reading the memory of process %d timed out: its waits have no stacks", pid))
	}
	for i := range found {
		if t := l.recorder.threads.get(found[i].Tid); t != nil && t.pid == pid {
			t.stacks.add(&found[i])
			t.wantsStack.Store(false)
		}
	}
}

// forgetProcesses releases what the snapshotter keeps for processes without watched threads.
func (l *snapshotLoop) forgetProcesses() {
	for pid := range l.pids {
		if !l.recorder.threads.has(pid) {
			l.snapshotter.Forget(pid)
			delete(l.pids, pid)
		}
	}
}
