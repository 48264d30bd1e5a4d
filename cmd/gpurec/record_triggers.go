//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/export/findings"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/trigger"
)

// triggerFlags are the flags of triggers, and the captures of a recording.
type triggerFlags struct {
	kinds         []string
	folder        string
	before, after time.Duration
	hangAfter     time.Duration

	captures *output.Destination // its folder is that of the captures; nil without triggers
	sealer   sealer
}

// defaultCapturesFolder is the folder of captures, in the folder of the recording.
const defaultCapturesFolder = "gpurec-captures"

// register adds the flags.
func (f *triggerFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.kinds, "trigger", nil, "with --ring: keep what happened around these `EVENTS`, or all")
	flags.StringVar(&f.folder, "trigger-dir", "", "write captures to `FOLDER` (default: gpurec-captures, next to FILE)")
	flags.DurationVar(&f.before, "trigger-before", 0, "keep `TIME` before an event (default: depends on the event)")
	flags.DurationVar(&f.after, "trigger-after", 0, "keep `TIME` after an event (default: depends on the event)")
	flags.DurationVar(&f.hangAfter, "hang-after", trigger.DefaultThresholds.Hang, "a call hangs if it is open for "+
		"longer than `TIME`")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("trigger",
		cobra.FixedCompletions(append(trigger.Names(), "all"), cobra.ShellCompDirectiveNoFileComp))
}

// open checks the flags, creates the folder of captures and sets the options. out is the path of the recording.
func (f *triggerFlags) open(opt *record.Options) error {
	if len(f.kinds) == 0 {
		if f.folder != "" || f.before != 0 || f.after != 0 {
			return message.Usagef("gpurec record --ring 10m --trigger oom,hang …", "--trigger-dir, --trigger-before "+
				"and --trigger-after need --trigger")
		}
		return nil
	}
	kinds, err := trigger.ParseKinds(f.kinds)
	switch {
	case err != nil:
		return message.Usagef("gpurec record --ring 10m --trigger oom,hang …", "--trigger: %w", err)
	case !opt.Ring:
		hint := "gpurec record --ring 10m --trigger " + strings.Join(f.kinds, ",") + " …"
		return message.Usagef(hint, "--trigger keeps a part of a ring: add --ring")
	case f.before < 0 || f.after < 0:
		return message.Usagef("gpurec record --help", "--trigger-before and --trigger-after must not be negative")
	case f.hangAfter < 100*time.Millisecond:
		return message.Usagef("gpurec record --help", "--hang-after %v: must be at least 100ms", f.hangAfter)
	}
	folder := cmp.Or(f.folder, filepath.Join(cmp.Or(opt.Folder, filepath.Dir(opt.Output)), defaultCapturesFolder))
	if f.captures, err = openCaptures(folder, opt.Owner); err != nil {
		return cmp.Or(
			message.ExplainOutput("--trigger-dir", false, err),
			message.ExplainFolder("--trigger-dir", err),
			err,
		)
	}
	f.sealer.folder = folder
	limits := trigger.DefaultThresholds
	limits.Hang = f.hangAfter
	opt.Triggers = &record.Triggers{
		Kinds: kinds, Thresholds: limits, Windows: f.windows(), Captures: f.captures.Folder(),
		IsSevereXid: catalog.IsSevereXid, OnTrigger: f.onTrigger, OnCapture: f.sealer.onCapture,
	}
	return nil
}

// windows returns the windows with the values of --trigger-before and --trigger-after.
func (f *triggerFlags) windows() map[trigger.Kind]trigger.Window {
	windows := make(map[trigger.Kind]trigger.Window)
	for kind, w := range trigger.DefaultWindows {
		if f.before > 0 {
			w.Before = f.before
		}
		if f.after > 0 {
			w.After = f.after
		}
		windows[kind] = w
	}
	return windows
}

// openCaptures creates a folder for captures if there is none, and opens it. The file name of the result is not used.
func openCaptures(folder string, owner output.Owner) (*output.Destination, error) {
	parent, err := output.Open(filepath.Join(filepath.Dir(filepath.Clean(folder)), "captures"),
		output.Options{Force: true, Owner: owner})
	var refused *output.Error
	switch {
	case errors.As(err, &refused) && refused.Problem == output.IsFolder: // a folder of this name exists
	case err != nil:
		return nil, err
	default:
		name := filepath.Base(filepath.Clean(folder))
		err := parent.Folder().Mkdir(name, 0o700)
		if err == nil && owner.Set {
			err = parent.Folder().Chown(name, owner.UID, owner.GID)
		}
		parent.Close()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, output.WithPath(err, folder)
		}
	}
	return output.Open(filepath.Join(folder, "capture"+format.CaptureSuffix), output.Options{Force: true, Owner: owner})
}

