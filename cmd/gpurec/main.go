// Command gpurec is a flight recorder for CUDA programs: record attaches to a
// running process and writes one Parquet file, analyze answers questions from it.
//
// This folder turns flags into one call of record, analyze or format and turns its
// result into messages and an exit code; there is no logic here.
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
	os.Exit(run(context.Background(), os.Args[1:]))
}

// run executes one command line and returns its exit code: 0 done, 1 failed,
// 2 wrong usage, 3 a --fail-on condition held; after record -- COMMAND its status.
func run(ctx context.Context, args []string) int { return command.Run(ctx, newRoot(), args) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpurec",
		Short: "Flight recorder for CUDA programs",
		Long: `gpurec attaches to a running CUDA program, changes nothing in it, and writes
every CUDA call with its stack into one Parquet file; analyze answers from it.`,
		Example: `  sudo gpurec ps                             # which processes use CUDA?
  sudo gpurec record -p 4242 -d 60s          # record a running process
  sudo gpurec record -- python3 train.py     # or from its first instruction
  gpurec analyze leaks                       # which function leaks?`,
		Version: version(),
		// Three edits away is still meant: recrod, anaylse.
		SuggestionsMinimumDistance: 3,
		Args:                       cobra.NoArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newRecord(), newPs(), analyze.New(), newRecover(), newDump(), newCheck())
	return root
}

// version returns the module version that go install recorded, or the commit.
func version() string {
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
