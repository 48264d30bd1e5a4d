//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
)

var stacksOutputFormats = []string{"text", "json", "folded"}

// stacksFlags are the flags of the verb stacks.
type stacksFlags struct {
	pids      []int
	tree      bool
	format    string
	every     time.Duration
	snapshots int
	timeout   time.Duration
}

func newStacksCommand() *cobra.Command {
	f := new(stacksFlags)
	cmd := &cobra.Command{
		Use:   "stacks -p PID",
		Short: "Show the stacks of all threads of a running process",
		Long: `stacks shows what each thread of a running process does now: Python, native and
kernel frames, the state, the CPU time, and the CUDA call on the stack. It works on a
process that hangs, also if gpurec did not record it before.

It does not stop the process, uses no ptrace, and writes nothing into it. Threads that
wait are read by a BPF iterator. Threads that run are sampled by a CPU-clock event. A
stack is shown only if its thread did not run while it was read. A thread that ran
during every attempt is listed as missed, with its state.

Of processes that use NCCL, it shows the communicators: rank, size, and how many
collectives of each function the rank has launched. With several ranks, it shows which
rank is behind.

Python frames need CPython 3.11 to 3.13. The exit status is 1 if there is no such
process, and 0 if some stacks are missing.`,
		Example: `  sudo gpurec stacks -p 4242
  sudo gpurec stacks -p 4242 --tree                           # with the children of the process
  sudo gpurec stacks -p 4242,4243 --every 5s -n 2             # do the counts of NCCL change?
  sudo gpurec stacks -p 4242 --every 10ms -n 1000 --format folded >stacks.folded
  sudo gpurec stacks -p 4242 --format json | jq '.processes[].threads[].cuda_call'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx)
		},
	}
	flags := cmd.Flags()
	flags.SetNormalizeFunc(renameLooks)
	flags.IntSliceVarP(&f.pids, "pid", "p", nil, "show process `PID`; repeatable")
	flags.BoolVar(&f.tree, "tree", false, "also show the descendants of the processes")
	flags.StringVar(&f.format, "format", stacksOutputFormats[0], "print as "+strings.Join(stacksOutputFormats, ", "))
	flags.DurationVar(&f.every, "every", time.Second, "time between two snapshots, with -n")
	flags.IntVarP(&f.snapshots, "snapshots", "n", 1, "number of snapshots; 0: until interrupted")
	flags.DurationVar(
		&f.timeout,
		"timeout",
		hoststack.DefaultDeadline,
		"longest time for reading the memory of a process",
	)
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(
		"format",
		cobra.FixedCompletions(stacksOutputFormats, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

// renameLooks accepts --looks, the earlier name of --snapshots.
func renameLooks(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "looks" {
		name = "snapshots"
	}
	return pflag.NormalizedName(name)
}

// check returns a usage error for wrong flags.
func (f *stacksFlags) check() error {
	switch {
	case len(f.pids) == 0:
		return message.Usagef("sudo gpurec ps", "name a process: -p PID")
	case !slices.Contains(stacksOutputFormats, f.format):
		return message.Usagef("gpurec stacks --help", "--format %s: must be one of %s", f.format,
			strings.Join(stacksOutputFormats, ", "))
	case f.snapshots < 0:
		return message.Usagef("gpurec stacks --help", "-n %d: must be 0 or more", f.snapshots)
	case f.every < 0:
		return message.Usagef("gpurec stacks --help", "--every %v: must be 0 or more", f.every)
	case f.timeout <= 0:
		return message.Usagef("gpurec stacks --help", "--timeout %v: must be positive", f.timeout)
	}
	for _, pid := range f.pids {
		if pid <= 0 {
			return message.Usagef("sudo gpurec ps", "-p %d is not a process ID", pid)
		}
	}
	return nil
}

// run takes and prints the snapshots.
func (f *stacksFlags) run(ctx context.Context) error {
	snapshotter, err := hoststack.Open(nil)
	if err != nil {
		return f.explainOpenError(err)
	}
	defer snapshotter.Close()
	if err := hoststack.DropPrivileges(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	printer := newStacksPrinter(f.format, os.Stdout, f.snapshots != 1)
	communicators := newCommunicatorReader(f.timeout)
	next := time.Now()
	for n := 0; f.snapshots == 0 || n < f.snapshots; n++ {
		if n > 0 && !waitUntil(ctx, next) {
			break
		}
		next = time.Now().Add(f.every)
		snapshots, err := f.takeAll(ctx, snapshotter)
		if ctx.Err() != nil {
			break // an interrupted snapshot lacks stacks
		}
		if err != nil {
			var gone *process.Error
			if n > 0 && errors.As(err, &gone) {
				message.Notef("%v; %s taken", err, units.CountWithNoun(int64(n), "snapshot"))
				break
			}
			return f.explainSnapshotError(err)
		}
		var read []processCommunicators
		if f.format != "folded" {
			read = communicators.read(ctx, snapshots)
		}
		if err := printer.print(snapshots, read); err != nil {
			return err
		}
	}
	return printer.finish()
}

// waitUntil waits for a time. It returns false if ctx ends before.
func waitUntil(ctx context.Context, when time.Time) bool {
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// takeAll takes a snapshot of each process, and with --tree of the descendants, without gpurec itself. A
// descendant that has ended meanwhile is left out.
func (f *stacksFlags) takeAll(
	ctx context.Context,
	snapshotter *hoststack.Snapshotter,
) ([]*hoststack.ProcessSnapshot, error) {
	pids := slices.Clone(f.pids)
	if f.tree {
		for _, pid := range process.Descendants(f.pids) {
			if pid != os.Getpid() && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	var snapshots []*hoststack.ProcessSnapshot
	for i, pid := range pids {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		snapshot, err := snapshotter.Take(ctx, pid)
		cancel()
		if errors.Is(err, process.ErrNoProcess) && i >= len(f.pids) {
			continue
		}
		if err != nil {
			return snapshots, err
		}
		snapshots = append(snapshots, snapshot)
	}
	return snapshots, nil
}

// explainOpenError adds advice to an error of loading the BPF programs.
func (f *stacksFlags) explainOpenError(err error) error {
	var denied *privilege.Error
	switch {
	case errors.As(err, &denied):
		return message.WithHint(err, fmt.Sprintf("sudo gpurec stacks -p %d", f.pids[0]))
	case errors.Is(err, hoststack.ErrNoBTF), errors.Is(err, hoststack.ErrTooOld):
		return message.WithHint(fmt.Errorf("stacks: %w", err), "sudo gpurec check")
	}
	return err
}

// explainSnapshotError adds advice to an error of a snapshot.
func (f *stacksFlags) explainSnapshotError(err error) error {
	if errors.Is(err, process.ErrNoProcess) {
		return message.WithHint(err, "sudo gpurec ps")
	}
	return err
}
