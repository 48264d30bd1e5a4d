//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/memory"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/torchallocator"
	"github.com/spf13/cobra"
)

// memoryFlags are the flags of the verb memory.
type memoryFlags struct {
	pid, device, top, count               int
	every                                 time.Duration
	asJSON                                bool
	pidSet, deviceSet, everySet, countSet bool
}

func newMemoryCommand() *cobra.Command {
	f := new(memoryFlags)
	cmd := &cobra.Command{
		Use:   "memory -p PID",
		Short: "Show the memory of a process's PyTorch allocator now",
		Long: `memory reads the blocks of PyTorch's CUDA caching allocator in a running process, and
shows how much is allocated, reserved and free, by pool, stream and size. It needs no
recording, and works on a process that hangs. It does not stop the process, uses no
ptrace, and writes nothing into it.

A reading is accepted only if the allocator changed nothing meanwhile, and if the blocks
equal all of the allocator's own statistics: the last line says how many totals agree.
If a thread holds the allocator's lock all the time, memory names it, and shows blocks
that are not proved. The blocks have no stacks: "gpurec record" records those.

AWAITING   Blocks that the program freed and a stream still uses.
CACHED     Free bytes inside segments. LARGEST is the largest free piece.
REQUESTED  The size that the program asked for. Blocks are rounded up.
NEW, GONE  Blocks since the line before, with --every.

The exit status is 1 if the memory of a device could not be read. It is 0 if a thread
hangs inside the allocator, and with --every if a reading is refused.`,
		Example: `  sudo gpurec memory -p 4242
  sudo gpurec memory -p 4242 --every 1s                    # a line a second, with what changed
  sudo gpurec memory -p 4242 --json | jq '.devices[0].largest_request_bytes'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := cmd.Flags()
			f.pidSet, f.deviceSet = flags.Changed("pid"), flags.Changed("device")
			f.everySet, f.countSet = flags.Changed("every"), flags.Changed("count")
			if err := f.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx)
		},
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.pid, "pid", "p", 0, "show process `PID`")
	flags.IntVar(&f.device, "device", 0, "show only device `N` of the process (default: all)")
	flags.IntVar(&f.top, "top", 20, "list at most `N` sizes of blocks; 0: all")
	flags.DurationVar(&f.every, "every", 0, "print a line for each reading, every `TIME`, until Ctrl-C")
	flags.IntVar(&f.count, "count", 0, "with --every: stop after `N` readings")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON; with --every, one object a line")
	registerTargetCompletions(cmd)
	return cmd
}

// Limits of --every.
const (
	minMemoryInterval = 10 * time.Millisecond
	maxMemoryInterval = time.Hour
)

// check returns a usage error for wrong flags.
func (f *memoryFlags) check() error {
	const help = "gpurec memory --help"
	switch {
	case !f.pidSet:
		return message.Usagef("sudo gpurec ps", "name a process: -p PID")
	case f.pid <= 0:
		return message.Usagef("sudo gpurec ps", "-p %d is not a process ID", f.pid)
	case f.device < 0:
		return message.Usagef(help, "--device %d: must be 0 or more", f.device)
	case f.top < 0:
		return message.Usagef(help, "--top %d: must be 0 or more", f.top)
	case f.everySet && (f.every < minMemoryInterval || f.every > maxMemoryInterval):
		return message.Usagef(help, "--every %v: must be from 10ms to 1h", f.every)
	case f.countSet && !f.everySet:
		return message.Usagef(help, "--count needs --every")
	case f.countSet && f.count <= 0:
		return message.Usagef(help, "--count %d: must be positive", f.count)
	}
	return nil
}

// run shows the memory of the process once, or again and again.
func (f *memoryFlags) run(ctx context.Context) error {
	if err := record.DropForTorchMemory(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if f.everySet {
		return f.watch(ctx)
	}
	m, err := record.OpenTorchMemory(ctx, f.pid)
	switch {
	case err == nil:
		defer m.Close()
	case ctx.Err() != nil:
		return nil // Ctrl-C
	default:
		return f.explain(err)
	}
	readings, err := f.read(ctx, m)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return f.explain(err)
	}
	devices := make([]memory.Device, len(readings))
	for i := range readings {
		devices[i] = memory.NewDevice(&readings[i], f.top)
	}
	of := memory.Process{Pid: f.pid, Comm: m.Comm, Version: m.Version}
	if f.asJSON {
		err = memory.WriteJSON(os.Stdout, of, devices)
	} else {
		width, _, _ := terminal.Inspect(os.Stdout, terminal.ColorNever)
		err = memory.WriteText(os.Stdout, of, devices, width)
	}
	return errors.Join(err, f.refusedError(readings))
}

// read reads the selected devices.
func (f *memoryFlags) read(ctx context.Context, m *record.TorchMemory) ([]record.TorchReading, error) {
	first, last := 0, m.Devices()-1
	if f.deviceSet && f.device > last {
		return nil, message.Usagef(fmt.Sprintf("sudo gpurec memory -p %d", f.pid), "--device %d: process %d has %s",
			f.device, f.pid, units.CountWithNoun(int64(m.Devices()), "device"))
	}
	if f.deviceSet {
		first, last = f.device, f.device
	}
	var readings []record.TorchReading
	for device := first; device <= last; device++ {
		r, err := m.Read(ctx, device)
		if err != nil {
			return nil, err
		}
		readings = append(readings, r)
	}
	return readings, nil
}

// watch prints a line for each reading until ctx ends, the process ends, or --count readings are done. A reading that is
// refused does not end it.
func (f *memoryFlags) watch(ctx context.Context) error {
	lines := memory.NewWatch(os.Stdout, f.pid, f.asJSON)
	var m *record.TorchMemory
	defer func() {
		if m != nil {
			m.Close()
		}
	}()
	next := time.Now()
	for n := 0; f.count == 0 || n < f.count; n++ {
		if n > 0 && !waitUntil(ctx, next) {
			break
		}
		next = time.Now().Add(f.every)
		var readings []record.TorchReading
		var err error
		if m == nil {
			m, err = record.OpenTorchMemory(ctx, f.pid)
		}
		if err == nil {
			readings, err = f.read(ctx, m)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			err = lines.Print(readings)
		case errors.Is(err, torchallocator.ErrUnused):
			err = lines.Refuse(err, time.Now())
		case n > 0 && hasEnded(err):
			message.Notef("%v; %s", err, units.CountWithNoun(int64(n), "reading"))
			return nil
		default:
			err = f.explain(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasEnded reports whether an error says that the program of a process has ended.
func hasEnded(err error) bool {
	return errors.Is(err, process.ErrNoProcess) || errors.Is(err, torchallocator.ErrEnded) ||
		errors.Is(err, record.ErrReplaced)
}

// refusedError returns an error about devices that could not be read, nil if there are none. A thread that holds the
// allocator's lock is an answer.
func (f *memoryFlags) refusedError(readings []record.TorchReading) error {
	var all []error
	for i := range readings {
		if r := &readings[i]; r.Refused != nil && r.Holder == nil {
			all = append(all, fmt.Errorf("device %d: %w", r.Device, r.Refused))
		}
	}
	return f.explain(errors.Join(all...))
}

// explain adds a command that helps to an error of reading.
func (f *memoryFlags) explain(err error) error {
	self := fmt.Sprintf("sudo gpurec memory -p %d", f.pid)
	var refused *record.TorchMemoryError
	var layout *torchallocator.UnknownLayoutError
	var class *torchallocator.OtherAllocatorError
	isRefused := errors.As(err, &refused)
	switch {
	case err == nil:
		return nil
	case isRefused && refused.Parent != 0:
		return message.WithHint(err, fmt.Sprintf("sudo gpurec memory -p %d", refused.Parent))
	case isRefused && len(refused.Children) > 0:
		return message.WithHint(err, fmt.Sprintf("sudo gpurec memory -p %d", refused.Children[0]))
	case hasEnded(err), errors.Is(err, record.ErrNoTorch):
		return message.WithHint(err, "sudo gpurec ps")
	case errors.Is(err, torchallocator.ErrDenied) && os.Geteuid() != 0:
		return message.WithHint(err, self)
	case errors.Is(err, torchallocator.ErrUnused):
		return message.WithHint(err, self+" --every 1s")
	case errors.Is(err, torchallocator.ErrBusy):
		return message.WithHint(err, self)
	case errors.As(err, &layout), errors.As(err, &class):
		return message.WithHint(err, fmt.Sprintf("sudo gpurec record -p %d -d 60s", f.pid))
	case errors.Is(err, record.ErrBlocked):
		return message.WithHint(err, fmt.Sprintf("sudo gpurec stacks -p %d", f.pid))
	}
	return err
}
