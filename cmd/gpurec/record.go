//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/ps"
)

// recordFlags are the flags of record as they were typed.
type recordFlags struct {
	opt       record.Options
	pids      []int
	buffer    string
	attach    string
	overhead  string
	readyFile string
	ready     *format.Output // of readyFile
	ring      string
	maxSize   string
	classes   []string
	// allocatorSet is true if --allocator was given.
	allocatorSet bool

	noChildren bool
	matching   []ps.Process // running ones that --all, --comm and --cgroup choose
}

var stackModes = []string{probe.StacksAuto, probe.StacksFull, probe.StacksFP, probe.StacksOff}

var allocatorModes = []string{string(library.AllocatorAuto), string(library.AllocatorLight), string(library.AllocatorOff)}

// allocatorFlag is the flag --allocator, which once was true or false and still may be.
type allocatorFlag library.AllocatorMode

func (f *allocatorFlag) String() string { return string(*f) }

func (f *allocatorFlag) Type() string { return "string" }

func (f *allocatorFlag) Set(value string) error {
	if on, err := strconv.ParseBool(value); err == nil {
		value = string(library.AllocatorOff)
		if on {
			value = string(library.AllocatorAuto)
		}
	}
	if !slices.Contains(allocatorModes, value) {
		return errors.New("auto, light or off")
	}
	*f = allocatorFlag(value)
	return nil
}

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
	flags.DurationVarP(&f.opt.Duration, "duration", "d", 0, "end after this `TIME`, such as 60s (default: until Ctrl-C or the process ends)")
	flags.StringVarP(&f.opt.Output, "output", "o", "", "write to `FILE` (default: gpurec-NAME-PID-TIME.parquet here)")
	flags.StringVar(&f.ring, "ring", "", "keep only the last `TIME`, such as 10m, or as much as SIZE on disk, such as 2GiB, and drop what is older")
	flags.StringVar(&f.maxSize, "max-size", "", "never take more than `SIZE` on disk, and end before; with --ring: drop more")
	flags.BoolVar(&f.opt.Force, "force", false, "replace FILE if it exists")
	flags.BoolVar(&f.noChildren, "no-children", false, "leave out the processes' children")
	flags.BoolVar(&f.opt.All, "all", false, "record every process that uses CUDA")
	flags.StringVar(&f.opt.Comm, "comm", "", "record every process of this `NAME`, as in /proc/PID/comm and in gpurec ps")
	flags.StringVar(&f.opt.Cgroup, "cgroup", "", "record every process in cgroup v2 `PATH`, as in /proc/PID/cgroup, or below it")
	flags.BoolVar(&f.opt.WaitForLibrary, "wait", false, "wait until the process loads libcuda.so.1")
	flags.StringVar(&f.buffer, "buffer", "32MiB", "`SIZE` of the ring buffer; a power of two")
	flags.StringVar(&f.opt.Stacks, "stacks", f.opt.Stacks, "`HOW` to take stacks: auto (complete; of calls that come in masses only what is new), full (every one complete), fp (by frame pointers) or off")
	flags.Var((*allocatorFlag)(&f.opt.Allocator), "allocator", "`HOW` to record PyTorch's caching allocator: auto (every tensor, segments, out-of-memory; where PyTorch cannot be asked for that, as light), light (tensors by the size of their block, and totals: a third fewer events) or off")
	flags.Lookup("allocator").NoOptDefVal = string(library.AllocatorAuto)
	flags.StringSliceVar(&f.classes, "record", nil, "record only these `CLASSES` of calls: "+strings.Join(format.RecordClasses, ",")+" (default: all)")
	flags.BoolVar(&f.opt.KeepReturns, "keep-returns", false, "record duration and result of every kernel launch also where there are more than 8,000 a second, then done for 1 second in 10")
	flags.BoolVar(&f.opt.KeepGetters, "keep-getters", false, "go on recording functions like cuCtxGetCurrent when they are called more than 2,000 times a second")
	flags.StringVar(&f.overhead, "max-overhead", "", "`PERCENT` of its time that probes may cost the busiest thread, such as 5%: above it, first stacks of kernel launches, then launches themselves are recorded for 1 second in 10; all other calls always are (default: everything is recorded)")
	flags.DurationVar(&f.opt.NVMLInterval, "nvml-interval", f.opt.NVMLInterval, "sample the GPUs every `TIME`; 0: not at all")
	flags.DurationVar(&f.opt.SegmentInterval, "segment-interval", f.opt.SegmentInterval, "bring what was recorded to disk every `TIME`: what a crash costs at most")
	flags.StringVar(&f.attach, "attach", string(privilege.AttachAuto), "how to attach: auto, uprobe_multi or perf")
	flags.StringVar(&f.readyFile, "ready-file", "", "create `FILE` when all probes are in place")
	flags.StringSliceVar(&f.opt.Only, "only", nil, "probe these `FUNCTIONS` alone")
	flags.Lookup("ready-file").Hidden, flags.Lookup("only").Hidden = true, true // for scripts and tests
	registerTargetCompletions(cmd)
	for flag, values := range map[string][]string{"stacks": stackModes, "record": format.RecordClasses, "allocator": allocatorModes, "attach": {"auto", "uprobe_multi", "perf"}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // all flags exist
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

// check turns the flags into options, or says which one is wrong.
func (f *recordFlags) check(command []string) error {
	const help = "gpurec record --help"
	f.opt.All = f.opt.All || f.opt.Comm != "" || f.opt.Cgroup != ""
	if len(f.pids) == 0 && len(command) == 0 && !f.opt.All {
		return noTarget()
	}
	if f.opt.All && (len(f.pids) > 0 || len(command) > 0) {
		return usagef("sudo gpurec record --all -d 10s", "--all, --comm and --cgroup choose processes themselves: leave out -p and COMMAND")
	}
	for _, pid := range f.pids {
		if pid <= 0 {
			return usagef("gpurec ps", "-p %d is no process number", pid)
		}
	}
	size, err := parseSize(f.buffer)
	if err != nil || size < 64<<10 || size > 1<<31 || bits.OnesCount64(uint64(size)) != 1 {
		return usagef("gpurec record --buffer 32MiB …", "--buffer %s: a power of two from 64KiB to 2GiB is needed", f.buffer)
	}
	f.opt.BufferBytes = int(size)
	switch {
	case !slices.Contains(stackModes, f.opt.Stacks):
		return usagef(help, "--stacks %s: auto, full, fp or off", f.opt.Stacks)
	case f.attach != "auto" && f.attach != "uprobe_multi" && f.attach != "perf":
		return usagef(help, "--attach %s: auto, uprobe_multi or perf", f.attach)
	case f.opt.Duration < 0:
		return usagef(help, "-d %v is negative", f.opt.Duration)
	case f.opt.NVMLInterval < 0 || f.opt.NVMLInterval > 0 && f.opt.NVMLInterval < time.Millisecond:
		return usagef(help, "--nvml-interval %v: 1ms or more, or 0 for none", f.opt.NVMLInterval)
	case f.opt.SegmentInterval < 100*time.Millisecond:
		return usagef(help, "--segment-interval %v: 100ms or more", f.opt.SegmentInterval)
	}
	if f.overhead != "" {
		if f.opt.MaxOverheadPct, err = parsePercent(f.overhead); err != nil {
			return usagef("gpurec record --max-overhead 5% …", "--max-overhead %s: a share from 0.1%% to 100%% is needed", f.overhead)
		}
	}
	if err := f.checkBounds(); err != nil {
		return err
	}
	if err := f.checkClasses(); err != nil {
		return err
	}
	if short := process.KernelComm(f.opt.Comm); short != f.opt.Comm {
		notef("process names have at most 15 characters: --comm %s is compared as %s", f.opt.Comm, short)
		f.opt.Comm = short
	}
	f.opt.Attach = privilege.Attach(f.attach)
	f.opt.Pids = f.pids
	f.opt.Children = !f.noChildren
	f.opt.Warn = func(text string) { warningf("%s", text) }
	f.opt.Owner = sudoOwner()
	f.opt.Version, f.opt.CommandLine = version(), os.Args
	return nil
}

// checkBounds reads --max-size and --ring.
func (f *recordFlags) checkBounds() error {
	size := func(flag, text string) error {
		n, err := parseSize(text)
		if err != nil || n < format.MinMaxBytes {
			return usagef("gpurec record --"+flag+" 2GiB …", "--%s %s: a size of at least %s is needed", flag, text, formatSize(format.MinMaxBytes))
		}
		f.opt.MaxBytes = n
		return nil
	}
	if f.maxSize != "" {
		if err := size("max-size", f.maxSize); err != nil {
			return err
		}
	}
	if f.ring == "" {
		return nil
	}
	f.opt.Ring = true
	keep, err := time.ParseDuration(f.ring)
	switch {
	case err != nil && f.maxSize != "":
		return usagef("gpurec record --ring 10m --max-size 2GiB …", "--ring %s: a time is needed beside --max-size", f.ring)
	case err != nil:
		return size("ring", f.ring)
	case keep < f.opt.SegmentInterval:
		return usagef("gpurec record --ring 10m …", "--ring %v: at least the --segment-interval, %v, is needed", keep, f.opt.SegmentInterval)
	}
	f.opt.RingFor = keep
	return nil
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
		warningf("recording goes on with more rights than it needs: %v", err)
	}
	return f.follow(ctx, session)
}

