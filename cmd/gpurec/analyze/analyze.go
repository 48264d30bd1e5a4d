// Package analyze is the command gpurec analyze: one file for each report and export. It turns flags
// into one call of the packages under analyze, and the result into messages and an exit code.
package analyze

import (
	"os"
	"strings"

	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// New returns the command analyze with all its subcommands.
func New() *cobra.Command {
	f := &reportFlags{command: "summary"}
	cmd := &cobra.Command{
		Use:   "analyze [FILE]",
		Short: "Answer questions from a recording",
		Long: `analyze answers questions from a recording, on any machine: no GPU, no root. Without
a subcommand it prints a summary. FILE may be the folder of an unfinished recording;
without FILE it takes the newest gpurec-*.parquet of the current folder.

--rank, --job and --container choose processes by what torchrun, MPI, Slurm or Kubernetes
gave them. The summary lists them under processes.

Results go to standard output, everything else to standard error. Exit status 3
means that a --fail-on condition held.`,
		Example: `  gpurec analyze run.parquet
  gpurec analyze leaks run.parquet
  gpurec analyze leaks --fail-on 'growing>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 && !strings.ContainsAny(args[0], `./\`) {
			if _, err := os.Stat(args[0]); err != nil {
				return unknownReport(cmd, args[0])
			}
		}
		return f.report(args, summary.Run)
	}
	f.addSummary(cmd.Flags())
	for _, newCommand := range subcommands {
		cmd.AddCommand(newCommand())
	}
	return cmd
}

// subcommands make the subcommands by name. The file of each adds it.
var subcommands = make(map[string]func() *cobra.Command)

func init() { subcommands["summary"] = newSummary }

// newSummary is what analyze does without a subcommand, by its own name.
func newSummary() *cobra.Command {
	f := &reportFlags{command: "summary"}
	cmd := &cobra.Command{
		Use:     "summary [FILE]",
		Short:   "Tell what a recording holds and what stands out in it",
		Long:    `summary is what analyze prints without a subcommand.`,
		Example: `  gpurec analyze summary --from 10s --to 20s run.parquet`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return f.report(args, summary.Run) },
	}
	f.addSummary(cmd.Flags())
	return cmd
}

func (f *reportFlags) addSummary(flags *pflag.FlagSet) {
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	f.addSuppressions(flags)
}

// unknownReport is the error for a word that is neither a report nor a file.
func unknownReport(cmd *cobra.Command, word string) error {
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if names := cmd.SuggestionsFor(word); len(names) > 0 {
		hint = cmd.CommandPath() + " " + names[0]
	}
	return message.Usagef(hint, "%s is neither a report nor a file", word)
}
