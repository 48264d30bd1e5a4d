//go:build linux

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/privilege"
)

// untilInterrupted returns a context that the first Ctrl-C or SIGTERM ends. A second
// one ends the program at once, and the finished segments stay; once the file is finished,
// any of them is told to leave instead. A command that was started here gets Ctrl-C from the
// terminal itself and other signals from us, and the recording ends with it.
func (f *recordFlags) untilInterrupted(
	ctx context.Context,
	session *record.Session,
) (_ context.Context, leave <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	left := make(chan struct{}, 1)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		for n := 1; ; n++ {
			s, ok := <-signals
			if !ok {
				return
			}
			switch {
			case session.Finished():
				select {
				case left <- struct{}{}:
				default: // it was told already
				}
			case n > 1:
				folder := session.Output() + format.SegmentSuffix
				message.Warningf("aborted; what was written is in %s", folder)
				message.Hintf("gpurec recover %s", folder)
				os.Exit(message.ExitFailed)
			case f.opt.Command == nil:
				cancel()
			}
			if f.opt.Command != nil && s != os.Interrupt {
				f.opt.Command.Signal(s)
			}
		}
	}()
	return ctx, left, func() { signal.Stop(signals); close(signals); cancel() }
}

// takeProbesAway removes the probes that are still there, unless the user leaves that to the
// kernel, which does it when this process ends: no sooner, but nobody has to stay for it.
func takeProbesAway(session *record.Session, leave <-chan struct{}) {
	n, how := session.Probes()
	slow := how == privilege.AttachPerf && n > 0
	if slow {
		text := ""
		if session.Finished() {
			text = "the file is finished; "
		}
		message.Notef("%staking %d perf uprobes away, 0.05 to 0.3 s each; what runs, runs on; Ctrl-C leaves them to "+
			"the kernel, which takes as long", text, n)
	}
	begin, gone := time.Now(), make(chan error, 1)
	go func() { gone <- session.Close() }()
	select {
	case err := <-gone:
		if err != nil {
			message.Warningf("take probes away: %v", err)
		} else if slow {
			message.Notef("%d perf uprobes taken away in %v", n, time.Since(begin).Round(100*time.Millisecond))
		}
	case <-leave:
		message.Notef("the kernel takes the other probes away; this process is gone when it has")
	}
}
