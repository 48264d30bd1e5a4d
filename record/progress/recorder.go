//go:build linux

package progress

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

// Sink receives the rows. rowwriter.Writer implements it.
type Sink interface {
	ProgressBatch() []format.ProgressRow
	SendProgress(batch []format.ProgressRow)
	CountLostProgress(n int64)
	Send(rows []format.Row)
}

// Options are the parts of a recording that a Recorder uses.
type Options struct {
	Rate   Rate
	Probes *probe.Probes // loaded with SampleProgress
	Sink   Sink
	Clock  clock.Clock
	// Processes returns the start times of the recorded processes, by pid.
	Processes func() map[int]int64
	// Warn receives a sentence about data that will be missing.
	Warn func(text string)
}

// Recorder records the progress of the channels of all recorded processes.
type Recorder struct {
	opt   Options
	table *probe.ProgressTable
	lives lives
	// watches are the watched processes, by pid.
	watches map[int]*watch
	ended   Cost // cost of the watches that have ended
	warned  bool
}

// Cost is the cost of reading progress words outside of probes.
type Cost struct {
	CPUNs int64 // CPU time of the pollers
	Torn  int64 // pairs of words that were discarded, because the GPU wrote them during the read
}

// watch is a watched process.
type watch struct {
	startNs  int64 // of the process; identifies it together with the pid
	sinceNs  int64 // on the recording's clock
	progress *probe.ProcessProgress
	finder   *finder
	poller   *poller
	stop     chan struct{}
	done     sync.WaitGroup
}

// watchInterval is the time between searches for new and exited processes.
const watchInterval = 100 * time.Millisecond

// New returns a Recorder. Close releases it.
func New(opt Options) (*Recorder, error) {
	table, err := opt.Probes.OpenProgressTable()
	if err != nil {
		return nil, err
	}
	return &Recorder{opt: opt, table: table, watches: make(map[int]*watch)}, nil
}

// Run records until stop is closed. It returns after all rows are sent.
func (r *Recorder) Run(stop <-chan struct{}) {
	for {
		r.followProcesses()
		r.sendLives()
		if clock.Sleep(stop, watchInterval) {
			break
		}
	}
	for pid := range r.watches {
		r.end(pid)
	}
	r.sendLives()
}

// Close releases the memory that is shared with the BPF programs, after Run.
func (r *Recorder) Close() error { return r.table.Close() }

// Channels returns the number of channels so far. Safe for concurrent use.
func (r *Recorder) Channels() int { return int(r.lives.channels.Load()) }

// Cost returns the cost, after Run.
func (r *Recorder) Cost() Cost { return r.ended }

// followProcesses begins to watch new processes, and ends the watches of processes that have
// exited.
func (r *Recorder) followProcesses() {
	processes := r.opt.Processes()
	for pid, w := range r.watches {
		if start, ok := processes[pid]; !ok || start != w.startNs {
			r.end(pid)
		}
	}
	for pid, start := range processes {
		if r.watches[pid] == nil {
			r.begin(pid, start)
		}
	}
}

// begin watches a process.
func (r *Recorder) begin(pid int, startNs int64) {
	shared, err := r.table.Add(pid)
	if err != nil {
		r.warn(fmt.Sprintf("GPU times of process %d are not recorded: %v", pid, err))
		r.watches[pid] = &watch{startNs: startNs}
		return
	}
	stop, slots := make(chan struct{}), make(chan found, maxSlots)
	w := &watch{startNs: startNs, sinceNs: r.opt.Clock.NowNs(), progress: shared, stop: stop}
	w.finder = &finder{
		pid:      pid,
		clock:    r.opt.Clock,
		progress: shared,
		missing:  &r.opt.Probes.MissingLaunches,
		scanner: newScanner(
			pid,
		),
		groups: make(map[uint64]*group),
		passed: make(map[uint64]bool),
		found:  slots,
		stop:   stop,
	}
	p := &poller{
		pid: pid, rate: r.opt.Rate, clock: r.opt.Clock, memory: memory{pid: pid}, progress: shared, lives: &r.lives,
		sink: r.opt.Sink, found: slots,
	}
	w.poller, w.finder.slotsGone = p, &p.gone
	w.done.Go(w.finder.run)
	w.done.Go(w.poller.run)
	r.watches[pid] = w
}

// end ends the watch of a process. If the process has no GPU times, it notes the reason.
func (r *Recorder) end(pid int) {
	w := r.watches[pid]
	delete(r.watches, pid)
	if w.progress == nil {
		return
	}
	close(w.stop)
	w.done.Wait()
	if w.poller.channels == 0 && w.progress.Submitted() > 0 {
		r.noteMissing(pid, w.finder.explainMissing())
	}
	r.ended.CPUNs += w.poller.cpuNs.Load()
	r.ended.Torn += w.poller.torn.Load()
	if n := w.progress.Lost(); n > 0 {
		r.opt.Sink.CountLostProgress(n)
	}
	_ = w.progress.Remove() // the map entry has no effect without slots
}

// sendLives sends the rows of channels that have begun or ended.
func (r *Recorder) sendLives() {
	if rows := r.lives.take(); len(rows) > 0 {
		r.opt.Sink.Send(rows)
	}
}

// noteMissing writes a note about a process without GPU times, and warns once.
func (r *Recorder) noteMissing(pid int, why error) {
	text := fmt.Sprintf("GPU times of process %d are not recorded: %v", pid, why)
	r.opt.Sink.Send([]format.Row{
		{
			Kind:    format.KindNote,
			Name:    "gpu-time",
			StartNs: r.opt.Clock.NowNs(),
			Pid:     int32(pid),
			Device:  -1,
			Message: text,
		},
	})
	r.warn(text)
}

// warn passes the first sentence to Options.Warn.
func (r *Recorder) warn(text string) {
	if !r.warned && r.opt.Warn != nil {
		r.warned = true
		r.opt.Warn(text)
	}
}

// Reasons why a process has no GPU times.
var (
	errNoMappings = errors.New("it has no memory of an NVIDIA GPU that gpurec may read")
	errNoWords    = errors.New("its driver shows no progress of channels that gpurec knows")
	errUnrelated  = errors.New("words in its GPU memory change, but not with its calls")
)

// explainMissing returns the reason why no slot was found.
func (f *finder) explainMissing() error {
	switch {
	case !f.scanner.readable:
		return errNoMappings
	case f.moved:
		return errUnrelated
	}
	return errNoWords
}