// sayWhatTakesLong says why the recording has not begun yet.
func (f *recordFlags) sayWhatTakesLong() {
	if f.opt.Stacks == probe.StacksAuto || f.opt.Stacks == probe.StacksFull {
		notef("reading unwind tables for complete stacks; what runs, runs on (--stacks=fp starts at once)")
	} else {
		notef("loading BPF programs and placing probes; what runs, runs on")
	}
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
		warningf("recording ended early: %v", err)
	} else if end == record.EndSize {
		warningf("the recording ended: within %s there is no room for more; what runs, runs on", formatSize(f.opt.MaxBytes))
		hintf("record with a larger --max-size, or keep only the end with --ring 10m")
	} else if end == record.EndProcesses && f.opt.Command == nil {
		notef("%s", end)
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
		return &exitStatus{code}
	}
	return err
}

// report says what was recorded, what was lost, what it cost, and what to type next.
func (f *recordFlags) report(r record.Result) {
	total := r.Meta.Totals()
	if total.Lost > 0 {
		warningf("%s of %s calls lost; reports will say so", count(total.Lost), count(total.Seen))
		if r.Unfinished == "" {
			hintf("record again with --buffer %dMiB", max(1, min(int64(f.opt.BufferBytes)*4, 1<<31)>>20))
		}
	}
	if total.Open > 0 {
		notef("%s calls had not returned at the end; they are recorded as open", count(total.Open))
	}
	if total.Recorded == 0 {
		warningf("no CUDA call%s was made while recording", ofClasses(r.Meta.Classes))
	}
	if total.Dropped > 0 {
		notef("the recording is of the last %v; %s older calls were dropped (--ring)",
			time.Duration(r.Meta.EndNs-r.Meta.StartNs).Round(time.Second), count(total.Dropped))
	}
	c := r.Meta.Cost
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
	notef("own cost: attach %v%s, %.1f %% of a core, %s memory%s",
		time.Duration(c.AttachNs).Round(time.Millisecond), detach,
		float64(c.CPUNs)*100/max(float64(r.Elapsed.Nanoseconds()+c.DetachNs), 1), formatSize(c.RSSBytes), perEvent)
	if r.Unfinished == "" {
		next := "leaks"
		switch {
		case len(r.Meta.Classes) > 0 && !r.Meta.Has(format.RecordMemory) && !r.Meta.Has(format.RecordAllocator):
			next = "api"
		case total.Recorded == 0 && len(r.Meta.Classes) == 0:
			next = "hang"
		}
		notef("%s calls in %.1f s, %s lost -> %s (%s); next: gpurec analyze %s %s",
			count(total.Recorded), seconds, count(total.Lost), r.Output, formatSize(c.FileBytes), next, r.Output)
	}
}

