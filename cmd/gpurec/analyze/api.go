package analyze

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/spf13/cobra"
)

func init() { subcommands["api"] = newAPI }

func newAPI() *cobra.Command {
	f := &reportFlags{command: "api"}
	cmd := &cobra.Command{
		Use:   "api [FILE]",
		Short: "Show how often each CUDA call was made, how long it took, and how often it failed",
		Long: `api shows every function of the CUDA driver that was called: the columns of nsys stats
(cuda_api_sum), and besides 95th and 99th percentile, errors and calls that are still
open. Times are of the CPU, in the call. Where the duration of some calls was not
recorded, TIMED says of how many the times are, and ~TOTAL is an estimate for all.`,
		Example: `  gpurec analyze api run.parquet
  gpurec analyze api --group-by site --sort p99_ns run.parquet
  gpurec analyze api --fail-on 'errors>0' --format csv run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, api.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	groups := api.GroupNames()
	flags.StringVar(&f.opt.GroupBy, "group-by", groups[0], "one row per call and `WHAT`: "+strings.Join(groups, ", "))
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: time)")
	f.addFrames(flags)
	// the flag exists
	_ = cmd.RegisterFlagCompletionFunc("group-by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
