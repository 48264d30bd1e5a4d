package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["cpu"] = newCPUCommand }

func newCPUCommand() *cobra.Command {
	f := &reportFlags{command: "cpu"}
	cmd := &cobra.Command{
		Use:   "cpu [FILE]",
		Short: "Show where threads spent time on the CPU and off it, with reasons and lines",
		Long: `cpu shows the time of threads on a processor, in the run queue, asleep and in
uninterruptible waits. It shows the waits of threads that launch work or wait for it, by
reason and by line, and estimates CPU time by line from samples. It also shows garbage
collections, holders of Python's GIL, CPU limits with throttling, disk input and the
pressure of the machine. The recording needs class host: gpurec record --host auto.`,
		Example: `  gpurec analyze cpu run.parquet
  gpurec analyze cpu --pid 4711 --from 10s --to 20s run.parquet
  gpurec analyze cpu --fail-on 'throttled_ns>1s || gc_ns>1s' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, cpu.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	f.addFrameFlags(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort the waits by `COLUMN` (default: wait_ns)")
	return cmd
}
