// Package analyze implements the command "gpurec analyze". It makes a subcommand of each report of
// analyze.Reports, and has a file for each other subcommand. A subcommand parses flags, calls a package
// below the repository's folder analyze, and prints the result.
package analyze

import (
	"os"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

// New returns the command "gpurec analyze" with all its subcommands.
func New() *cobra.Command {
	f := newReportFlags(&summary.Definition)
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
		return f.runReport(args, report.Runner{Run: summary.Run})
	}
	f.addDeclaredFlags(cmd.Flags(), &summary.Definition.Flags)
	for _, d := range analyze.Reports {
		cmd.AddCommand(newReportCommand(d))
		for _, name := range d.Aliases {
			cmd.AddCommand(newAliasCommand(d, name))
		}
	}
	for _, v := range verbs {
		cmd.AddCommand(v.newCommand())
	}
	return cmd
}

// verb is a subcommand that is no report.
type verb struct {
	newCommand func() *cobra.Command
	// question is the question that the verb answers, for the tables of documents. "" means no row.
	question string
	subject  report.Subject // place in the tables
}

// verbs are the subcommands that are no reports. Each has a file of its own.
var verbs = []verb{
	{newDigestCommand, "What is wrong, for a language model?", report.SubjectOverview},
	{newDiffCommand, "What changed between two recordings?", report.SubjectComparison},
	{newPageCommand, "Can I mail the result?", report.SubjectExport},
	{newPprofCommand, "Can I see a profile in pprof?", report.SubjectExport},
	{newCommand: newFoldedCommand},
	{newCommand: newPerfettoCommand},
	{newCommand: newTorchSnapshotCommand},
	{newCommand: newSQLCommand},
	{newCommand: newExportCommand},
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
