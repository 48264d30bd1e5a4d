//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/library"
	"github.com/spf13/cobra"
)

func newTopCommand() *cobra.Command {
	f := recordFlags{opt: record.DefaultOptions()}
	var every time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "top [-p PID]",
		Short: "Show what processes that use CUDA do now",
		Long: `top attaches to running processes, as "gpurec record" does. It shows, for the
last second: kernel launches, calls, time in calls that wait for the GPU, live memory and
failed calls. For PyTorch, it shows the totals of the allocator. Without -p, --comm or
--cgroup it shows every process that uses CUDA.

Keys: s sorts by the next column, / filters by name or pid, up and down select a process,
enter shows its call sites, space pauses, q quits.

LIVE is the memory on GPUs that was allocated since top began. USED, on wide terminals, is
all memory of the process. A ~ marks an estimate: --max-overhead leaves out launches.
If standard output is no terminal, top prints text. With --json it prints a line of JSON
for each interval. top keeps no recording; "gpurec record --live" does.`,
		Example: `  sudo gpurec top                      # all processes that use CUDA
  sudo gpurec top -p 4242              # one process
  sudo gpurec top --json -d 10s        # ten lines of JSON
  sudo gpurec top --every 5s           # numbers of the last five seconds`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.allocatorSet = cmd.Flags().Changed("allocator")
			if err := checkInterval(every); err != nil {
				return err
			}
			f.live = newLiveDisplay(every, asJSON)
			return f.showProcesses(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVarP(&f.pids, "pid", "p", nil, "show process `PID`; repeatable")
	flags.StringVar(&f.opt.Comm, "comm", "", "show every process named `NAME`, as in /proc/PID/comm")
	flags.StringVar(&f.opt.Cgroup, "cgroup", "", "show every process in or below cgroup v2 `PATH`")
	flags.DurationVarP(&f.opt.Duration, "duration", "d", 0, "stop after `TIME`, such as 60s (default: at q or Ctrl-C)")
	flags.DurationVar(&every, "every", time.Second, "update every `TIME`, at most 1m")
	flags.BoolVar(&asJSON, "json", false, "print a line of JSON for each interval")
	flags.Var((*allocatorFlag)(&f.opt.Allocator), "allocator", "PyTorch allocator `MODE`: auto (every tensor), "+
		"light or off")
	flags.Lookup("allocator").NoOptDefVal = string(library.AllocatorModeAuto)
	flags.StringVar(
		&f.overhead,
		"max-overhead",
		"5%",
		"limit probe overhead on the busiest thread to `PERCENT`, or off",
	)
	flags.BoolVar(&f.noCache, "no-cache", false, "neither read nor keep unwind tables in "+defaultTableFolder)
	f.buffer, f.attach = "32MiB", "auto"
	registerTargetCompletions(cmd)
	_ = cmd.RegisterFlagCompletionFunc("allocator", cobra.FixedCompletions(allocatorModes,
		cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return cmd
}

// checkInterval returns a *message.UsageError for a value of --every that is too short or too long.
func checkInterval(every time.Duration) error {
	if every < time.Second || every > time.Minute {
		return message.Usagef("gpurec top --every 1s", "--every %v: must be from 1s to 1m", every)
	}
	return nil
}

// keptByTop is the time for which top keeps calls on disk, and keptBytesByTop the most bytes.
const keptByTop, keptBytesByTop = 10 * time.Second, 64 << 20

// showProcesses records into a folder that it removes at the end.
func (f *recordFlags) showProcesses(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "gpurec-top-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	f.opt.Output = filepath.Join(folder, "top.parquet")
	f.opt.All, f.discard = len(f.pids) == 0, true
	f.opt.Ring, f.opt.RingFor, f.opt.MaxBytes = true, keptByTop, keptBytesByTop
	return f.recordProcesses(ctx, nil)
}
