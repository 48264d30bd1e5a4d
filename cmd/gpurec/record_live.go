//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/top"
	"golang.org/x/term"
)

// liveDisplay shows what the recorded processes do, on standard output, until stop is called. On a terminal
// it is a table that reads keys, elsewhere text or JSON lines.
type liveDisplay struct {
	monitor *live.Monitor
	every   time.Duration
	asJSON  bool
	warning atomic.Pointer[liveWarning] // the latest warning while the table is shown
	shown   atomic.Bool                 // the table is shown
	program *tea.Program
	quit    chan struct{}
	done    chan struct{}
}

// liveWarning is a warning of the recorder, with the time at which it came.
type liveWarning struct {
	text string
	at   time.Time
}

// warningShown is how long the table shows a warning instead of its keys.
const warningShown = 10 * time.Second

// liveTable and liveJSON are the values of --live.
const liveTable, liveJSON = "table", "json"

// checkLive makes the display of --live. It returns a *message.UsageError for a wrong value.
func (f *recordFlags) checkLive() error {
	if f.liveMode != liveTable && f.liveMode != liveJSON {
		return message.Usagef("gpurec record --live …", "--live %s: must be table or json", f.liveMode)
	}
	if err := checkInterval(f.every); err != nil {
		return err
	}
	f.live = newLiveDisplay(f.every, f.liveMode == liveJSON)
	return nil
}

func newLiveDisplay(every time.Duration, asJSON bool) *liveDisplay {
	return &liveDisplay{
		monitor: live.NewMonitor(), every: every, asJSON: asJSON,
		quit: make(chan struct{}), done: make(chan struct{}),
	}
}

// warn prints a warning of the recorder. While the table is shown, it is the last line of the table.
func (d *liveDisplay) warn(text string) {
	if d.shown.Load() {
		d.warning.Store(&liveWarning{text, time.Now()})
		return
	}
	message.Warningf("%s", text)
}

// printVerdict prints a new verdict, unless the table shows it.
func (d *liveDisplay) printVerdict(v live.Verdict) {
	if !d.shown.Load() {
		printVerdict(v)
	}
}

// latestWarning returns the latest warning, "" if it has been shown long enough.
func (d *liveDisplay) latestWarning() string {
	if w := d.warning.Load(); w != nil && time.Since(w.at) < warningShown {
		return w.text
	}
	return ""
}

// start begins to show. end is called when the user leaves the table.
func (d *liveDisplay) start(end func()) {
	if d.asJSON || !term.IsTerminal(int(os.Stdout.Fd())) || !term.IsTerminal(int(os.Stdin.Fd())) {
		go d.printUntilStopped()
		return
	}
	model := top.NewModel(top.Options{Take: d.take, Every: d.every, Warning: d.latestWarning})
	d.program = tea.NewProgram(model, tea.WithoutSignalHandler())
	d.shown.Store(true)
	go func() {
		defer close(d.done)
		_, err := d.program.Run()
		d.shown.Store(false)
		if err != nil {
			message.Warningf("the table ended: %v", err)
		}
		end()
	}()
}

// take returns the numbers of the latest whole seconds.
func (d *liveDisplay) take() *live.Snapshot {
	return d.monitor.Take(time.Now().UnixNano(), d.seconds())
}

// seconds is the number of seconds between two updates.
func (d *liveDisplay) seconds() int { return min(max(1, int(d.every/time.Second)), live.MaxSeconds) }

// printUntilStopped prints a snapshot after each interval.
func (d *liveDisplay) printUntilStopped() {
	defer close(d.done)
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			return
		case <-tick.C: // it may come late
			if s := d.monitor.TakeNext(time.Now().UnixNano(), d.seconds()); s != nil {
				d.print(s)
			}
		}
	}
}

// printRest prints the calls that came after the last interval, so that the calls of all lines of JSON, with the late
// ones, are those of the recording. It must be called after stop and the last row.
func (d *liveDisplay) printRest() {
	if !d.asJSON {
		return
	}
	if s := d.monitor.TakeRest(); len(s.Processes) > 0 {
		d.print(s)
	}
}

func (d *liveDisplay) print(s *live.Snapshot) {
	if !d.asJSON {
		fmt.Println(top.FormatText(s))
		return
	}
	line, err := json.Marshal(s)
	if err != nil {
		message.Warningf("print the numbers as JSON: %v", err) // not reached: a Snapshot has no such values
		return
	}
	fmt.Printf("%s\n", line)
}

// stop ends the display, and gives the terminal back.
func (d *liveDisplay) stop() {
	close(d.quit)
	if d.program != nil {
		d.program.Quit()
	}
	<-d.done
}
