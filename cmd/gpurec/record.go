//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/spf13/cobra"
)

func newRecord() *cobra.Command {
	f := recordFlags{opt: record.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "record {-p PID | --all | -- COMMAND [ARG...]}",
		Short: "Record the CUDA calls of a running process, or of a command",
		Long: `record attaches to a running process, or starts a command, and writes every CUDA
driver call with its arguments, result, duration and stack into one Parquet file.
Nothing is injected: the process runs on as if nobody looked, a little slower.

Ctrl-C ends the recording well, a second Ctrl-C aborts it (what was written until
then can be recovered), unless the file is finished already and only probes are
being taken away. After -- COMMAND, gpurec exits with the command's status.

-p PID may be a launcher such as torchrun, srun or mpirun: its running children are
recorded too, and those to come. --comm and --cgroup record processes that run now and
wait for new ones. "gpurec ps" lists the processes that use CUDA.`,
		Example: `  gpurec ps                                    # which processes use CUDA?
  sudo gpurec record -p 4242 -d 60s            # one minute of a running process
  sudo gpurec record -p 4242 -p 4243           # two, until Ctrl-C
  sudo gpurec record -- python3 train.py       # a command from its first call
  sudo gpurec record -p 4242 --wait            # one that has not used CUDA yet
  sudo gpurec record -p 4242 --max-overhead 5% # sample kernel launches where all of them cost more
  sudo gpurec record -p 4242 --record memory   # allocations and frees alone: for leaks, at the lowest cost
  sudo gpurec record -p 4242 --ring 10m        # until Ctrl-C, keeping the last 10 minutes
  sudo gpurec record --all -d 10s              # every process that uses CUDA
  sudo gpurec record --comm python3 -d 10s     # every one of that name`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return fmt.Errorf("unexpected argument %q: a command to record stands behind --", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.allocatorSet = cmd.Flags().Changed("allocator")
			return f.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVarP(&f.pids, "pid", "p", nil, "record process `PID`; may be given several times")
	flags.DurationVarP(&f.opt.Duration, "duration", "d", 0, "end after this `TIME`, such as 60s (default: until "+
		"Ctrl-C or the process ends)")
	flags.StringVarP(&f.opt.Output, "output", "o", "", "write to `FILE` (default: gpurec-NAME-PID-TIME.parquet here)")
	flags.StringVar(&f.ring, "ring", "", "keep only the last `TIME`, such as 10m, or as much as SIZE on disk, such "+
		"as 2GiB, and drop what is older")
	flags.StringVar(&f.maxSize, "max-size", "", "never take more than `SIZE` on disk, and end before; with --ring: "+
		"drop more")
	flags.BoolVar(&f.opt.Force, "force", false, "replace FILE if it exists")
	flags.BoolVar(&f.noChildren, "no-children", false, "leave out the processes' children")
	flags.BoolVar(&f.opt.All, "all", false, "record every process that uses CUDA")
	flags.StringVar(&f.opt.Comm, "comm", "", "record every process of this `NAME`, as in /proc/PID/comm and in "+
		"gpurec ps")
	flags.StringVar(&f.opt.Cgroup, "cgroup", "", "record every process in cgroup v2 `PATH`, as in /proc/PID/cgroup, "+
		"or below it")
	flags.BoolVar(&f.opt.WaitForLibrary, "wait", false, "wait until the process loads libcuda.so.1")
	flags.StringVar(&f.buffer, "buffer", "32MiB", "`SIZE` of the ring buffer; a power of two")
	flags.StringVar(&f.opt.Stacks, "stacks", f.opt.Stacks, "`HOW` to take stacks: auto (complete; of calls that "+
		"come in masses only what is new), full (every one complete), fp (by frame pointers) or off")
	flags.Var((*allocatorFlag)(&f.opt.Allocator), "allocator", "`HOW` to record PyTorch's caching allocator: auto "+
		"(every tensor, segments, out-of-memory; where PyTorch cannot be asked for that, as light), light (tensors "+
		"by the size of their block, and totals: a third fewer events) or off")
	flags.Lookup("allocator").NoOptDefVal = string(library.AllocatorAuto)
	flags.StringSliceVar(
		&f.classes,
		"record",
		nil,
		"record only these `CLASSES` of calls: "+strings.Join(format.RecordClasses, ",")+" (default: all)",
	)
	flags.BoolVar(&f.opt.KeepReturns, "keep-returns", false, "record duration and result of every kernel launch "+
		"also where there are more than 8,000 a second, then done for 1 second in 10")
	flags.BoolVar(&f.opt.KeepGetters, "keep-getters", false, "go on recording functions like cuCtxGetCurrent when "+
		"they are called more than 2,000 times a second")
	flags.StringVar(&f.overhead, "max-overhead", "", "`PERCENT` of its time that probes may cost the busiest "+
		"thread, such as 5%: above it, first stacks of kernel launches, then launches themselves are recorded for 1 "+
		"second in 10; all other calls always are (default: everything is recorded)")
	flags.DurationVar(&f.opt.NVMLInterval, "nvml-interval", f.opt.NVMLInterval, "sample the GPUs every `TIME`; 0: "+
		"not at all")
	flags.DurationVar(&f.opt.SegmentInterval, "segment-interval", f.opt.SegmentInterval, "bring what was recorded "+
		"to disk every `TIME`: what a crash costs at most")
	flags.StringVar(&f.attach, "attach", string(privilege.AttachAuto), "how to attach: auto, uprobe_multi or perf")
	flags.StringVar(&f.readyFile, "ready-file", "", "create `FILE` when all probes are in place")
	flags.StringSliceVar(&f.opt.Only, "only", nil, "probe these `FUNCTIONS` alone")
	flags.Lookup("ready-file").Hidden, flags.Lookup("only").Hidden = true, true // for scripts and tests
	registerTargetCompletions(cmd)
	for flag, values := range map[string][]string{
		"stacks":    stackModes,
		"record":    format.RecordClasses,
		"allocator": allocatorModes,
		"attach":    {"auto", "uprobe_multi", "perf"},
	} {
		// all flags exist
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// softMemoryLimit is what Go's heap should not grow beyond while there is garbage in it:
// the recorder shares the machine with what it records, and lives on far less.
const softMemoryLimit = 160 << 20

// boundMemory sets the limit, unless the user has set one.
func boundMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemoryLimit)
	}
}

func (f *recordFlags) run(ctx context.Context, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	if f.opt.All {
		if err := f.lookAround(); err != nil {
			return err
		}
	}
	if err := f.openReady(); err != nil {
		return err
	}
	if len(args) > 0 {
		// Before the command is started; for processes, Start has more to say.
		if err := privilege.Check(f.opt.Attach); err != nil {
			return f.explain(err)
		}
		if err := f.checkOutput(); err != nil {
			return f.explain(err)
		}
		command, err := record.StartCommand(args, f.opt.Owner)
		if err != nil {
			return err
		}
		f.opt.Command = command
	}
	boundMemory()
	slow := time.AfterFunc(time.Second, f.sayWhatTakesLong)
	session, err := record.Start(f.opt)
	slow.Stop()
	if err != nil {
		if f.opt.Command != nil {
			f.opt.Command.Kill()
		}
		return f.explain(err)
	}
	if err := session.DropPrivileges(); err != nil {
		message.Warningf("recording goes on with more rights than it needs: %v", err)
	}
	return f.follow(ctx, session)
}

// follow records until it should end, ends it and says what it came to.
func (f *recordFlags) follow(ctx context.Context, session *record.Session) error {
	ctx, leave, stop := f.untilInterrupted(ctx, session)
	defer stop()
	f.announce(session)
	status := newStatusLine(session)
	if f.opt.Command != nil {
		f.opt.Command.Run()
	}
	end, err := session.Run(ctx)
	status.stop()
	if err != nil {
		message.Warningf("recording ended early: %v", err)
	} else if end == record.EndSize {
		message.Warningf(
			"the recording ended: within %s there is no room for more; what runs, runs on",
			units.Bytes(f.opt.MaxBytes),
		)
		message.Hintf("record with a larger --max-size, or keep only the end with --ring 10m")
	} else if end == record.EndProcesses && f.opt.Command == nil {
		message.Notef("%s", end)
	}
	result, ferr := session.Finish()
	f.report(result)
	takeProbesAway(session, leave)
	if ferr != nil {
		return f.explainUnfinished(result, ferr)
	}
	if f.opt.Command == nil {
		return nil
	}
	code, err := f.opt.Command.Wait(ctx)
	if err == nil && code != 0 {
		return &message.ExitStatus{Code: code}
	}
	return err
}