// explain turns what record.Start says into a sentence and a command to paste.
func (f *recordFlags) explain(err error) error {
	var (
		wrong  *process.Error
		denied *privilege.Error
		path   *fs.PathError
		cgroup *process.CgroupError
	)
	again := "sudo " + strings.Join(os.Args, " ")
	switch {
	case errors.Is(err, process.ErrNoProcess) && errors.As(err, &wrong):
		return &hintedError{fmt.Errorf("there is no process %d; %s", wrong.Pid, f.running()), "gpurec ps"}
	case errors.Is(err, process.ErrNoLibrary) && errors.As(err, &wrong) && len(wrong.Children) > 0:
		return &hintedError{fmt.Errorf("%w, but %d of its children have", err, len(wrong.Children)),
			"sudo gpurec record " + pidFlags(wrong.Children)}
	case errors.Is(err, process.ErrNoLibrary) && errors.As(err, &wrong):
		return &hintedError{fmt.Errorf("%w; %s", err, f.running()), fmt.Sprintf("sudo gpurec record -p %d --wait", wrong.Pid)}
	case errors.As(err, &cgroup):
		return &hintedError{fmt.Errorf("%w; %s", err, f.running()), "gpurec ps --format json"}
	case errors.As(err, &denied) || errors.Is(err, process.ErrNotPermitted):
		return &hintedError{err, again}
	case errors.Is(err, format.ErrExists) && errors.As(err, &path):
		if strings.HasSuffix(path.Path, format.SegmentSuffix) {
			return &hintedError{fmt.Errorf("%s exists: a recording that was cut off", path.Path), "gpurec recover " + path.Path + ", or --force"}
		}
		return &hintedError{fmt.Errorf("%s exists", path.Path), "-o OTHER.parquet, or --force"}
	}
	return cmp.Or(explainOutput("-o", false, err), explainFolder("-o", err), err)
}

