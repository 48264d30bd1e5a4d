//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/gpurec/gpurec/cmd/gpurec/top"
	"golang.org/x/term"
)

// liveDisplay shows what the recorded processes do, on standard output, until stop is called. On a terminal
// it is a table that reads keys, elsewhere text or JSON lines.
type liveDisplay struct {
	monitor *live.Monitor
	every   time.Duration
	format  string // liveTable, liveJSON or liveJSONLines
	cpu     cpuMeter
	// notRecorded is the reason why the processes are not recorded, "" if they are.
	notRecorded string
	// save and threads are for top.Options; nil: not available.
	save    func() (path string, err error)
	threads func(pid int32) ([]string, error)
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

// Formats of the display. Those of --live are liveTable and liveJSON.
const liveTable, liveJSON, liveJSONLines = "table", "json", "jsonl"

// checkLive makes the display of --live. It returns a *message.UsageError for a wrong value.
func (f *recordFlags) checkLive() error {
	if f.liveMode != liveTable && f.liveMode != liveJSON {
		return message.Usagef("gpurec record --live …", "--live %s: must be table or json", f.liveMode)
	}
	if err := checkInterval("gpurec record --live --every 1s …", "--every", f.every); err != nil {
		return err
	}
	f.live = newLiveDisplay(f.every, f.liveMode)
	return nil
}

func newLiveDisplay(every time.Duration, format string) *liveDisplay {
	return &liveDisplay{
		monitor: live.NewMonitor(), every: every, format: format,
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

// isTable reports whether the table is shown. It needs a terminal that can move its cursor.
func (d *liveDisplay) isTable() bool {
	name := os.Getenv("TERM")
	return d.format == liveTable && name != "" && name != "dumb" && term.IsTerminal(int(os.Stdout.Fd())) &&
		term.IsTerminal(int(os.Stdin.Fd()))
}

// start begins to show. end is called when the user leaves the table, or if the lines cannot be printed any more.
func (d *liveDisplay) start(end func()) {
	if !d.isTable() {
		signal.Ignore(syscall.SIGPIPE) // print returns the error
		go d.printUntilStopped(end)
		return
	}
	_, _, ascii := terminal.Inspect(os.Stdout, terminal.ColorNever)
	model := top.NewModel(top.Options{
		Take: d.take, Every: d.every, Warning: d.latestWarning, Save: d.save, Threads: d.threads, ASCII: ascii,
	})
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
	return d.complete(d.monitor.Take(time.Now().UnixNano(), d.seconds()))
}

// complete adds the numbers that the recorder does not have.
func (d *liveDisplay) complete(s *live.Snapshot) *live.Snapshot {
	if s.NotRecorded = d.notRecorded; s.NotRecorded != "" {
		for i := range s.Processes {
			s.Processes[i].SilentNs = 0
		}
	}
	d.cpu.addTo(s)
	return s
}

// seconds is the number of seconds between two updates.
func (d *liveDisplay) seconds() int { return min(max(1, int(d.every/time.Second)), live.MaxSeconds) }

// printUntilStopped prints a snapshot after each interval. It calls end if printing fails.
func (d *liveDisplay) printUntilStopped(end func()) {
	defer close(d.done)
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			return
		case <-tick.C: // it may come late
			s := d.monitor.TakeNext(time.Now().UnixNano(), d.seconds())
			if s == nil {
				continue
			}
			if err := d.print(d.complete(s)); err != nil {
				if !errors.Is(err, syscall.EPIPE) { // the reader has not just ended, as head does
					message.Warningf("gpurec ends because the numbers cannot be printed: %v", err)
				}
				end()
				return
			}
		}
	}
}

// printRest prints the calls that came after the last interval, so that the calls of all lines of JSON, with the late
// ones, are those of the recording. It must be called after stop and the last row.
func (d *liveDisplay) printRest() {
	if d.format == liveTable {
		return
	}
	if s := d.monitor.TakeRest(); len(s.Processes) > 0 {
		_ = d.print(d.complete(s)) // the recording ends anyway
	}
}

// print prints a snapshot in the format of the display.
func (d *liveDisplay) print(s *live.Snapshot) error {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	switch d.format {
	case liveJSON:
		return out.Encode(s)
	case liveJSONLines:
		for _, line := range s.ProcessLines() {
			if err := out.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}
	width, _, ascii := terminal.Inspect(os.Stdout, terminal.ColorNever)
	_, err := fmt.Println(top.FormatText(s, width, ascii))
	return err
}

// stop ends the display, and gives the terminal back.
func (d *liveDisplay) stop() {
	close(d.quit)
	if d.program != nil {
		d.program.Quit()
	}
	<-d.done
}
