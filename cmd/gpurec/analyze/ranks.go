package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["ranks"] = newRanksCommand }

func newRanksCommand() *cobra.Command {
	f := &reportFlags{command: "ranks"}
	cmd := &cobra.Command{
		Use:   "ranks [FILE]...",
		Short: "Show which rank of a job the others wait for, since when and why",
		Long: `ranks compares the ranks of one job, step by step. It shows:

  - the rank for which the others wait, by how much a step, since when, and what the job
    gains without it
  - why: its host with the line, its copies, slower kernels with clocks and throttling,
    or more work
  - a network that became slow, if no rank is late
  - counts, sizes, bandwidth, transfer and waits of collectives

ranks finds the steps by the calls of NCCL. Record each host or each rank, and give all
recordings. Clocks of different hosts need not agree.

A rank is late if its own time is longer than that of ranks that do the same. The own time
is the step without waits. With GPU times (record --gpu-time auto), waits are collectives on
the GPU. Without them, waits are calls of the driver: a late host shows, a slow GPU does not.
Record with --host auto to see what a late host did.`,
		Example: `  gpurec analyze ranks run.parquet
  gpurec analyze ranks node1.parquet node2.parquet
  gpurec analyze ranks run/
  gpurec analyze ranks --fail-on 'late_ranks>0' rank*.parquet`,
		RunE: func(_ *cobra.Command, args []string) error {
			paths, err := expandArguments(args)
			if err != nil {
				return err
			}
			if len(paths) > 1 && !f.explain {
				return f.runRanksOfJob(paths)
			}
			return f.runReport(paths, ranks.Run)
		},
	}
	f.addScopeFlags(cmd.Flags())
	f.addReportFlags(cmd.Flags())
	return cmd
}

// runRanksOfJob prints the report on the ranks of several recordings.
func (f *reportFlags) runRanksOfJob(paths []string) error {
	if err := f.checkFlags(); err != nil {
		return err
	}
	if f.from != "" || f.to != "" {
		return message.Usagef(f.helpCommand(), "--from and --to need one recording")
	}
	j, err := f.openJob(paths)
	if err != nil {
		return err
	}
	r, err := ranks.RunJob(j, f.opt)
	if err != nil {
		return f.explainJobError(err)
	}
	return f.printReport(r)
}
