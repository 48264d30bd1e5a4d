package analyze

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurec/gpurec/analyze/export/torchsnapshot"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func newTorchSnapshotCommand() *cobra.Command {
	f := &reportFlags{command: "torch-snapshot", values: torchsnapshot.Sections}
	var out outputFlags
	var opt torchsnapshot.Options
	var at string
	cmd := &cobra.Command{
		Use:   "torch-snapshot [FILE]",
		Short: "Write a memory snapshot for PyTorch's memory viewer",
		Long: `torch-snapshot writes the state of PyTorch's caching allocator at one time, and the trace
of its events up to that time. The file has the format of
torch.cuda.memory._dump_snapshot(). The viewer at pytorch.org/memory_viz, which uploads
nothing, and torch/cuda/_memory_viz.py read it. For a job that started before the
recording, torch-snapshot prints which part of the state is missing.`,
		Example: `  gpurec analyze torch-snapshot -o snapshot.pickle run.parquet
  gpurec analyze torch-snapshot --at peak -o - run.parquet | python3 -m torch.cuda._memory_viz stats -
  gpurec analyze torch-snapshot --pid 4242 --at 12s --max-trace-entries 0 run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if opt.MaxTraceEntries < 0 {
				return message.Usagef(f.helpCommand(), "--max-trace-entries must not be negative")
			}
			return f.openRecording(args, func(path string, t *timeline.Timeline) error {
				var err error
				if opt.At, opt.AtNs, err = f.parseMoment(at, t); err != nil {
					return err
				}
				return f.writeTorchSnapshot(path, t, &out, opt)
			})
		},
	}
	flags := cmd.Flags()
	f.addScopeFlags(flags)
	flags.StringVar(&f.minBytes, "min-bytes", "0", "omit blocks below `SIZE` from the trace")
	flags.StringVar(&at, "at", "end", "`TIME` of the snapshot: peak (most bytes), end, an offset (12s), "+
		"Unix ns, or RFC 3339")
	flags.Int64Var(&opt.MaxTraceEntries, "max-trace-entries", torchsnapshot.DefaultMaxTraceEntries, "write the last "+
		"`N` events of each device; 0: all")
	f.addHideFramesFlag(flags, "also hide frames that match `REGEX`; none: no default hiding; repeatable")
	f.source.addFlags(flags)
	out.addFlags(flags, ".pickle")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(
		"at",
		cobra.FixedCompletions([]string{"peak", "end"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

// writeTorchSnapshot writes the snapshot and prints its contents and the next step.
func (f *reportFlags) writeTorchSnapshot(
	path string,
	t *timeline.Timeline,
	out *outputFlags,
	opt torchsnapshot.Options,
) error {
	opt.Filter, opt.Hide = f.opt.Filter, f.opt.Hide
	s, err := torchsnapshot.NewSnapshot(t, opt)
	var processes *torchsnapshot.ProcessCountError
	switch {
	case errors.As(err, &processes) && len(processes.Pids) == 0:
		return message.WithHint(fmt.Errorf("%s: %w", path, err), "gpurec analyze summary "+path)
	case errors.As(err, &processes):
		return message.Usagef(
			fmt.Sprintf("gpurec analyze torch-snapshot --pid %d %s", processes.Pids[0], path),
			"%s: %w",
			path,
			err,
		)
	case err != nil:
		return message.ExplainOpen(path, err)
	}
	written, err := out.writeFile(path, ".pickle", s.Write)
	if err != nil {
		return err
	}
	for _, text := range s.Missing {
		message.Notef("%s", text)
	}
	message.Notef("quality: %s", &s.Quality)
	after := time.Duration(s.AtNs - t.RecordingWindow().FromNs).Round(time.Microsecond)
	message.Notef(
		"process %d at %v: %s allocated, %s reserved, %s, %s, %s -> %s; next: open "+
			"the file at https://pytorch.org/memory_viz",
		s.Pid,
		after,
		units.FormatBytes(s.Totals.Allocated),
		units.FormatBytes(s.Totals.Reserved),
		units.CountWithNoun(s.Segments, "segment"),
		units.CountWithNoun(s.Blocks, "block"),
		units.CountWithNoun(s.TraceEntries, "event"),
		written,
	)
	return f.finishExport(&report.Report{Command: f.command, Quality: s.Quality})
}
