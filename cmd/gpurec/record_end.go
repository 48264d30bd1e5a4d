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

// contextUntilInterrupted returns a context that ends at the first Ctrl-C or SIGTERM. A second
// signal exits gpurec immediately and leaves the finished segments on disk. Once the file is
// finished, every signal sends to leave instead: the caller may exit without removing the remaining
// probes.
//
// With -- COMMAND, the recording ends when the command exits. The terminal sends Ctrl-C to the
// command; contextUntilInterrupted forwards the other signals. Call stop to release the signal
// handler.
func (f *recordFlags) contextUntilInterrupted(
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
				default: // the caller has not yet received an earlier signal
				}
			case n > 1:
				folder := session.Output() + format.SegmentSuffix
				message.Warningf("aborted; the unfinished recording is in %s", folder)
				message.Hintf("gpurec recover %s", quoteForShell(folder))
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

// removeRemainingProbes removes the remaining probes. It returns early if leave receives: the
// kernel removes the probes of gpurec after gpurec exits. Removal by the kernel is not faster, but
// the user need not wait.
func removeRemainingProbes(session *record.Session, leave <-chan struct{}) {
	n, how := session.Probes()
	slow := how == privilege.AttachPerf && n > 0
	if slow {
		text := ""
		if session.Finished() {
			text = "the file is finished; "
		}
		message.Notef("%sremoving %d perf uprobes, 0.05 to 0.3 s each; the recorded processes keep running; "+
			"Ctrl-C leaves the removal to the kernel", text, n)
	}
	begin, closed := time.Now(), make(chan error, 1)
	go func() { closed <- session.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			message.Warningf("remove probes: %v", err)
		} else if slow {
			message.Notef("%d perf uprobes removed in %v", n, time.Since(begin).Round(100*time.Millisecond))
		}
	case <-leave:
		message.Notef("the kernel removes the remaining probes; gpurec exits when the kernel is done")
	}
}