// follow sends SIGUSR1 to the session as a manual trigger until stop is called.
func (f *triggerFlags) follow(session *record.Session) (stop func()) {
	if f.captures == nil {
		return func() {}
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
			// The answer is announced as that of any other trigger; an error means that the recording ends.
			_, _ = session.Trigger(record.TriggerRequest{Reason: "SIGUSR1"})
		}
	}()
	return func() { signal.Stop(signals); close(signals) }
}

// finish waits until all captures are sealed, and prints the number of events by outcome.
func (f *triggerFlags) finish(session *record.Session) {
	if f.captures == nil {
		return
	}
	f.sealer.wait()
	counts := session.TriggerCounts()
	var parts []string
	for _, outcome := range triggerOutcomes {
		if n := counts[outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	if len(parts) == 0 {
		message.Notef("no trigger fired")
		return
	}
	message.Notef("triggers: %s; captures are in %s", strings.Join(parts, ", "), f.sealer.folder)
}

// triggerOutcomes are the outcomes in the order of messages.
var triggerOutcomes = []string{
	format.TriggerCaptured, format.TriggerMerged, format.TriggerNoted, format.TriggerLimited, format.TriggerQuota,
	format.TriggerFailed,
}

// close closes the folder of captures.
func (f *triggerFlags) close() {
	if f.captures != nil {
		_ = f.captures.Close() // nothing is written any more
	}
}

// onTrigger prints what became of an event. An event without a capture becomes a finding.
func (f *triggerFlags) onTrigger(t format.Trigger) {
	if t.ID == "" {
		noteRefused(f.captures.Folder(), t)
	}
	text := t.Outcome
	if t.Detail != "" {
		text += " (" + t.Detail + ")"
	}
	message.Notef("trigger %s: %s: %s", t.Kind, text, t.Evidence)
}

// sealer seals captures, one after the other, each in a child process.
type sealer struct {
	folder  string
	pending sync.WaitGroup
	mu      sync.Mutex // held while a child runs
}

// onCapture is record.Triggers.OnCapture.
func (s *sealer) onCapture(t format.Trigger, err error) {
	if err != nil {
		message.Warningf("the capture of trigger %s failed: %v", t.Kind, err)
		return
	}
	s.seal(t.ID, format.SealingSuffix)
}

// seal seals a capture in the background.
func (s *sealer) seal(id, state string) {
	s.pending.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		err := runSeal(filepath.Join(s.folder, id+state), "")
		path := capturePath(s.folder, id)
		switch info, serr := os.Stat(path); {
		case err != nil:
			message.Warningf("seal capture %s: %v", id, err)
		case serr == nil:
			message.Notef(
				"captured %s (%s); next: gpurec analyze rules %s",
				path,
				units.FormatBytes(info.Size()),
				quoteForShell(path),
			)
		}
	})
}

// wait waits until all captures are sealed.
func (s *sealer) wait() { s.pending.Wait() }

// runSeal runs gpurec seal as a child process. The child ends with gpurec. to is the path of the recording, "" for one next
// to folder, with findings.
func runSeal(folder, to string) error {
	var messages bytes.Buffer
	cmd := newChild(context.Background(), &messages, "seal", "--to="+to, "--", folder)
	runtime.LockOSThread() // the signal is sent when the thread that started the child ends
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w%s", err, firstLine(messages.String()))
	}
	return nil
}

// noteRefused appends the finding about a trigger without a capture to a file in the folder of captures.
func noteRefused(captures *os.Root, t format.Trigger) {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	line, err := json.Marshal(findings.OfTrigger(&t, host))
	if err != nil {
		return // cannot happen: strings and numbers always encode
	}
	how := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if info, err := captures.Lstat(refusedFile); err == nil && info.Size() > maxRefusedBytes {
		how = os.O_CREATE | os.O_TRUNC | os.O_WRONLY
	}
	file, err := captures.OpenFile(refusedFile, how, 0o600)
	if err == nil {
		_, err = file.Write(append(line, '\n'))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		message.Warningf("write %s: %v", refusedFile, err)
	}
}
