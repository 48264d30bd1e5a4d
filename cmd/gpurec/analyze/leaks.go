package analyze

import (
	"strings"

	grouppkg "github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/spf13/cobra"
)

func init() { subcommands["leaks"] = newLeaks }

func newLeaks() *cobra.Command {
	f := &reportFlags{command: "leaks"}
	cmd := &cobra.Command{
		Use:   "leaks [FILE]",
		Short: "Show which places allocate memory that is not freed, and what that is",
		Long: `leaks shows for every place that allocated GPU or pinned host memory what became of
it: growing (a leak), exit leak (never freed before the process ended), retained,
startup (allocated at the start and kept, as weights are) or churn (freed again).

--suppressions leaves out memory that is known to stay: a file as LeakSanitizer reads it,
with lines leak:PATTERN. A pattern is looked for in function, source file and module of all
frames of the stack; * is anything, ^ the beginning, $ the end, # begins a comment.`,
		Example: `  gpurec analyze leaks run.parquet
  gpurec analyze leaks --suppressions known.supp --fail-on 'growing>0' run.parquet
  gpurec analyze leaks --group-by function --top 5
  gpurec analyze leaks --rank 3 run.parquet
  gpurec analyze leaks --format json run.parquet | jq '.leaks[0]'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, leaks.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	groups := grouppkg.Names()
	flags.StringVar(&f.opt.GroupBy, "group-by", groups[0], "one row per `WHAT`: "+strings.Join(groups, ", "))
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: verdict, then live bytes)")
	f.addSuppressions(flags)
	f.addFrames(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "fold nothing, show all frames, and the stacks of all rows")
	flags.BoolVar(&f.opt.AllStacks, "all-stacks", false, "show stacks of rows that are startup or churn too")
	// the flag exists
	_ = cmd.RegisterFlagCompletionFunc("group-by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
