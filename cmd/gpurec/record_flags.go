//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/record/hostcontext"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/ps"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/size"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
	"github.com/gpurec/gpurec/record"
)

// recordFlags holds the flags of "gpurec record" as typed, and the record.Options that they set.
type recordFlags struct {
	opt       record.Options
	pids      []int
	buffer    string
	attach    string
	overhead  string
	readyFile string
	ready     *output.Destination // the opened folder of --ready-file; nil without the flag
	ring      string
	maxSize   string
	classes   []string
	// allocatorSet is true if the command line has --allocator.
	allocatorSet bool

	triggers triggerFlags

	noCache    bool
	noHold     bool
	noChildren bool
	matching   []ps.Process // running processes that --all, --comm or --cgroup selects

	liveMode string        // --live
	every    time.Duration // --every
	live     *liveDisplay  // nil without --live
	discard  bool          // the recording is not kept, so its file is not named

	noVerdicts bool
	verdicts   *liveVerdicts // nil: the recording is not reviewed while it is written
}

var stackModes = []string{probe.StacksAuto, probe.StacksFull, probe.StacksFP, probe.StacksOff}

var allocatorModes = []string{
	string(library.AllocatorModeAuto),
	string(library.AllocatorModeFull),
	string(library.AllocatorModeLight),
	string(library.AllocatorModeOff),
}

// allocatorFlag parses the flag --allocator: auto, full, light, off, or a boolean as in older releases.
type allocatorFlag library.AllocatorMode

func (f *allocatorFlag) String() string { return string(*f) }

func (f *allocatorFlag) Type() string { return "string" }

func (f *allocatorFlag) Set(value string) error {
	if on, err := strconv.ParseBool(value); err == nil {
		value = string(library.AllocatorModeOff)
		if on {
			value = string(library.AllocatorModeAuto)
		}
	}
	if !slices.Contains(allocatorModes, value) {
		return errors.New("must be auto, full, light or off")
	}
	*f = allocatorFlag(value)
	return nil
}

// gpuTimeFlag parses the flag --gpu-time.
type gpuTimeFlag progress.Rate

func (f *gpuTimeFlag) String() string { return progress.Rate(*f).String() }

func (f *gpuTimeFlag) Type() string { return "string" }

func (f *gpuTimeFlag) Set(value string) error {
	rate, err := progress.ParseRate(value)
	if err != nil {
		return err
	}
	*f = gpuTimeFlag(rate)
	return nil
}

// hostFlag parses the flag --host.
type hostFlag hostcontext.Mode

func (f *hostFlag) String() string { return hostcontext.Mode(*f).String() }

func (f *hostFlag) Type() string { return "string" }

func (f *hostFlag) Set(value string) error {
	mode, err := hostcontext.ParseMode(value)
	if err != nil {
		return err
	}
	*f = hostFlag(mode)
	return nil
}

// kernelArgsFlag parses the flag --kernel-args: a number of launches, all or off.
type kernelArgsFlag int

const (
	defaultKernelArgs = 16
	maxKernelArgs     = 1024
)

func (f *kernelArgsFlag) String() string {
	switch *f {
	case 0:
		return "off"
	case record.AllLaunches:
		return "all"
	}
	return strconv.Itoa(int(*f))
}

func (f *kernelArgsFlag) Type() string { return "string" }