func (f *recordFlags) explainUnfinished(r record.Result, err error) error {
	what := err
	if errors.Is(err, syscall.ENOSPC) {
		what = fmt.Errorf("the disk of %s is full", filepath.Dir(r.Output))
	}
	again := "gpurec recover " + r.Unfinished
	var refused *format.OutputError
	if errors.Is(err, format.ErrExists) || errors.As(err, &refused) { // the name was taken meanwhile
		again += " -o OTHER.parquet"
	}
	return &hintedError{fmt.Errorf("%w; what was written is in %s", what, r.Unfinished), again}
}

// statusLine shows how the recording goes: one line that renews itself on a
// terminal, a line every ten seconds elsewhere.
type statusLine struct {
	session  *record.Session
	terminal bool
	begin    time.Time
	last     record.Progress
	lastAt   time.Time
	quit     chan struct{}
	done     chan struct{}
}

func newStatusLine(session *record.Session) *statusLine {
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	s := &statusLine{session: session, terminal: err == nil, begin: time.Now(), lastAt: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *statusLine) run() {
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
			s.show()
		}
	}
}

func (s *statusLine) show() {
	p, now := s.session.Progress(), time.Now()
	rate := float64(p.Calls-s.last.Calls) / now.Sub(s.lastAt).Seconds()
	s.last, s.lastAt = p, now
	text := fmt.Sprintf("%v  %s calls  %s/s  %s lost  %s",
		now.Sub(s.begin).Round(time.Second), count(p.Calls), count(int64(rate)), count(p.Lost), formatSize(p.FileBytes))
	if s.terminal {
		fmt.Fprintf(os.Stderr, "\r\x1b[Kgpurec: %s", text)
		return
	}
	notef("%s", text)
}

func (s *statusLine) stop() {
	close(s.quit)
	<-s.done
}
