//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/hostcontext"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/spf13/cobra"
)

func newRecordCommand() *cobra.Command {
	f := recordFlags{opt: record.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "record {-p PID | --all | -- COMMAND [ARG...]}",
		Short: "Record the CUDA calls of a running process, or of a command",
		Long: `record attaches to a running process, or starts a command. It writes every CUDA driver
call with its arguments, result, duration and stack to one Parquet file. gpurec injects
no code into the process, which keeps running a little slower.

Ctrl-C ends the recording and finishes the file. A second Ctrl-C aborts; "gpurec recover"
then rebuilds the file from the segments on disk. If the file is already finished and
gpurec is still removing probes, Ctrl-C leaves the removal to the kernel.
With -- COMMAND, gpurec exits with the exit status of COMMAND.

Targets: -p PID may be a launcher such as torchrun, srun or mpirun. gpurec also records
its running and future children. --all, --comm and --cgroup record matching processes
that are running, and wait for new ones. "gpurec ps" lists the processes that use CUDA.

With -- COMMAND, gpurec briefly pauses a thread of the command: when it has just loaded a
library with probes, and when it first calls CUDA. The thread continues when probes and
unwind tables are in place, at the latest after --hold-max. It receives no signal. gpurec
never pauses processes of -p, --all, --comm or --cgroup.

Stacks: by default gpurec unwinds complete stacks. For a frequent call it reuses the stack
of an equal-looking call, and marks the reused stack as inferred. With --stacks full it
unwinds every call. With --stacks fp it follows frame pointers, which starts faster but
misses frames.

PyTorch: by default gpurec records every tensor, segment and out-of-memory error, if that
fits --max-overhead. Otherwise it records windows of these events, and reads all blocks from
the memory of the process every second: live memory and leaks stay known.
--allocator=full records every event, whatever it costs. With --allocator=light it records
a third fewer events: block sizes instead of tensor sizes, and totals. This is also the
fallback for PyTorch builds that expose nothing else.
What was allocated before, gpurec reads once from the memory of the process. With
--blocks-every 1s it reads all blocks again every second. This costs the process nothing
measurable, so with --allocator=off it shows for hours which sizes of blocks grow:
"gpurec analyze blocks".

Overhead: above 8,000 kernel launches a second, gpurec records the duration and result of
launches for 1 second in 10. It stops recording getters such as cuCtxGetCurrent above
2,000 calls a second. If calls of NCCL take more than 0.5 % of a thread's time, it stops
recording groups, then durations and results of operations. --keep-returns and
--keep-getters turn these limits off.
Above --max-overhead, gpurec records kernel launches and PyTorch's tensors only part of the
time, and unwinds fewer stacks. Reports then estimate the number of launches. It always
records all other calls. With --max-overhead off it records everything.

GPU times: with --gpu-time, gpurec reads the start times of GPU operations, and the end times
of copies between host and device, from the driver's memory. With auto it reads at launches,
and 1,000 times a second. With full it uses one CPU per process. If the driver does not show
these times, gpurec records without them.

Arguments: with --kernel-args, gpurec reads the arguments of kernel launches. It keeps those
of the last 16 launches of each stream, or of N with --kernel-args=N. It writes them when
work of the GPU fails, and at the end. --kernel-args=all writes those of every launch.
"gpurec analyze pointers" finds arguments that point into freed memory.

Host: with --host, gpurec records how long threads that use CUDA run, sleep and wait for a
processor. It also records waits of 1 ms or more, and samples of stacks while the threads run.

Triggers: with --ring and --trigger, gpurec keeps what happened around an event, and
continues to record. Each capture is a recording of its own. The events are:
  oom       memory could not be allocated, and a retry did not succeed
  xid       the driver reported a severe error of a GPU
  sticky    an error after which a CUDA context can do nothing
  hang      a call has not returned for --hang-after (captured with the stacks of all threads)
  exit      a process was ended by SIGSEGV, SIGABRT, SIGBUS or SIGKILL
  throttle  the hardware has reduced the clocks of a GPU for a minute
  idle      a GPU with memory in use did nothing for 10 minutes
  leak      memory of a process grew steadily, by 256 MiB and 10 % in 10 minutes
  slow      steps of a process took 1.5 times as long as before, for 10 s
  loss      gpurec lost more than 1 % of the calls of a minute (noted, not captured)
  manual    gpurec received SIGUSR1

Classes of --record: ` + strings.Join(format.RecordClasses, ", ") + `.`,
		Example: `  gpurec ps                                    # list the processes that use CUDA
  sudo gpurec record -p 4242 -d 60s            # record a process for one minute
  sudo gpurec record -p 4242 -p 4243           # record two processes until Ctrl-C
  sudo gpurec record -- python3 train.py       # record a command from its first call
  sudo gpurec record -p 4242 --wait            # wait until the process uses CUDA
  sudo gpurec record -p 4242 --max-overhead off # record every kernel launch at any cost
  sudo gpurec record -p 4242 --record memory   # find leaks at the lowest overhead
  sudo gpurec record -p 4242 --ring 10m        # keep only the last 10 minutes
  sudo gpurec record -p 4242 --ring 10m --trigger oom,hang,manual # keep what led to an event
  sudo gpurec record -p 4242 --live            # show its numbers meanwhile
  sudo gpurec record --all -d 10s              # record every process that uses CUDA
  sudo gpurec record --comm python3 -d 10s     # record every process named python3`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return fmt.Errorf("unexpected argument %q: write the command to record after --", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.allocatorSet = cmd.Flags().Changed("allocator")
			if cmd.Flags().Changed("live") {
				if err := f.checkLive(); err != nil {
					return err
				}
			}
			return f.recordProcesses(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.IntSliceVarP(&f.pids, "pid", "p", nil, "record process `PID`; repeatable")
	flags.DurationVarP(&f.opt.Duration, "duration", "d", 0, "stop after `TIME`, such as 60s (default: at Ctrl-C or "+
		"process exit)")
	flags.StringVarP(&f.opt.Output, "output", "o", "", "write to `FILE` (default: gpurec-NAME-PID-TIME.parquet)")
	flags.StringVar(&f.ring, "ring", "", "keep only the last `TIME` (10m) or SIZE (2GiB); discard older calls")
	flags.StringVar(&f.maxSize, "max-size", "", "stop before the recording exceeds `SIZE` on disk; with --ring: "+
		"discard more")
	f.triggers.register(cmd)
	flags.BoolVar(&f.opt.Force, "force", false, "replace FILE if it exists")
	flags.BoolVar(&f.noChildren, "no-children", false, "do not record child processes")
	flags.DurationVar(&f.opt.HoldMax, "hold-max", f.opt.HoldMax, "pause a thread of COMMAND for at most `TIME` while "+
		"probes are attached")
	flags.BoolVar(&f.noHold, "no-hold", false, "never pause threads of COMMAND; its first calls may be missing")
	flags.BoolVar(&f.noCache, "no-cache", false, "neither read nor keep unwind tables in "+defaultTableFolder)
	flags.BoolVar(&f.opt.All, "all", false, "record every process that uses CUDA")
	flags.StringVar(&f.opt.Comm, "comm", "", "record every process named `NAME`, as in /proc/PID/comm")
	flags.StringVar(&f.opt.Cgroup, "cgroup", "", "record every process in or below cgroup v2 `PATH`, as in "+
		"/proc/PID/cgroup")
	flags.BoolVar(&f.opt.WaitForLibrary, "wait", false, "wait until the process loads libcuda.so.1")
	flags.StringVar(&f.buffer, "buffer", "32MiB", "`SIZE` of the ring buffer; a power of two")
	flags.StringVar(&f.opt.Stacks, "stacks", f.opt.Stacks, "stack `MODE`: auto, full, fp (frame pointers) or off")
	flags.Var(
		(*allocatorFlag)(&f.opt.Allocator),
		"allocator",
		"PyTorch allocator `MODE`: auto (every tensor, in windows above "+
			"--max-overhead), full (every tensor), light or off",
	)
	flags.Lookup("allocator").NoOptDefVal = string(library.AllocatorModeAuto)
	flags.DurationVar(
		&f.opt.BlocksEvery,
		"blocks-every",
		0,
		"read the blocks of PyTorch's allocator from memory every "+
			"`TIME`, at least 10ms; 0: only once",
	)
	flags.StringSliceVar(
		&f.classes,
		"record",
		nil,
		"record only these `CLASSES` of calls, separated by commas (default: all)",
	)
	flags.BoolVar(&f.opt.KeepReturns, "keep-returns", false, "record duration and result of every kernel launch, "+
		"at any launch rate")
	flags.BoolVar(&f.opt.ModuleClasses, "module-classes", false, "record the classes of PyTorch's modules in stacks")
	flags.BoolVar(&f.opt.KeepGetters, "keep-getters", false, "record getters such as cuCtxGetCurrent at any call rate")
	flags.StringVar(
		&f.overhead,
		"max-overhead",
		"5%",
		"limit probe overhead on the busiest thread to `PERCENT`, or off",
	)
	flags.DurationVar(&f.opt.NVMLInterval, "nvml-interval", f.opt.NVMLInterval, "sample the GPUs every `TIME`; 0: "+
		"no samples")
	flags.Var((*gpuTimeFlag)(&f.opt.GPUTime), "gpu-time", "record GPU operation times: off, auto, full (one CPU per "+
		"process), or a polling `RATE` (20kHz)")
	flags.Var((*kernelArgsFlag)(&f.opt.KernelArgs), "kernel-args", "record arguments of the last `N` launches of each "+
		"stream, or of all")
	flags.Lookup("kernel-args").NoOptDefVal = strconv.Itoa(defaultKernelArgs)
	flags.Var((*hostFlag)(&f.opt.Host), "host", "record waits and CPU samples of threads that use CUDA, by `MODE`: "+
		"auto, full or off")
	flags.DurationVar(&f.opt.SegmentInterval, "segment-interval", f.opt.SegmentInterval, "write to disk every "+
		"`TIME`; a crash loses at most this much")
	flags.StringVar(
		&f.liveMode,
		"live",
		"",
		"show the numbers of the processes while recording, as gpurec top does: as "+
			"a `FORM`, table or json",
	)
	flags.Lookup("live").NoOptDefVal = liveTable
	flags.DurationVar(&f.every, "every", time.Second, "with --live: update every `TIME`, at most 1m")
	flags.BoolVar(&f.noVerdicts, "no-verdicts", false, "do not name leaks, hangs and errors while recording")
	flags.StringVar(&f.attach, "attach", string(privilege.AttachAuto), "attach `METHOD`: auto, uprobe_multi or perf")
	flags.StringVar(&f.readyFile, "ready-file", "", "create `FILE` once all probes are attached")
	flags.StringSliceVar(&f.opt.Only, "only", nil, "probe only these `FUNCTIONS`")
	flags.BoolVar(&f.opt.EmptyProbes, "empty-probes", false, "record nothing: measure what probes cost at least")
	// Only scripts and tests use these flags.
	for _, name := range []string{"ready-file", "only", "empty-probes"} {
		flags.Lookup(name).Hidden = true
	}
	registerTargetCompletions(cmd)
	for flag, values := range map[string][]string{
		"stacks":    stackModes,
		"record":    format.RecordClasses,
		"allocator": allocatorModes,
		"attach":    {"auto", "uprobe_multi", "perf"},
		"gpu-time":  progress.RateNames,
		"host":      hostcontext.ModeNames,
		"live":      {liveTable, liveJSON},
	} {
		// RegisterFlagCompletionFunc fails only for an unknown flag.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// recordProcesses checks the flags, starts the recording and records until it ends. args is the
// command to record with its arguments; it is empty if other flags select the processes.
func (f *recordFlags) recordProcesses(ctx context.Context, args []string) error {
	if err := f.checkFlags(args); err != nil {
		return err
	}
	if f.opt.All {
		if err := f.findMatchingProcesses(); err != nil {
			return err
		}
	}
	if err := f.openReadyFolder(); err != nil {
		return err
	}
	if err := f.triggers.open(&f.opt); err != nil {
		return err
	}
	defer f.triggers.close()
	f.openVerdicts()
	defer f.verdicts.close()
	if len(args) > 0 {
		// Fail before the command starts. For running processes, record.Start returns better
		// errors.
		if err := privilege.CheckAttach(f.opt.Attach); err != nil {
			return f.explainStartError(err)
		}
		if err := f.checkOutputFile(); err != nil {
			return f.explainStartError(err)
		}
		command, err := record.StartCommand(args, f.opt.Owner)
		if err != nil {
			return err
		}
		f.opt.Command = command
	}
	setGoMemoryLimit(recorderMemoryLimitBytes)
	limitProcessors()
	slow := time.AfterFunc(time.Second, f.announceSlowStart)
	session, err := record.Start(f.opt)
	slow.Stop()
	if err != nil {
		if f.opt.Command != nil {
			f.opt.Command.Kill()
		}
		return f.explainStartError(err)
	}
	if err := session.DropPrivileges(); err != nil {
		message.Warningf("gpurec keeps its privileges while recording: it could not drop them: %v", err)
	}
	return f.followSession(ctx, session)
}

// startDisplay shows the progress of the recording until the returned function is called. end ends the
// recording.
func (f *recordFlags) startDisplay(session *record.Session, end func()) (stop func()) {
	if f.live != nil {
		f.live.start(end)
		return f.live.stop
	}
	return startStatusLine(session).stopUpdates
}

// followSession records until the session ends, prints the result and removes the probes. It
// returns a *message.ExitStatus if a recorded command exits with a status other than 0.
func (f *recordFlags) followSession(ctx context.Context, session *record.Session) error {
	ctx, leave, stop := f.contextUntilInterrupted(ctx, session)
	defer stop()
	f.announceTargets(session)
	recording, end := context.WithCancel(ctx) // the command may run on
	defer end()
	if f.live != nil {
		f.live.connect(session)
	}
	endDisplay := f.startDisplay(session, end)
	if f.opt.Command != nil {
		f.opt.Command.Run()
	}
	stopTriggers := f.triggers.follow(session)
	stopAdapting := adaptToNeed()
	reason, err := session.Run(recording)
	stopAdapting()
	stopTriggers()
	endDisplay()
	if err != nil {
		message.Warningf("recording ended early: %v", err)
	} else if reason == record.EndSize {
		message.Warningf(
			"the recording ended: it reached its size limit of %s; the recorded processes keep running",
			units.FormatBytes(f.opt.MaxBytes),
		)
		message.Hintf("set a larger --max-size, or keep only the last 10 minutes with --ring 10m")
	} else if reason == record.EndProcesses && f.opt.Command == nil {
		message.Notef("%s", reason)
	}
	result, ferr := session.Finish()
	if !f.discard {
		f.verdicts.finish(&result)
	}
	if f.live != nil {
		f.live.printRest()
	}
	if !f.discard {
		f.printResult(result)
	}
	f.triggers.finish(session)
	removeRemainingProbes(session, leave)
	if ferr != nil {
		return f.explainUnfinishedRecording(result, ferr)
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
