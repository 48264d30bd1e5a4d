// Command gpurec is a flight recorder for CUDA programs. "gpurec record" attaches to a running
// process and writes one Parquet file. "gpurec analyze" answers questions from that file.
//
// Package main parses flags, calls package record, analyze or format, and prints the result as
// messages. It holds no recording or analysis logic.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/gpurec/gpurec/cmd/gpurec/analyze"
	"github.com/gpurec/gpurec/cmd/gpurec/command"
	"github.com/spf13/cobra"
)

func main() {
	os.Exit(runCommandLine(context.Background(), os.Args[1:]))
}

// runCommandLine executes one command line and returns the exit code: 0 for success, 1 for failure,
// 2 for wrong usage, 3 if a --fail-on condition holds. "record -- COMMAND" returns the exit status
// of COMMAND.
func runCommandLine(ctx context.Context, args []string) int {
	return command.Run(ctx, newRootCommand(), args)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpurec",
		Short: "Flight recorder for CUDA programs",
		Long: `gpurec attaches to a running CUDA program without changing its code. It writes
every CUDA call with its stack to one Parquet file. "gpurec analyze" prints
reports about that file.`,
		Example: `  sudo gpurec ps                             # list the processes that use CUDA
  sudo gpurec record -p 4242 -d 60s          # record a running process for 60 s
  sudo gpurec record -- python3 train.py     # record a command from its start
  gpurec analyze leaks                       # show the call sites that leak memory`,
		Version: buildVersion(),
		// Suggest "record" for "recrod" and "analyze" for "anaylse": up to three edits away.
		SuggestionsMinimumDistance: 3,
		Args:                       cobra.NoArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		newRecordCommand(),
		newAgentCommand(),
		newTriggerCommand(),
		newShipCommand(),
		newPsCommand(),
		newTopCommand(),
		newStacksCommand(),
		newMemoryCommand(),
		analyze.New(),
		newRecoverCommand(),
		newSealCommand(),
		newReviewCommand(),
		newDumpCommand(),
		newCheckCommand(),
		newMCPCommand(),
	)
	return root
}

// buildVersion returns the module version that go install recorded, else the first 12 digits of the
// commit, else "devel" or "unknown".
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "devel"
}
