//go:build linux

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/record"
	"golang.org/x/sys/unix"
)

// statusLine prints the progress of a recording: elapsed time, calls, call rate, lost calls and
// file size. On a terminal it updates one line twice a second; elsewhere it prints a line every 10
// s.
type statusLine struct {
	session  *record.Session
	terminal bool
	begin    time.Time
	last     record.Progress
	lastAt   time.Time
	quit     chan struct{}
	done     chan struct{}
}

// startStatusLine starts the goroutine that prints. Call stop to end it.
func startStatusLine(session *record.Session) *statusLine {
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	s := &statusLine{
		session:  session,
		terminal: err == nil,
		begin:    time.Now(),
		lastAt:   time.Now(),
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	go s.updateUntilStopped()
	return s
}

func (s *statusLine) updateUntilStopped() {
	defer close(s.done)
	every := 10 * time.Second
	if s.terminal {
		every = 500 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			if s.terminal {
				fmt.Fprint(os.Stderr, "\r\x1b[K")
			}
			return
		case <-tick.C:
			s.printStatus()
		}
	}
}

func (s *statusLine) printStatus() {
	p, now := s.session.Progress(), time.Now()
	rate := float64(p.Calls-s.last.Calls) / now.Sub(s.lastAt).Seconds()
	s.last, s.lastAt = p, now
	text := fmt.Sprintf(
		"%v  %s calls  %s/s  %s lost  %s",
		now.Sub(s.begin).
			Round(time.Second),
		units.FormatCount(p.Calls),
		units.FormatCount(int64(rate)),
		units.FormatCount(p.Lost),
		units.FormatBytes(p.FileBytes),
	)
	if s.terminal {
		fmt.Fprintf(os.Stderr, "\r\x1b[Kgpurec: %s", text)
		return
	}
	message.Notef("%s", text)
}

// stopUpdates ends the goroutine, waits for it, and clears the line on a terminal.
func (s *statusLine) stopUpdates() {
	close(s.quit)
	<-s.done
}
