package analyze

import (
	"errors"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["rules"] = newRulesCommand }

func newRulesCommand() *cobra.Command {
	f := &reportFlags{command: "rules"}
	var names, about []string
	for _, r := range rules.ListRules() {
		names = append(names, r.Name)
		about = append(about, "  "+r.Name)
	}
	var chosen []string
	cmd := &cobra.Command{
		Use:   "rules [FILE]",
		Short: "Check a recording for known problems, with evidence and advice",
		Long: `rules checks a recording for known problems and prints the findings, most severe first.
Each finding has its evidence, its confidence, advice, and a command that shows details.
The rules are:

` + strings.Join(about, "\n") + `

--explain prints the condition of each rule. The values for --fail-on are problems,
notices, and one value per rule, such as growing_site: its number of evidence rows.`,
		Example: `  gpurec analyze rules run.parquet
  gpurec analyze rules --rule gpu-idle --rule launch-bound run.parquet
  gpurec analyze rules --fail-on 'problems>0 || sync_in_loop>0' run.parquet
  gpurec analyze rules --suppressions known.supp --format json run.parquet | jq '.hits[].rule'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.runReport(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				r, err := rules.RunWithOptions(t, rules.Options{Options: opt, Rules: chosen})
				var unknown *rules.UnknownRuleError
				if errors.As(err, &unknown) {
					return nil, message.Usagef(f.helpCommand(), "--rule: %w", err)
				}
				return r, err
			})
		},
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	flags.StringSliceVar(&chosen, "rule", nil, "check only rule `NAME`; repeatable")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: severity)")
	f.addSuppressionsFlag(flags)
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames of every stack")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("rule", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
