//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"

	"github.com/gpurec/gpurec/record/probe"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
	"github.com/gpurec/gpurec/record"
)

// announceSlowStart prints why the recording has not started after one second.
func (f *recordFlags) announceSlowStart() {
	if f.opt.Stacks == probe.StacksAuto || f.opt.Stacks == probe.StacksFull {
		message.Notef("reading unwind tables for complete stacks (--stacks=fp starts faster); " +
			"the recorded processes keep running")
	} else {
		message.Notef("loading BPF programs and attaching probes; the recorded processes keep running")
	}
}

// printResult prints the number of recorded and lost calls, the recorder's own cost, and the next
// command to run.
func (f *recordFlags) printResult(r record.Result) {
	total := r.Meta.Totals()
	if total.Lost > 0 {
		message.Warningf("%s of %s calls lost; reports will be incomplete", units.FormatCount(total.Lost),
			units.FormatCount(total.Seen))
		if r.Unfinished == "" {
			message.Hintf("record again with --buffer %dMiB", max(1, min(int64(f.opt.BufferBytes)*4, 1<<31)>>20))
		}
	}
	if total.Open > 0 {
		message.Notef("%s calls had not returned at the end; they are recorded as open", units.FormatCount(total.Open))
	}
	if total.Recorded == 0 {
		message.Warningf("the processes made no CUDA call%s while gpurec recorded", describeCallClasses(r.Meta.Classes))
	}
	if total.Dropped > 0 {
		message.Notef("the recording holds the last %v; %s older calls were discarded (--ring)",
			time.Duration(r.Meta.EndNs-r.Meta.StartNs).Round(time.Second), units.FormatCount(total.Dropped))
	}
	missing := describeMissingBeginning(&r.Meta)
	if missing != "" {
		message.Warningf("the beginning is incomplete%s; the recording is complete from +%s on", missing,
			units.FormatDuration(max(0, r.Meta.Late.CompleteNs-r.Meta.StartNs)))
	}
	if total.NoTable > 0 {
		message.Notef("%s calls have no complete stack, because unwind tables were not loaded yet",
			units.FormatCount(total.NoTable))
	}
	c := r.Meta.Cost
	if c.Holds > 0 {
		message.Notef("held %s in all, %s, until probes and unwind tables were in place (--no-hold turns this off)",
			time.Duration(c.HeldNs).Round(time.Millisecond), units.CountWithNoun(c.Holds, "time"))
	}
	if c.Unheld > 0 {
		message.Warningf("%s ran before probes and unwind tables were in place; first calls may be missing",
			units.CountWithNoun(c.Unheld, "thread"))
	}
	perEvent := ""
	if total.Recorded > 0 && r.Unfinished == "" {
		perEvent = fmt.Sprintf(", %.1f bytes a call", float64(c.FileBytes)/float64(total.Recorded))
	}
	if c.BPFRuns > 0 {
		perEvent += fmt.Sprintf(", %.0f ns in BPF a probe hit", float64(c.BPFRunNs)/float64(c.BPFRuns))
	}
	seconds := r.Elapsed.Seconds()
	detach := ""
	if c.DetachNs > 0 {
		detach = fmt.Sprintf(", detach %v", time.Duration(c.DetachNs).Round(time.Millisecond))
	}
	message.Notef(
		"own cost: attach %v%s, %.1f %% of a core, %s memory%s",
		time.Duration(c.AttachNs).Round(time.Millisecond),
		detach,
		float64(
			c.CPUNs,
		)*100/max(
			float64(r.Elapsed.Nanoseconds()+c.DetachNs),
			1,
		),
		units.FormatBytes(c.RSSBytes),
		perEvent,
	)
	if c.Probes != nil && c.Probes.Seconds > 1 {
		message.Notef("%s", describeProbeCost(c.Probes))
	}
	if r.Host != nil && r.Host.Switches > 0 && seconds > 0 {
		message.Notef("%s", describeSwitchCost(r.Host, seconds))
	}
	if r.Unfinished == "" {
		next := "leaks"
		switch {
		case len(r.Meta.Classes) > 0 && !r.Meta.Has(format.RecordMemory) && !r.Meta.Has(format.RecordAllocator):
			next = "api"
		case total.Recorded == 0 && len(r.Meta.Classes) == 0:
			next = "hang"
		}
		message.Notef(
			"%s calls in %.1f s, %s lost%s -> %s (%s); next: gpurec analyze %s %s",
			units.FormatCount(
				total.Recorded,
			),
			seconds,
			units.FormatCount(total.Lost),
			missing,
			r.Output,
			units.FormatBytes(c.FileBytes),
			next,
			quoteForShell(r.Output),
		)
	}
}

