package analyze

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["objects"] = newObjectsCommand }

func newObjectsCommand() *cobra.Command {
	f := &reportFlags{command: "objects"}
	cmd := &cobra.Command{
		Use:   "objects [FILE]",
		Short: "Show events, streams, graphs, modules and contexts that are never destroyed",
		Long: `objects shows the objects of the CUDA driver that each call site created: executable graphs,
graphs, events, streams, modules, libraries, contexts, opened IPC memory, memory pools,
textures, surfaces and others. Each kind and site has a verdict:

  growing    the number of live objects grows: a leak
  retained   objects are live, but their number does not grow
  balanced   the objects were destroyed, or ended with their context

A pool that fills up and stays full is no leak. A burst that ends is none either.
--suppressions ignores objects that stay on purpose, as in gpurec analyze leaks.

Keys of --group-by: ` + strings.Join(objects.GroupNames(), ", ") + `.`,
		Example: `  gpurec analyze objects run.parquet
  gpurec analyze objects --fail-on 'growing>0' run.parquet
  gpurec analyze objects --group-by function --top 5
  gpurec analyze objects --format json run.parquet | jq '.sites[0]'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, objects.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	groups := objects.GroupNames()
	flags.StringVar(&f.opt.GroupBy, "group-by", groups[0], "one row per kind and `KEY`, such as site or function")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: verdict, kind, live objects)")
	f.addSuppressionsFlag(flags)
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames, and the stacks of all rows")
	flags.BoolVar(&f.opt.AllStacks, "all-stacks", false, "also show the stacks of rows that do not grow")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("group-by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
