package rules

import (
	"errors"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report rules.
var Definition = report.Definition{
	Name:  "rules",
	Short: "Check a recording for known problems, with evidence and advice",
	Long: `rules checks a recording for known problems and prints the findings, most severe first.
Each finding has its evidence, its confidence, advice, and a command that shows details.
The rules are:

  ` + strings.Join(ruleNames(), "\n  ") + `

--explain prints the condition of each rule. The values for --fail-on are problems,
notices, and for each rule its number of evidence rows, such as growing_site.`,
	Example: `  gpurec analyze rules run.parquet
  gpurec analyze rules --rule gpu-idle --rule launch-bound run.parquet
  gpurec analyze rules --fail-on 'problems>0 || sync_in_loop>0' run.parquet
  gpurec analyze rules --suppressions known.supp --format json run.parquet | jq '.hits[].rule'`,

	Question:   "What is wrong, and what should I do?",
	Subject:    report.SubjectOverview,
	IsFeatured: true,

	Flags: report.Flags{
		Calls:        true,
		Kernel:       true,
		Suppressions: true,
		Frames:       true,
		Sort:         "sort by `COLUMN` (default: severity)",
		AllFrames:    "show all frames of every stack",
		Values:       map[string][]string{"rule": ruleNames()},
	},
	Sections:  Sections,
	Run:       Run,
	Collect:   Collect,
	Configure: configure,
}

// ruleNames returns the names of all rules.
func ruleNames() (names []string) {
	for _, r := range ListRules() {
		names = append(names, r.Name)
	}
	return names
}

// configure registers --rule.
func configure(flags report.FlagSet) report.Runner {
	var chosen []string
	flags.StringSliceVar(&chosen, "rule", nil, "check only rule `NAME`; repeatable")
	return report.Runner{Run: func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		r, err := RunWithOptions(t, Options{Options: opt, Rules: chosen})
		var unknown *UnknownRuleError
		if errors.As(err, &unknown) {
			return nil, report.FlagErrorf("--rule: %w", err)
		}
		return r, err
	}}
}