// describeMissingBeginning returns how many first calls a recording lacks, as the end of a sentence, ""
// if it lacks none.
func describeMissingBeginning(m *format.Meta) (text string) {
	if n := m.Late.TotalMissed(); n > 0 {
		text = fmt.Sprintf(", %s missed at the beginning", units.CountWithNoun(n, "event"))
	}
	if m.Late != nil && m.Late.Processes > 0 {
		text += fmt.Sprintf(
			", an unknown number of first calls of %s",
			units.CountWithNoun(m.Late.Processes, "process"),
		)
	}
	return text
}

// explainStartError adds advice to an error of record.Start: the running processes that use CUDA,
// or a command to paste. It returns other errors unchanged.
func (f *recordFlags) explainStartError(err error) error {
	var (
		wrong  *process.Error
		denied *privilege.Error
		path   *fs.PathError
		cgroup *process.CgroupError
	)
	again := "sudo " + strings.Join(os.Args, " ")
	switch {
	case errors.Is(err, process.ErrNoProcess) && errors.As(err, &wrong):
		return message.WithHint(
			fmt.Errorf("there is no process %d; %s", wrong.Pid, f.describeRunningProcesses()),
			"gpurec ps",
		)
	case errors.Is(err, process.ErrNoLibrary) && errors.As(err, &wrong) && len(wrong.Children) > 0:
		return message.WithHint(fmt.Errorf("%w, but %d of its children have", err, len(wrong.Children)),
			"sudo gpurec record "+formatPidFlags(wrong.Children))
	case errors.Is(err, process.ErrNoLibrary) && errors.As(err, &wrong):
		return message.WithHint(
			fmt.Errorf("%w; %s", err, f.describeRunningProcesses()),
			fmt.Sprintf("sudo gpurec record -p %d --wait", wrong.Pid),
		)
	case errors.As(err, &cgroup):
		return message.WithHint(fmt.Errorf("%w; %s", err, f.describeRunningProcesses()), "gpurec ps --format json")
	case errors.As(err, &denied) || errors.Is(err, process.ErrNotPermitted):
		return message.WithHint(err, again)
	case errors.Is(err, format.ErrExists) && errors.As(err, &path):
		if strings.HasSuffix(path.Path, format.SegmentSuffix) {
			return message.WithHint(
				fmt.Errorf("%s exists: it holds an interrupted recording", path.Path),
				"gpurec recover "+path.Path+", or --force to replace it",
			)
		}
		return message.WithHint(fmt.Errorf("%s exists", path.Path), "-o OTHER.parquet, or --force to replace it")
	}
	return cmp.Or(message.ExplainOutput("-o", false, err), message.ExplainFolder("-o", err), err)
}

// explainUnfinishedRecording returns the error for a recording that could not be finished. The hint
// is the command that recovers the segments on disk.
func (f *recordFlags) explainUnfinishedRecording(r record.Result, err error) error {
	cause := err
	if errors.Is(err, syscall.ENOSPC) {
		cause = fmt.Errorf("the disk of %s is full", filepath.Dir(r.Output))
	}
	hint := "gpurec recover " + r.Unfinished
	var refused *output.Error
	if errors.Is(err, format.ErrExists) || errors.As(err, &refused) {
		hint += " -o OTHER.parquet" // another file took the output's name during the recording
	}
	return message.WithHint(fmt.Errorf("%w; the unfinished recording is in %s", cause, r.Unfinished), hint)
}

// describeSwitchCost says what --host costs: a BPF program runs at each context switch of the machine, and another one
// at each wake-up, also for programs that are not recorded.
func describeSwitchCost(h *format.HostFact, seconds float64) string {
	cost := func(what string, all, targets int64, ns, targetNs float64) string {
		others := all - targets
		return fmt.Sprintf(
			"%s %s/s of other programs at %.0f ns (%.2f %% of a core), %s/s of recorded threads at %.0f ns (%.2f %%)",
			units.FormatRate(float64(others)/seconds), what, ns, float64(others)*ns/seconds/1e7,
			units.FormatRate(float64(targets)/seconds), targetNs, float64(targets)*targetNs/seconds/1e7)
	}
	text := "cost of --host: " +
		cost("context switches", h.Switches, h.TargetSwitches, h.SwitchNs, h.TargetSwitchNs)
	if h.Wakings > 0 {
		text += "; " + cost("wake-ups", h.Wakings, h.TargetWakings, h.WakingNs, h.TargetWakingNs)
	}
	return text
}

// describeProbeCost says what the probes cost the recorded program.
func describeProbeCost(c *format.ProbeCost) string {
	text := fmt.Sprintf("probes took %.1f %% of the busiest thread's time, at most %.1f %% in a second", c.MeanPct,
		max(c.WorstPct, 0))
	if c.OverLimit > 0 {
		text += fmt.Sprintf("; %s of %d were above --max-overhead %g%%", units.CountWithNoun(c.OverLimit, "second"),
			c.Seconds, c.LimitPct)
	}
	if c.IsAssumed {
		text += " (assumed: run times of BPF programs cannot be measured)"
	}
	return text
}
