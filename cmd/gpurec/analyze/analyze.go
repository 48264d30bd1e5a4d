// Package analyze implements the command "gpurec analyze". Each file implements the subcommand of
// one report or export: it parses flags, calls a package below the repository's folder analyze, and
// prints the result.
package analyze

import (
	"os"
	"strings"

	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// New returns the command "gpurec analyze" with all its subcommands.
func New() *cobra.Command {
	f := &reportFlags{command: "summary", byRank: true}
	cmd := &cobra.Command{
		Use:   "analyze [FILE|FOLDER]...",
		Short: "Print reports about a recording",
		Long: `Print reports about a recording, on any machine, without a GPU and without root.
Without a subcommand it prints a summary. FILE may be the folder of an unfinished
recording. Without FILE, analyze reads the newest gpurec-*.parquet in the current folder.

` + byRankHelp + `

--rank, --job and --container select processes by the rank, job or container that
torchrun, MPI, Slurm or Kubernetes set. The summary lists these values.

Reports fold stack frames of CUDA, CPython, libc and PyTorch internals. --hide-frames
REGEX also folds frames whose function, module or file matches; --hide-frames none turns
the default folding off. --source adds source lines to frames. --debug-dir and
--debuginfod select further sources of debug files, and imply --source.

Reports go to standard output, messages to standard error. Exit status 3 means that the
condition of --fail-on holds.`,
		Example: `  gpurec analyze run.parquet
  gpurec analyze leaks run.parquet
  gpurec analyze leaks --fail-on 'growing>0' run.parquet`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 && !strings.ContainsAny(args[0], `./\`) {
			if _, err := os.Stat(args[0]); err != nil {
				return newUnknownReportError(cmd, args[0])
			}
		}
		return f.runReport(args, summary.Run)
	}
	f.addSummaryFlags(cmd.Flags())
	for _, newCommand := range subcommandConstructors {
		cmd.AddCommand(newCommand())
	}
	return cmd
}

// subcommandConstructors maps the name of each subcommand to its constructor. Each file of this
// package adds its own subcommands in init.
var subcommandConstructors = make(map[string]func() *cobra.Command)

func init() { subcommandConstructors["summary"] = newSummaryCommand }

// newSummaryCommand returns the subcommand summary. "gpurec analyze" without a subcommand does the
// same.
func newSummaryCommand() *cobra.Command {
	f := &reportFlags{command: "summary", byRank: true}
	cmd := &cobra.Command{
		Use:   "summary [FILE|FOLDER]...",
		Short: "Summarize a recording: its contents and the most important findings",
		Long: `summary prints the same report as "gpurec analyze" without a subcommand.

` + byRankHelp,
		Example: `  gpurec analyze summary --from 10s --to 20s run.parquet`,
		RunE:    func(_ *cobra.Command, args []string) error { return f.runReport(args, summary.Run) },
	}
	f.addSummaryFlags(cmd.Flags())
	return cmd
}

// addSummaryFlags adds the flags of the summary.
func (f *reportFlags) addSummaryFlags(flags *pflag.FlagSet) {
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	f.addSuppressionsFlag(flags)
}

// newUnknownReportError returns the usage error for an argument that is neither a report nor a
// file. The hint is the report with the most similar name.
func newUnknownReportError(cmd *cobra.Command, word string) error {
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if names := cmd.SuggestionsFor(word); len(names) > 0 {
		hint = cmd.CommandPath() + " " + names[0]
	}
	return message.Usagef(hint, "%s is neither a report nor a file", word)
}
