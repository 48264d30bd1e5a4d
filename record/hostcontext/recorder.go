//go:build linux

package hostcontext

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
	"github.com/gpurec/gpurec/record/hoststack"
)

// Sink receives the rows. rowwriter.Writer implements it.
type Sink interface {
	// SendHost takes over rows of class host. It never blocks.
	SendHost(rows []format.Row)
	// CountLostHost counts rows of class host that were not sent.
	CountLostHost(n int64)
}

// Options are the parts of a recording that a Recorder uses.
type Options struct {
	Mode  Mode // not ModeOff
	Sink  Sink
	Clock clock.Clock
	// Threads returns the threads that have called CUDA, as pid<<32|tid. Threads that have ended may be
	// among them.
	Threads func() []uint64
	// Processes returns the start times of the recorded processes, by pid.
	Processes func() map[int]int64
	// IsGIL reports whether an address of a process is in the GIL of its interpreter. nil: unknown.
	IsGIL func(pid int, addr uint64) bool
	// Files has the unwind tables and symbols of processes. nil: the recorder has its own.
	Files *hoststack.Files
	// Warn receives a sentence about data that will be missing for the whole recording. It may be nil.
	Warn func(text string)
}

// Intervals of the recorder's work.
const (
	watchInterval  = 100 * time.Millisecond // between searches for new threads, and rows of ended waits
	metricInterval = time.Second            // between the rows of a thread's metrics
)

// Recorder records class host. Call New, Run in a goroutine, and Close.
type Recorder struct {
	opt      Options
	accounts *switches.Accounts
	threads  *threadSet
	wakers   *wakers
	limit    waitLimit
	// ended are the waits that were read last. Their rows are sent after the next watchInterval, because a snapshot of
	// them may still be in progress. fresh are those that were read since.
	ended, fresh []switches.Wait
	sentNs       int64 // CLOCK_MONOTONIC of the last call of sendEnded

	mu      sync.Mutex
	missing []string
	cost    Cost
	surest  time.Duration // all waits of this length have rows, of the whole recording
}

// Cost is the cost of a Recorder.
type Cost struct {
	CPUNs int64 // CPU time of the recorder's threads for class host
	Rows  int64
}

// New starts to account context switches. An error says why class host is not recorded, as a
// *privilege.Error or one of package switches.
func New(opt Options) (*Recorder, error) {
	accounts, err := switches.Open(minWait)
	if err != nil {
		return nil, err
	}
	r := &Recorder{opt: opt, accounts: accounts, limit: newWaitLimit()}
	r.threads = newThreadSet(accounts, r.note)
	r.wakers = newWakers(accounts, r.threads, r.note)
	return r, nil
}

// Close stops the BPF programs, after Run.
func (r *Recorder) Close() { r.accounts.Close() }

// Run records until stop is closed. It returns after all rows are sent.
func (r *Recorder) Run(stop <-chan struct{}) {
	var meter meter
	meter.start()
	var helpers sync.WaitGroup
	helpers.Go(func() { r.runSnapshots(stop) })
	nextMetrics := clock.ReadNs(unix.CLOCK_MONOTONIC)
	for {
		r.threads.follow(r.opt.Threads())
		now := clock.ReadNs(unix.CLOCK_MONOTONIC)
		r.readWaits()
		if now >= r.sentNs+int64(watchInterval) {
			r.sentNs = now
			r.sendEnded()
		}
		if now >= nextMetrics {
			processes := r.opt.Processes()
			r.threads.followChildren(processes)
			r.wakers.setProcesses(processes)
			nextMetrics = max(nextMetrics+int64(metricInterval), now)
			r.sendMetrics(now, false)
			r.limitWaits()
		}
		interval := r.wakers.interval()
		r.addCost(meter.stop())
		hasEnded := clock.Sleep(stop, interval)
		meter.start()
		if hasEnded {
			break
		}
	}
	helpers.Wait()
	r.threads.follow(r.opt.Threads())
	r.readWaits()
	r.sendEnded()
	r.sendEnded() // those of the last read, too
	r.sendMetrics(clock.ReadNs(unix.CLOCK_MONOTONIC), true)
	r.limitWaits()
	r.addCost(meter.stop())
}

// readWaits reads the waits that have ended since the last call.
func (r *Recorder) readWaits() {
	err := r.accounts.Drain(func(w *switches.Wait) {
		r.fresh = append(r.fresh, *w)
		r.wakers.see(w)
	})
	if err != nil {
		r.note(err.Error())
	}
}

// sendEnded sends the rows of the waits that were read before the last call.
func (r *Recorder) sendEnded() {
	rows := make([]format.Row, 0, len(r.ended))
	for i := range r.ended {
		rows = append(rows, r.waitRow(&r.ended[i], 0))
	}
	r.send(rows)
	r.ended, r.fresh = r.fresh, r.ended[:0]
}

