//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/trigger"
)

// Options configure an agent.
type Options struct {
	Config Config
	// Record are the options of the recording. The agent sets output, limits and triggers.
	Record record.Options
	// IsSevereXid says which Xids fire.
	IsSevereXid func(code int64) bool
	// Seal merges the folder of a capture, and deletes the folder. It runs in a process of its own.
	Seal func(folder string) error
	// OnRefused is called for each trigger without a capture, with the folder of captures.
	OnRefused func(captures *os.Root, t format.Trigger)
	// Manual asks for a capture with each element.
	Manual <-chan os.Signal
	// Log receives sentences for the operator. Any goroutine may call it.
	Log func(text string)
}

// Agent is a running agent.
type Agent struct {
	opt     Options
	state   *state
	session *record.Session
	began   time.Time // of the ring
	// counters count the rows of the ring.
	counters *counters

	seals  chan string // names of folders to seal
	sealed sync.WaitGroup

	mu      sync.Mutex
	recent  []format.Trigger // newest last
	sealing int
	failed  int               // captures that could not be sealed
	newest  map[string]string // ID of the newest capture by kind of trigger
}

// maxRecent bounds the triggers that the status shows.
const maxRecent = 20

// housekeepingInterval is the interval at which quotas and ages are checked.
const housekeepingInterval = 5 * time.Second

// Run records until ctx is done. Then it finishes captures and leaves the ring to the next agent. It returns
// ErrRunning, or the errors of record.Start, or the reason for which recording cannot continue.
func Run(ctx context.Context, opt Options) (err error) {
	a := &Agent{
		opt: opt, seals: make(chan string, 1024), counters: newCounters(), newest: make(map[string]string),
	}
	if a.state, err = openState(opt.Config.State, opt.Config.SocketPath()); err != nil {
		return err
	}
	defer a.state.close()
	if err := limitSelf(opt.Config.Limits); err != nil {
		opt.Log("the agent's limits are not set: " + err.Error())
	}
	if err := a.state.adoptRings(); err != nil {
		return err
	}
	a.keepHouse()
	sealed := make(chan struct{})
	go func() { defer close(sealed); a.sealAll() }()
	defer func() { close(a.seals); <-sealed }()
	if err := a.continueCaptures(); err != nil {
		return err
	}
	listener, err := listen(opt.Config.SocketPath())
	if err != nil {
		return err
	}
	defer listener.Close()
	return a.record(ctx, listener)
}

// SocketPath returns the path of the agent's socket.
func (c *Config) SocketPath() string {
	if c.Socket != "" {
		return c.Socket
	}
	return filepath.Join(c.State, "agent.sock")
}

// record runs the session.
func (a *Agent) record(ctx context.Context, listener net.Listener) (err error) {
	a.began = time.Now()
	if a.session, err = record.Start(a.recordOptions()); err != nil {
		return err
	}
	if err := a.session.DropPrivileges(); err != nil {
		a.opt.Log("the agent keeps its privileges: " + err.Error())
	}
	ctx, stop := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	helpers.Go(func() { serve(ctx, listener, a) })
	helpers.Go(func() {
		tick := time.NewTicker(housekeepingInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				a.keepHouse()
			case <-a.opt.Manual:
				_, _ = a.session.Trigger(record.TriggerRequest{Reason: "SIGUSR1"}) // onTrigger logs the outcome
			case <-ctx.Done():
				return
			}
		}
	})
	a.opt.Log(fmt.Sprintf("recording; status: gpurec agent status --socket %s", a.opt.Config.SocketPath()))
	_, err = a.session.Run(ctx)
	_, ferr := a.session.Finish()
	a.sealed.Wait()
	stop()
	helpers.Wait()
	return errors.Join(err, ferr, a.session.Close())
}

// recordOptions returns the options of the recording.
func (a *Agent) recordOptions() record.Options {
	c, opt := &a.opt.Config, a.opt.Record
	opt.Output = a.state.newRing(a.began)
	opt.Ring, opt.RingFor, opt.KeepSegments = true, c.Ring.Time, true
	opt.Tap = a.counters.add
	opt.MaxBytes = 2 * c.Ring.Bytes // half of it is for merging, which the agent does not do
	var kinds []trigger.Kind
	for _, k := range trigger.Kinds {
		if _, ok := c.Triggers[k]; ok {
			kinds = append(kinds, k)
		}
	}
	opt.Triggers = &record.Triggers{
		Kinds:       kinds,
		PerHour:     c.Captures.PerHour,
		Windows:     c.Triggers,
		Thresholds:  c.Thresholds,
		Captures:    a.state.captures,
		IsSevereXid: a.opt.IsSevereXid,
		Refuse:      a.refuse,
		OnTrigger:   a.onTrigger,
		OnCapture:   a.onCapture,
	}
	return opt
}

