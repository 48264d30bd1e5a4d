package analyze

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["leaks"] = newLeaksCommand }

func newLeaksCommand() *cobra.Command {
	f := &reportFlags{command: "leaks", byRank: true}
	cmd := &cobra.Command{
		Use:   "leaks [FILE|FOLDER]...",
		Short: "Show the call sites whose GPU memory grows or is never freed",
		Long: `leaks shows a verdict for every call site that allocated GPU or pinned host memory:

  growing    live memory grows: a leak
  exit leak  never freed before the process exited
  retained   live, but not growing
  startup    allocated at the start and kept, such as weights
  churn      allocated and freed again

--suppressions ignores memory that stays on purpose. The file has lines leak:PATTERN, as
for LeakSanitizer. gpurec searches each pattern in the function, source file and module
of every stack frame. In a pattern, * matches any text, ^ the start and $ the end. Lines
with # are comments.

Keys of --group-by: ` + strings.Join(group.GroupNames(), ", ") + `.

` + byRankHelp,
		Example: `  gpurec analyze leaks run.parquet
  gpurec analyze leaks --suppressions known.supp --fail-on 'growing>0' run.parquet
  gpurec analyze leaks --group-by function --top 5
  gpurec analyze leaks --rank 3 run.parquet
  gpurec analyze leaks --format json run.parquet | jq '.leaks[0]'`,
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, leaks.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	groups := group.GroupNames()
	flags.StringVar(&f.opt.GroupBy, "group-by", groups[0], "one row per `KEY`, such as site or function")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: verdict, then live bytes)")
	f.addSuppressionsFlag(flags)
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames, and the stacks of all rows")
	flags.BoolVar(&f.opt.AllStacks, "all-stacks", false, "also show the stacks of startup and churn rows")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("group-by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
