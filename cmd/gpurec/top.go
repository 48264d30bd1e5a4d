//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/ps"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// topFlags are the flags of the verb top.
type topFlags struct {
	record recordFlags
	every  time.Duration
	format string
	json   bool
	all    bool
	job    string
}

func newTopCommand() *cobra.Command {
	f := topFlags{record: recordFlags{opt: record.DefaultOptions()}}
	cmd := &cobra.Command{
		Use:   "top [-p PID | --job ID | --comm NAME | --cgroup PATH]",
		Short: "Show what processes that use CUDA do now",
		Long: `top attaches to running processes, as "gpurec record" does. It shows, for the
last second: kernel launches, time in calls that wait for the GPU, live memory, the totals
of PyTorch's allocator and failed calls. Above the table are the GPUs and the verdicts.

Keys: s and S sort by the next or previous column, r reverses, / filters by name or pid.
The arrows select a process, enter shows its lines: by memory, launches or waiting time.
t shows the stacks of its threads. W saves the last minutes as a recording. space freezes,
? shows all keys, q quits.

LIVE is the memory on GPUs that was allocated since top began. USED is all memory of the
process. A ~ marks an estimate: --max-overhead leaves out launches.

Without root, top shows what NVML and /proc know: memory, SM use and CPU time.
If standard output is no terminal, or TERM is dumb, top prints text. With --format json it
prints a line of JSON for each interval, with --format jsonl one for each interval and
process. top keeps no recording; "gpurec record --live" does.`,
		Example: `  sudo gpurec top                      # all processes that use CUDA
  sudo gpurec top -p 4242              # one process
  sudo gpurec top --job 1234           # the ranks of a job
  sudo gpurec top --format jsonl -d 10s # lines of JSON
  sudo gpurec top --interval 5s        # numbers of the last five seconds`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.record.allocatorSet = cmd.Flags().Changed("allocator")
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd.Context())
		},
	}
	flags, r := cmd.Flags(), &f.record
	flags.SetNormalizeFunc(renameEvery)
	flags.IntSliceVarP(&r.pids, "pid", "p", nil, "show process `PID`; repeatable")
	flags.BoolVar(&f.all, "all", false, "show every process that uses CUDA (default)")
	flags.StringVar(&r.opt.Comm, "comm", "", "show every process named `NAME`, as in /proc/PID/comm")
	flags.StringVar(&r.opt.Cgroup, "cgroup", "", "show every process in or below cgroup v2 `PATH`")
	flags.StringVar(&f.job, "job", "", "show the ranks of job `ID` on this machine that run now, and their children")
	flags.DurationVarP(&r.opt.Duration, "duration", "d", 0, "stop after `TIME`, such as 60s (default: at q or Ctrl-C)")
	flags.DurationVar(&f.every, "interval", time.Second, "update every `TIME`, from 1s to 1m")
	flags.StringVar(&f.format, "format", liveTable, "print as `FORM`: table, json or jsonl")
	flags.BoolVar(&f.json, "json", false, "the same as --format json")
	flags.Var((*allocatorFlag)(&r.opt.Allocator), "allocator", "PyTorch allocator `MODE`: auto (every tensor), "+
		"light or off")
	flags.Lookup("allocator").NoOptDefVal = string(library.AllocatorModeAuto)
	flags.StringVar(
		&r.overhead,
		"max-overhead",
		"5%",
		"limit probe overhead on the busiest thread to `PERCENT`, or off",
	)
	flags.BoolVar(&r.noCache, "no-cache", false, "neither read nor keep unwind tables in "+defaultTableFolder)
	r.buffer, r.attach = "32MiB", "auto"
	registerTargetCompletions(cmd)
	for flag, values := range map[string][]string{"allocator": allocatorModes, "format": topFormats} {
		// RegisterFlagCompletionFunc fails only for an unknown flag.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

var topFormats = []string{liveTable, liveJSON, liveJSONLines}

// renameEvery accepts --every, the name of --interval in other verbs.
func renameEvery(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "every" {
		name = "interval"
	}
	return pflag.NormalizedName(name)
}

// check makes the display, and finds the processes of --job. It returns a *message.UsageError for wrong flags.
func (f *topFlags) check() error {
	r := &f.record
	if err := checkInterval("gpurec top --interval 1s", "--interval", f.every); err != nil {
		return err
	}
	if f.json {
		f.format = liveJSON
	}
	if !slices.Contains(topFormats, f.format) {
		return message.Usagef("gpurec top --help", "--format %s: must be one of %s", f.format,
			strings.Join(topFormats, ", "))
	}
	selections := 0
	for _, isSet := range []bool{f.all, len(r.pids) > 0, f.job != "", r.opt.Comm != "" || r.opt.Cgroup != ""} {
		if isSet {
			selections++
		}
	}
	if selections > 1 {
		return message.Usagef("gpurec top --help", "-p, --job, --all and --comm or --cgroup exclude one another")
	}
	r.live = newLiveDisplay(f.every, f.format)
	if f.job == "" {
		return nil
	}
	var err error
	r.pids, err = findJob(ps.List(false).Processes, f.job)
	return err
}

// findJob returns the processes of a job. The error for an unknown job names the others.
func findJob(all []ps.Process, job string) (pids []int, err error) {
	var known []string
	for i := range all {
		p := &all[i]
		if p.Job == job || p.SlurmJob == job || p.SlurmArray == job {
			pids = append(pids, p.Pid)
		}
		if name := cmp.Or(p.Job, p.SlurmJob); name != "" && !slices.Contains(known, name) {
			known = append(known, strings.Map(message.Printable, name))
		}
	}
	if len(pids) > 0 {
		return pids, nil
	}
	slices.Sort(known)
	if len(known) == 0 {
		return nil, message.WithHint(
			fmt.Errorf("no process that uses CUDA belongs to job %s, nor to any other job", job), "gpurec ps")
	}
	return nil, message.WithHint(
		fmt.Errorf("no process that uses CUDA belongs to job %s; known jobs: %s", job, joinFirstTexts(known)),
		"gpurec top --job "+quoteForShell(known[0]))
}

// run shows the processes until the user leaves. Without the privileges to attach, it shows what NVML and /proc know.
func (f *topFlags) run(ctx context.Context) error {
	err := privilege.CheckAttach(privilege.AttachAuto)
	if err == nil {
		err = f.record.showProcesses(ctx)
	}
	var denied *privilege.Error
	var tooOld *host.KernelError
	switch {
	case errors.As(err, &denied):
		return f.record.showPublicNumbers(ctx, denied.Error()+". Run: "+commandAsRoot())
	case errors.As(err, &tooOld):
		return f.record.showPublicNumbers(ctx, tooOld.Error())
	}
	return err
}

// checkInterval returns a *message.UsageError for a time between updates that is too short or too long.
func checkInterval(hint, flag string, every time.Duration) error {
	if every < time.Second || every > time.Minute {
		return message.Usagef(hint, "%s %v: must be from 1s to 1m", flag, every)
	}
	return nil
}

// keptByTop is the time for which top keeps calls on disk, and keptBytesByTop the most bytes.
const keptByTop, keptBytesByTop = 10 * time.Minute, 512 << 20

// showProcesses records into a folder that it removes at the end.
func (f *recordFlags) showProcesses(ctx context.Context) error {
	folder, err := openTopFolder()
	if err != nil {
		return err
	}
	defer folder.remove()
	f.opt.Output = filepath.Join(folder.path, "top.parquet")
	f.opt.All, f.discard = len(f.pids) == 0, true
	f.opt.KeepSegments = true // no file is written at the end
	f.opt.Ring, f.opt.RingFor, f.opt.MaxBytes = true, keptByTop, keptBytesByTop
	return f.recordProcesses(ctx, nil)
}

// commandAsRoot returns this command line with sudo, to paste.
func commandAsRoot() string {
	words := []string{"sudo", "gpurec"}
	for _, arg := range os.Args[1:] {
		words = append(words, quoteForShell(arg))
	}
	return strings.Join(words, " ")
}

// showPublicNumbers shows what NVML and /proc know about the processes, and why it is not more.
func (f *recordFlags) showPublicNumbers(ctx context.Context, reason string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	if f.opt.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.opt.Duration)
		defer cancel()
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	f.live.notRecorded = "CUDA calls are not recorded: " + reason
	keep := func(p *ps.Process) bool {
		return (len(f.pids) == 0 || slices.Contains(f.pids, p.Pid)) && f.matchesProcess(p)
	}
	var followed sync.WaitGroup
	followed.Go(func() { ps.Follow(ctx.Done(), f.live.every, keep, f.live.monitor.Add) })
	f.live.start(end)
	<-ctx.Done()
	f.live.stop()
	followed.Wait()
	f.live.printRest()
	return nil
}