// limitSelf bounds the agent's memory and processors. Above the memory limit the agent ends, and its service
// manager starts it again.
func limitSelf(l Limits) error {
	debug.SetMemoryLimit(l.MemoryBytes / 2) // the garbage collector begins to work harder here
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), l.CPUs))
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: uint64(l.MemoryBytes), Max: uint64(l.MemoryBytes)})
}

// keepHouse deletes what is too old or too large.
func (a *Agent) keepHouse() {
	now, c := time.Now(), &a.opt.Config
	if err := a.state.dropRings(c.Ring.Time, now, false); err != nil {
		a.opt.Log("delete an old ring: " + err.Error())
	}
	enough, err := a.state.expire(c.Captures, now)
	if err != nil {
		a.opt.Log("delete old captures: " + err.Error())
	}
	if !enough { // rings of earlier agents are worth less than captures
		if err := a.state.dropRings(0, now, true); err != nil {
			a.opt.Log("delete an old ring: " + err.Error())
		}
	}
}

// refuse is record.Triggers.Refuse.
func (a *Agent) refuse() string {
	enough, err := a.state.expire(a.opt.Config.Captures, time.Now())
	switch {
	case err != nil:
		return err.Error()
	case !enough:
		return "the captures that must stay need all space"
	}
	return ""
}

// onTrigger is record.Triggers.OnTrigger.
func (a *Agent) onTrigger(t format.Trigger) {
	text := fmt.Sprintf("trigger %s: %s: %s", t.Kind, t.Outcome, t.Evidence)
	if t.Detail != "" {
		text += " (" + t.Detail + ")"
	}
	a.opt.Log(text)
	if t.ID == "" {
		a.opt.OnRefused(a.state.captures, t)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.ID != "" {
		a.newest[t.Kind] = t.ID
	}
	if a.recent = append(a.recent, t); len(a.recent) > maxRecent {
		a.recent = slices.Delete(a.recent, 0, len(a.recent)-maxRecent)
	}
}

// onCapture is record.Triggers.OnCapture.
func (a *Agent) onCapture(t format.Trigger, err error) {
	if err != nil {
		a.opt.Log(err.Error())
		t.Outcome, t.Detail = format.TriggerFailed, err.Error()
		a.opt.OnRefused(a.state.captures, t)
		return
	}
	ids, err := a.state.addBefore(t, a.began)
	if err != nil {
		a.opt.Log("the time before the restart is missing: " + err.Error())
	}
	for _, id := range append(ids, t.ID) {
		a.queueSeal(id + format.SealingSuffix)
	}
}

// continueCaptures seals the captures that an earlier agent did not seal.
func (a *Agent) continueCaptures() error {
	all, err := format.ListCaptures(a.state.captures)
	if err != nil {
		return err
	}
	for _, c := range all {
		switch {
		case c.State == format.CaptureSuffix:
		case c.Trigger == nil: // the agent was killed before it had linked a segment
			if err := format.RemoveCapture(a.state.captures, c); err != nil {
				a.opt.Log("delete an empty capture: " + err.Error())
			}
		default:
			a.queueSeal(c.ID + c.State)
		}
	}
	return nil
}

// queueSeal seals a folder later.
func (a *Agent) queueSeal(name string) {
	a.mu.Lock()
	a.sealing++
	a.mu.Unlock()
	a.sealed.Add(1)
	a.seals <- name
}

// sealAll seals one capture after the other.
func (a *Agent) sealAll() {
	for name := range a.seals {
		err := a.opt.Seal(filepath.Join(a.opt.Config.State, capturesFolder, name))
		a.mu.Lock()
		a.sealing--
		if err != nil {
			a.failed++
		}
		a.mu.Unlock()
		if err != nil {
			a.opt.Log(fmt.Sprintf("seal capture %s: %v; the next agent tries again", name, err))
		} else {
			a.opt.Log("sealed capture " + name[:len(name)-len(filepath.Ext(name))])
		}
		a.sealed.Done()
	}
}