// waitRow returns the row of a wait. flags is format.FlagOpen for a wait that has not ended.
func (r *Recorder) waitRow(w *switches.Wait, flags int32) format.Row {
	row := format.Row{
		Kind: format.KindWait, Name: switches.StateName(w.State), StartNs: r.opt.Clock.UnixNs(w.OffNs),
		DurNs: int64(w.OnNs - w.OffNs), Pid: int32(w.Tgid), Tid: int32(w.Tid), CPU: int32(w.Cpu),
		Value: float64(w.DelayNs), RanNs: int64(w.RanNs), Flags: flags,
	}
	fact := explainWait(w)
	if r.isGILWait(w) {
		fact.Reason = format.ReasonGIL
	}
	if t := r.threads.get(int(w.Tid)); t != nil {
		fact = t.stacks.setStack(&row, w, fact)
		if len(row.Frames) == 0 && w.State != 0 {
			t.wantsStack.Store(true)
		}
	}
	r.wakers.describe(&row, &fact, w)
	setMessage(&row, fact)
	return row
}

// isGILWait reports whether a thread waited for a futex in the GIL.
func (r *Recorder) isGILWait(w *switches.Wait) bool {
	return r.opt.IsGIL != nil && w.State != 0 && hoststack.SystemCallName(int64(w.Call)) == "futex" &&
		r.opt.IsGIL(int(w.Tgid), w.Arguments[0])
}

// setMessage sets the message of a row to the facts of a wait.
func setMessage(row *format.Row, fact format.WaitFact) {
	if fact == (format.WaitFact{}) {
		return
	}
	text, err := json.Marshal(fact)
	if err == nil { // a struct of strings and numbers
		row.Message = string(text)
	}
}

// sendMetrics sends a sample of the metrics of all threads. isLast also sends their present waits.
func (r *Recorder) sendMetrics(now int64, isLast bool) {
	var rows []format.Row
	for _, t := range r.threads.all() {
		account, ok, err := r.accounts.Read(t.tid, now)
		if err != nil || !ok {
			continue
		}
		if t.hasEnded {
			r.threads.forget(t) // its last waits have rows by now
			continue
		}
		rows = append(rows, t.metrics.sample(t, r.opt.Clock.UnixNs(uint64(now)), &account, isLast)...)
		if isLast && account.IsWaiting && account.Open.OnNs-account.Open.OffNs >= uint64(r.limit.min) &&
			readOpenCall(t, &account.Open) {
			rows = append(rows, r.waitRow(&account.Open, format.FlagOpen))
		}
		t.hasEnded = account.HasEnded
	}
	r.send(rows)
}

// send sends rows of class host in parts.
func (r *Recorder) send(rows []format.Row) {
	const maxRows = 4096
	for part := range slices.Chunk(rows, maxRows) {
		r.opt.Sink.SendHost(slices.Clip(part))
	}
	r.mu.Lock()
	r.cost.Rows += int64(len(rows))
	r.mu.Unlock()
}

// limitWaits raises the shortest wait that has a row if there are too many rows, and counts lost rows.
func (r *Recorder) limitWaits() {
	c, err := r.accounts.Counters()
	if err != nil {
		return // only if the recorder has no memory
	}
	r.wakers.limit(&c)
	lost, changed := r.limit.update(&c)
	if lost > 0 {
		r.opt.Sink.CountLostHost(lost)
	}
	if c.Missed > 0 {
		r.note("the kernel reported some context switches only in part: the times between are in no sum")
	}
	if changed {
		if err := r.accounts.SetMinWait(r.limit.min); err != nil {
			r.note(err.Error())
		}
		r.mu.Lock()
		r.surest = r.limit.highest
		r.mu.Unlock()
		if r.limit.min > minWait {
			r.note(fmt.Sprintf("there were more than %d waits a second: some waits of up to %v have no row",
				maxWaitRows, r.limit.highest))
		}
	}
}

// note adds a sentence to what is missing, once.
func (r *Recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.missing, text) || len(r.missing) == maxMissing {
		return
	}
	r.missing = append(r.missing, text)
}

// maxMissing bounds the sentences in HostFact.Missing.
const maxMissing = 32

// addCost adds CPU time of the recorder.
func (r *Recorder) addCost(ns int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cost.CPUNs += ns
}

// Cost returns the cost so far. Safe for concurrent use.
func (r *Recorder) Cost() Cost {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cost
}

// Fact describes what was recorded so far. Safe for concurrent use before Close.
func (r *Recorder) Fact() format.HostFact {
	r.mu.Lock()
	fact := format.HostFact{
		Mode: r.opt.Mode.String(), SampleHz: r.opt.Mode.hz(), MinWaitNs: int64(max(minWait, r.surest)),
		Missing: slices.Clone(r.missing), CPUNs: r.cost.CPUNs,
	}
	r.mu.Unlock()
	if c, err := r.accounts.Counters(); err == nil {
		fact.Switches, fact.TargetSwitches = c.Switches, c.TargetSwitches
		fact.SwitchNs, fact.TargetSwitchNs = c.SwitchNs, c.TargetSwitchNs
		fact.Wakings, fact.TargetWakings = c.Wakings, c.TargetWakings
		fact.WakingNs, fact.TargetWakingNs = c.WakingNs, c.TargetWakingNs
	}
	return fact
}

// NoteRow returns the row of the note on class host.
func NoteRow(fact *format.HostFact, atNs int64) format.Row {
	text, err := json.Marshal(fact)
	if err != nil {
		text = nil // not for a struct of numbers and strings
	}
	return format.Row{
		Kind: format.KindNote, Name: format.NoteHost, StartNs: atNs, Device: -1, Message: string(text),
	}
}
