package analyze

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["api"] = newAPICommand }

func newAPICommand() *cobra.Command {
	f := &reportFlags{command: "api"}
	cmd := &cobra.Command{
		Use:   "api [FILE]",
		Short: "Show the number, duration and errors of calls for each CUDA driver function",
		Long: `api shows one row for each CUDA driver function that the processes called. The columns
are those of nsys stats (cuda_api_sum), plus the 95th and 99th percentile, errors and open
calls. Durations are CPU time inside the call. If gpurec did not record the duration of
every call, TIMED is the number of timed calls. ~TOTAL then estimates the total time of
all calls.

Keys of --group-by: ` + strings.Join(api.GroupNames(), ", ") + `.`,
		Example: `  gpurec analyze api run.parquet
  gpurec analyze api --group-by site --sort p99_ns run.parquet
  gpurec analyze api --fail-on 'errors>0' --format csv run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, api.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	groups := api.GroupNames()
	flags.StringVar(
		&f.opt.GroupBy,
		"group-by",
		groups[0],
		"one row per function and `KEY`, such as site or thread",
	)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: time)")
	f.addFrameFlags(flags)
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("group-by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