func (f *kernelArgsFlag) Set(value string) error {
	switch value {
	case "all":
		*f = record.AllLaunches
		return nil
	case "off":
		*f = 0
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxKernelArgs {
		return fmt.Errorf("must be a number of launches from 1 to %d, all or off", maxKernelArgs)
	}
	*f = kernelArgsFlag(n)
	return nil
}

// checkFlags converts the flags to record.Options. It returns a *message.UsageError for a wrong
// flag. command is the command to record with its arguments.
func (f *recordFlags) checkFlags(command []string) error {
	const help = "gpurec record --help"
	f.opt.All = f.opt.All || f.opt.Comm != "" || f.opt.Cgroup != ""
	if len(f.pids) == 0 && len(command) == 0 && !f.opt.All {
		return newNoTargetError()
	}
	if f.opt.All && (len(f.pids) > 0 || len(command) > 0) {
		return message.Usagef("sudo gpurec record --all -d 10s", "--all, --comm and --cgroup select "+
			"the processes: remove -p and COMMAND")
	}
	for _, pid := range f.pids {
		if pid <= 0 {
			return message.Usagef("gpurec ps", "-p %d is not a process ID", pid)
		}
	}
	size, err := size.Parse(f.buffer)
	if err != nil || size < 64<<10 || size > 1<<31 || bits.OnesCount64(uint64(size)) != 1 {
		return message.Usagef("gpurec record --buffer 32MiB …", "--buffer %s: must be a power of two from 64KiB to "+
			"2GiB", f.buffer)
	}
	f.opt.BufferBytes = int(size)
	switch {
	case !slices.Contains(stackModes, f.opt.Stacks):
		return message.Usagef(help, "--stacks %s: must be auto, full, fp or off", f.opt.Stacks)
	case f.attach != "auto" && f.attach != "uprobe_multi" && f.attach != "perf":
		return message.Usagef(help, "--attach %s: must be auto, uprobe_multi or perf", f.attach)
	case f.opt.HoldMax <= 0:
		return message.Usagef("gpurec record --no-hold -- COMMAND", "--hold-max %v: must be positive; --no-hold turns "+
			"holding off", f.opt.HoldMax)
	case f.opt.Duration < 0:
		return message.Usagef(help, "-d %v is negative", f.opt.Duration)
	case f.opt.NVMLInterval < 0 || f.opt.NVMLInterval > 0 && f.opt.NVMLInterval < time.Millisecond:
		return message.Usagef(help, "--nvml-interval %v: must be at least 1ms, or 0 for no samples", f.opt.NVMLInterval)
	case f.opt.BlocksEvery < 0 || f.opt.BlocksEvery > 0 && f.opt.BlocksEvery < 10*time.Millisecond:
		return message.Usagef(
			"sudo gpurec record --blocks-every 1s …",
			"--blocks-every %v: must be at least 10ms, or 0 "+
				"for one reading at the start",
			f.opt.BlocksEvery,
		)
	case f.opt.SegmentInterval < 100*time.Millisecond:
		return message.Usagef(help, "--segment-interval %v: must be at least 100ms", f.opt.SegmentInterval)
	}
	if f.opt.MaxOverheadPct, err = parseMaxOverhead(f.overhead); err != nil {
		return message.Usagef("gpurec record --max-overhead 5% …", "--max-overhead %s: must be from 0.1%% to 100%%, "+
			"or off", f.overhead)
	}
	if err := f.checkSizeLimits(); err != nil {
		return err
	}
	if err := f.checkCallClasses(); err != nil {
		return err
	}
	if f.opt.GPUTime != progress.RateOff && len(f.opt.Classes) > 0 &&
		!slices.Contains(f.opt.Classes, format.RecordLaunch) {
		return message.Usagef(
			"gpurec record --gpu-time "+f.opt.GPUTime.String()+" --record launch,copy …",
			"--gpu-time "+
				"compares GPU times with launches: add launch to --record",
		)
	}
	if f.opt.KernelArgs != 0 && len(f.opt.Classes) > 0 && !slices.Contains(f.opt.Classes, format.RecordLaunch) {
		return message.Usagef("gpurec record --kernel-args --record launch,memory …",
			"--kernel-args needs launches: add launch to --record")
	}
	if short := process.TruncateComm(f.opt.Comm); short != f.opt.Comm {
		message.Notef(
			"process names have at most 15 characters: --comm %s matches processes named %s",
			f.opt.Comm,
			short,
		)
		f.opt.Comm = short
	}
	f.opt.Attach = privilege.AttachMethod(f.attach)
	f.opt.Pids = f.pids
	f.opt.Children = !f.noChildren
	if f.noHold {
		f.opt.HoldMax = 0
	}
	if !f.noCache {
		f.opt.TableFolder = tableFolder()
	}
	f.opt.Warn = func(text string) { message.Warningf("%s", text) }
	if f.live != nil {
		f.opt.Warn, f.opt.Tap = f.live.warn, f.live.monitor.Add
	}
	f.opt.Owner = output.SudoOwner()
	f.opt.Version, f.opt.CommandLine = buildVersion(), os.Args
	return nil
}

// defaultTableFolder is the folder that keeps unwind tables between recordings.
const defaultTableFolder = "/var/cache/gpurec"

// tableFolder returns the folder that keeps unwind tables: for a service of systemd, its cache.
func tableFolder() string {
	if folder := os.Getenv("CACHE_DIRECTORY"); folder != "" {
		return folder
	}
	return defaultTableFolder
}

// checkSizeLimits converts --max-size and --ring to record.Options. It returns a
// *message.UsageError for a wrong value.
func (f *recordFlags) checkSizeLimits() error {
	setSize := func(flag, text string) error {
		n, err := size.Parse(text)
		if err != nil || n < format.MinMaxBytes {
			return message.Usagef(
				"gpurec record --"+flag+" 2GiB …",
				"--%s %s: must be a size of at least %s",
				flag,
				text,
				units.FormatBytes(format.MinMaxBytes),
			)
		}
		f.opt.MaxBytes = n
		return nil
	}
	if f.maxSize != "" {
		if err := setSize("max-size", f.maxSize); err != nil {
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
		return message.Usagef("gpurec record --ring 10m --max-size 2GiB …", "--ring %s: must be a time if "+
			"--max-size is set", f.ring)
	case err != nil:
		return setSize("ring", f.ring)
	case keep < f.opt.SegmentInterval:
		return message.Usagef("gpurec record --ring 10m …", "--ring %v: must be at least the --segment-interval, "+
			"%v", keep, f.opt.SegmentInterval)
	}
	f.opt.RingFor = keep
	return nil
}

// parseMaxOverhead parses a value of --max-overhead: a percentage such as "5%" or "0.5" from 0.1 to
// 100, or "off". It returns 0 for off.
func parseMaxOverhead(text string) (float64, error) {
	if text == "off" {
		return 0, nil
	}
	pct, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(pct >= 0.1 && pct <= 100) {
		return 0, fmt.Errorf("%q is not a percentage from 0.1%% to 100%%", text)
	}
	return pct, nil
}
